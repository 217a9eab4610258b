//! Runs each target on every input that is kept: named ones in `corpus`, and in `found`
//! those of libFuzzer, one per line in base64.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use virtlens_fuzz::{TARGETS, Target};
use virtlens_probe::decode::{Buffer, Decoder};

/// Limit on the size of all inputs in a checkout.
const MAX_CORPORA_BYTES: usize = 1 << 20;

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn entries(below: &str) -> Vec<PathBuf> {
    let dir = path(below);
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

/// The inputs of a target, each with its place.
fn inputs(name: &str) -> Vec<(String, Vec<u8>)> {
    let named = entries(&format!("corpus/{name}")).into_iter().map(|path| {
        let input = fs::read(&path).expect("a readable input");
        (path.display().to_string(), input)
    });
    let file = format!("found/{name}");
    let lines = fs::read_to_string(path(&file)).expect("each target has a file");
    let found = lines.lines().zip(1..).map(|(line, number)| {
        let input = STANDARD.decode(line).expect("base64");
        (format!("{file}:{number}"), input)
    });
    named.chain(found).collect()
}

fn replay(name: &str, target: Target) {
    let inputs = inputs(name);
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    let breaks = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| target(input))).is_err();
    let broken = inputs.iter().filter(|(_, input)| breaks(input));
    let broken: Vec<&str> = broken.map(|(place, _)| &**place).collect();
    assert!(broken.is_empty(), "{name} breaks on {broken:#?}");
}

#[test]
fn no_input_that_is_kept_breaks_its_target() {
    for (name, target) in TARGETS {
        replay(name, target);
    }
}

/// An input in a former layout of the records ends at its first record, and covers nothing else.
#[test]
fn inputs_with_whole_passes_have_the_present_layout() {
    for (name, threads) in [
        ("pass", 2),
        ("pass-no-masks", 4),
        ("parts", 8),
        ("mask-long", 2),
    ] {
        let input = fs::read(path(&format!("corpus/records/{name}"))).expect("a readable input");
        let [mask_words, _, stream @ ..] = &*input else {
            panic!("{name} is too short");
        };
        let mut buffer = Buffer::default();
        buffer.room(stream.len())[..stream.len()].copy_from_slice(stream);
        buffer.fill(stream.len());
        let decoded = Decoder::default().pass(buffer.bytes(), usize::from(*mask_words));
        let (facts, _) = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(facts.threads.len(), threads, "{name}");
    }
}

/// `scripts/fuzz` uses the directories of corpora as the list of targets.
#[test]
fn each_module_is_a_target_with_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "each name once");
    assert_eq!(stems(&entries("corpus")), targets);
    assert_eq!(stems(&entries("found")), targets);
    let mut modules = stems(&entries("src"));
    modules.retain(|name| !matches!(name.as_str(), "lib" | "main"));
    assert_eq!(modules, targets);
}

#[test]
fn corpora_stay_small() {
    let bytes: usize = TARGETS
        .iter()
        .flat_map(|(name, _)| inputs(name))
        .map(|(_, input)| input.len())
        .sum();
    assert!(
        bytes < MAX_CORPORA_BYTES,
        "{bytes} bytes; scripts/fuzz --keep keeps the least"
    );
}
