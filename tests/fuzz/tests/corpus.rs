//! Runs each target on every input of its corpus, and checks that each corpus has inputs.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use virtlens_fuzz::{TARGETS, Target};

/// Limit on the size of all corpora in a checkout.
const MAX_CORPORA_BYTES: u64 = 1 << 20;

fn entries(below: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(below);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

/// The names of these files or directories without their extensions.
fn stems(paths: &[PathBuf]) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
    paths.iter().filter_map(stem).collect()
}

fn replay(name: &str, target: Target) {
    let inputs = entries(&format!("corpus/{name}"));
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    let breaks = |path: &&PathBuf| {
        let input = fs::read(path).expect("a readable input");
        catch_unwind(AssertUnwindSafe(|| target(&input))).is_err()
    };
    let broken: Vec<&PathBuf> = inputs.iter().filter(breaks).collect();
    assert!(broken.is_empty(), "{name} breaks on {broken:#?}");
}

#[test]
fn no_input_that_is_kept_breaks_its_target() {
    for (name, target) in TARGETS {
        replay(name, target);
    }
}

/// `scripts/fuzz` uses the directories of corpora as the list of targets.
#[test]
fn each_module_is_a_target_with_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "each name once");
    assert_eq!(stems(&entries("corpus")), targets);
    let mut modules = stems(&entries("src"));
    modules.retain(|name| !matches!(name.as_str(), "lib" | "main"));
    assert_eq!(modules, targets);
}

#[test]
fn corpora_stay_small() {
    let inputs = entries("corpus").into_iter().flat_map(|dir| {
        let entries = fs::read_dir(dir).expect("a corpus");
        entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("an input"))
    });
    let bytes: u64 = inputs.map(|meta| meta.len()).sum();
    assert!(
        bytes < MAX_CORPORA_BYTES,
        "{bytes} bytes; scripts/fuzz --keep keeps the least"
    );
}
