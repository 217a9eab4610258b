//! The page for browsers: its generated files are current and small, and its sources keep what
//! tenants chose as text. Without npm and a browser.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{Context, SHA256};
use serde_json::Value;

/// Limit on the size of all files together, as they are sent, bytes.
const MAX_SIZE: usize = 150_000;

/// Licences of packages whose code is part of the generated files.
const LICENCES: [&str; 4] = ["Apache-2.0", "BSD-3-Clause", "ISC", "MIT"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn made() -> [Vec<u8>; 3] {
    ["index.html", "app.js", "app.css"]
        .map(|name| read(&root().join("agent/src/http/ui").join(name)))
}

/// Paths of the sources below `ui`, sorted.
fn sources() -> Vec<String> {
    let listed = fs::read_dir(root().join("ui/src")).expect("it can be read");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("text");
    let inside = listed.map(|entry| format!("src/{}", name(entry.expect("it can be read"))));
    let outside = [
        "index.html",
        "package-lock.json",
        "package.json",
        "tsconfig.json",
    ];
    let mut all: Vec<String> = inside.chain(outside.map(str::to_owned)).collect();
    all.sort();
    all
}

/// The hash that `ui/hash.mjs` prints.
fn hash() -> String {
    let mut hash = Context::new(&SHA256);
    for name in sources() {
        let content = read(&root().join("ui").join(&name));
        hash.update(format!("{name}\n{}\n", content.len()).as_bytes());
        hash.update(&content);
    }
    let digest = hash.finish();
    let half = digest.as_ref().first_chunk().expect("32 bytes");
    format!("{:032x}", u128::from_be_bytes(*half))
}

#[test]
fn made_files_are_current_with_their_sources() {
    let line = format!("Made by scripts/build-ui; sources: {} ", hash());
    for file in made() {
        let text = String::from_utf8(file).expect("text");
        let first = text.get(..30).unwrap_or_default();
        assert!(
            text.contains(&line),
            "run `make ui`: {first} is not of {line}"
        );
    }
}

#[test]
fn made_files_are_small() {
    let sizes = made().map(|file| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&file).expect("it fits in memory");
        encoder.finish().expect("it fits in memory").len()
    });
    let sum: usize = sizes.iter().sum();
    assert!(sum <= MAX_SIZE, "{sizes:?}: {sum} bytes of {MAX_SIZE}");
}

/// The policy of the page forbids inline code; the sources must not need it, nor make elements
/// of text.
#[test]
fn sources_make_no_elements_or_code_of_text() {
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "new Function",
        "setAttribute(\"style\"",
        "http://",
        "https://",
    ];
    let mut count = 0;
    for name in sources() {
        let is_source = name.starts_with("src/") || name == "index.html";
        if !is_source {
            continue;
        }
        let text = String::from_utf8(read(&root().join("ui").join(&name))).expect("text");
        // The name of a namespace is not an address that is fetched.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for word in forbidden {
            assert!(!text.contains(word), "{name} has {word}");
        }
        if name == "index.html" {
            assert!(!text.contains("style="), "{name} has an inline style");
            assert!(!text.contains("<script>"), "{name} has an inline script");
        }
        assert!(
            text.lines().count() <= 400,
            "{name} has more than 400 lines"
        );
        count += 1;
    }
    assert!(count > 10, "only {count} sources were read");
}

#[test]
fn npm_packages_of_page_have_permitted_licences_and_no_addresses() {
    for directory in ["ui", "tests/draw"] {
        let file = root().join(directory).join("package-lock.json");
        let lock: Value = serde_json::from_slice(&read(&file)).expect("JSON");
        let packages = lock["packages"].as_object().expect("an object");
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(package.get("resolved").is_none(), "{directory}: {name}");
            assert!(package["integrity"].is_string(), "{directory}: {name}");
            let is_built_in = directory == "ui" && package.get("dev").is_none();
            let licence = package["license"].as_str().unwrap_or_default();
            let is_permitted = !is_built_in || LICENCES.contains(&licence);
            assert!(
                is_permitted,
                "{directory}: {name} has the licence {licence:?}"
            );
        }
    }
}
