//! The pictures of README.md and docs/: they exist, are small, and show what the pages
//! say. A recording without the expected output fails here.

use std::fs;
use std::path::{Path, PathBuf};

use virtlens_model::snapshot::Check;
use virtlens_model::vocab::Role;

/// Limit on the size of a picture, bytes.
const MAX_SIZE: u64 = 1_000_000;

/// Limit on the words of README.md, as `wc -w` counts them.
const MAX_WORDS: usize = 700;

/// Roles with threads in the pod of the pictures.
const ROLES: [Role; 5] = [
    Role::Vcpu,
    Role::Vhost,
    Role::Virtiofsd,
    Role::Iothread,
    Role::Emulator,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Alternative text and path of each picture that a page shows.
fn pictures_of(page: &Path) -> Vec<(String, PathBuf)> {
    let text = read(page);
    let marks = text.split("![").skip(1);
    let parts = marks.map(|mark| {
        let (alternative, rest) = mark.split_once("](").expect("a picture has a path");
        let (path, _) = rest.split_once(')').expect("the path ends");
        (alternative.replace('\n', " "), page.with_file_name(path))
    });
    parts.collect()
}

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/ can be read");
    let paths = docs.map(|entry| entry.expect("docs/ can be read").path());
    let pages = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.chain([root().join("README.md")]).collect()
}

#[test]
fn every_page_shows_small_pictures_with_alternative_text() {
    let mut count = 0;
    for page in pages() {
        for (alternative, picture) in pictures_of(&page) {
            let (page, name) = (page.display(), picture.display());
            assert!(!alternative.is_empty(), "{page}: {name} has no text");
            let size = fs::metadata(&picture).map(|file| file.len());
            let size = size.unwrap_or_else(|error| panic!("{page}: {name}: {error}"));
            assert!(size < MAX_SIZE, "{name} has {size} bytes");
            count += 1;
        }
    }
    assert!(count >= 6, "only {count} pictures were found");
}

#[test]
fn readme_shows_cluster_and_usage_in_at_most_700_words() {
    let readme = root().join("README.md");
    let pictures: Vec<_> = pictures_of(&readme)
        .into_iter()
        .map(|(_, path)| path)
        .collect();
    for name in ["cluster.svg", "usage.svg"] {
        let path = root().join("docs/images").join(name);
        assert!(pictures.contains(&path), "{name} is not among {pictures:?}");
    }
    let words = read(&readme).split_whitespace().count();
    assert!(words <= MAX_WORDS, "{words} words");
}

#[test]
fn session_shows_findings_of_top_doctor_and_trace_without_missing_sources() {
    let session = read(&root().join("docs/images/session.svg"));
    let roles = ROLES.iter().map(|role| role.name());
    let checks = [Check::IoThrottled, Check::QuotaCapped].map(Check::name);
    let expected = [
        "$ virtlens top",
        "THR%",
        "WORKER",
        "limit pod 1.25 cores",
        "$ virtlens doctor",
        "$ virtlens trace shop/web-0 --for 5s",
        "vCPUs, % of the time",
        "longest throttlings",
        "exits, by host time",
        "@keyframes",
    ];
    for text in expected.into_iter().chain(roles).chain(checks) {
        assert!(session.contains(text), "the recording lacks {text:?}");
    }
    for text in ["see virtlens check", "error:", "hangs"] {
        assert!(!session.contains(text), "the recording shows {text:?}");
    }
}

#[test]
fn cluster_shows_present_and_past_of_a_pod_without_errors() {
    let session = read(&root().join("docs/images/cluster.svg"));
    for text in [
        "$ kubectl virtlens top -A",
        "THR%",
        "$ kubectl virtlens doctor -A --since -3m",
        "held:",
        "$ kubectl virtlens incidents -A",
        Check::QuotaCapped.name(),
        "@keyframes",
    ] {
        assert!(session.contains(text), "the recording lacks {text:?}");
    }
    for text in ["no running agent", "error:", "not answered"] {
        assert!(!session.contains(text), "the recording shows {text:?}");
    }
}

#[test]
fn usage_shows_each_role_and_the_limit() {
    let usage = read(&root().join("docs/images/usage.svg"));
    let rows = ROLES.iter().map(|role| role.name()).chain(["unattributed"]);
    let labels = rows.map(|row| format!(">{row}</text>"));
    for text in labels.chain(["limit 1.25 cores".into(), "throttled".into()]) {
        assert!(usage.contains(&text), "the picture lacks {text:?}");
    }
}
