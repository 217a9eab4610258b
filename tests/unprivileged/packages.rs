//! Sources and licences of packages, as far as cargo reports them without further tools;
//! `make deny` checks them more strictly. deny.toml is the only list of what is allowed.

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Cargo's default registry, in cargo's notation.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn toml(name: &str) -> toml::Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let text = fs::read_to_string(&file).expect("it is in the checkout");
    text.parse()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The strings of a list in a section of deny.toml.
fn listed(section: &str, list: &str) -> BTreeSet<String> {
    let rules = toml("deny.toml");
    let found = rules[section][list].as_array().expect("a list");
    let text = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    found.iter().map(text).collect()
}

/// All packages of a build with its tests, for the target of deny.toml: those of other
/// targets were never downloaded. Cargo runs offline here.
pub(crate) fn packages() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--offline", "--locked", "--format-version=1"]);
    for target in listed("graph", "targets") {
        command.args(["--filter-platform", &target]);
    }
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// The violation of a package, from cargo's metadata.
fn complaint(package: &Value, allowed: &BTreeSet<String>) -> Option<String> {
    let name = &package["name"];
    let source = package["source"].as_str();
    // A package without a source is a workspace member, which is checked below.
    if source.is_some_and(|source| source != REGISTRY) {
        return Some(format!("{name} comes from {source:?}"));
    }
    let licence = package["license"].as_str().unwrap_or_default();
    (!is_met(licence, allowed)).then(|| format!("{name} has the licence {licence:?}"))
}

/// Whether the allowed licences satisfy an SPDX expression; an invalid expression
/// is not satisfied.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // Older packages use a slash instead of OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words, allowed) == Some(true) && words.next().is_none()
}

fn any<'w>(
    words: &mut Peekable<impl Iterator<Item = &'w str>>,
    allowed: &BTreeSet<String>,
) -> Option<bool> {
    let mut is_met = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all(words, allowed)?;
    }
    Some(is_met)
}

fn all<'w>(
    words: &mut Peekable<impl Iterator<Item = &'w str>>,
    allowed: &BTreeSet<String>,
) -> Option<bool> {
    let mut is_met = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        is_met &= one(words, allowed)?;
    }
    Some(is_met)
}

fn one<'w>(
    words: &mut Peekable<impl Iterator<Item = &'w str>>,
    allowed: &BTreeSet<String>,
) -> Option<bool> {
    match words.next()? {
        "(" => {
            let is_met = any(words, allowed)?;
            words.next_if_eq(&")").map(|_| is_met)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        name if words.next_if_eq(&"WITH").is_some() => {
            Some(allowed.contains(&format!("{name} WITH {}", words.next()?)))
        }
        name => Some(allowed.contains(name)),
    }
}

#[test]
fn every_package_has_permitted_licence() {
    let allowed = listed("licenses", "allow");
    let packages = packages();
    let complaints: Vec<String> = packages
        .iter()
        .filter_map(|package| complaint(package, &allowed))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let own = packages
        .iter()
        .filter(|package| package["source"].is_null());
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let here = here.canonicalize().expect("it is there");
    for package in own {
        let manifest = package["manifest_path"].as_str().expect("a path");
        assert!(Path::new(manifest).starts_with(&here), "{manifest}");
    }
}

/// Includes packages for other targets and optional ones.
#[test]
fn every_locked_package_comes_from_the_registry() {
    let lock = toml("Cargo.lock");
    let sources = lock["package"].as_array().expect("a list").iter();
    let sources: BTreeSet<&str> = sources
        .filter_map(|one| one.get("source")?.as_str())
        .collect();
    assert_eq!(sources, BTreeSet::from([REGISTRY]));
}

#[test]
fn package_of_unknown_source_or_licence_is_found() {
    let allowed = listed("licenses", "allow");
    let found = |source: Value, license: Value| {
        let package = json!({ "name": "x", "source": source, "license": license });
        complaint(&package, &allowed)
    };
    assert_eq!(found(json!(REGISTRY), json!("MIT")), None);
    assert_eq!(found(Value::Null, json!("Apache-2.0")), None);
    for source in [
        "git+https://example.org/x?rev=1#1",
        "registry+https://example.org/index",
        "sparse+https://example.org/index/",
    ] {
        let said = found(json!(source), json!("MIT")).expect("a complaint");
        assert!(said.contains(source), "{said}");
    }
    for license in [
        json!("AGPL-3.0-only"),
        json!("MIT AND SSPL-1.0"),
        Value::Null,
    ] {
        assert!(
            found(json!(REGISTRY), license.clone()).is_some(),
            "{license}"
        );
    }
}

#[test]
fn spdx_expressions_are_evaluated() {
    let allowed = BTreeSet::from(["MIT", "ISC", "A WITH E"].map(str::to_owned));
    for met in [
        "MIT",
        "GPL OR MIT",
        "GPL/MIT",
        "MIT AND ISC",
        "GPL AND BSD OR MIT",
        "(MIT OR GPL) AND ISC",
        "A WITH E",
        "((MIT))",
    ] {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in [
        "",
        "GPL",
        "MIT AND GPL",
        "(MIT OR ISC) AND GPL",
        "A",
        "MIT WITH E",
        "MIT ISC",
        "MIT OR",
        "OR MIT",
        "(MIT",
        "MIT)",
        "A WITH",
    ] {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

/// Names of all packages that a build of the agent with one loader links or runs.
fn linked_with(loader: &str) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "tree",
        "--package=virtlens",
        "--no-default-features",
        "--features",
        loader,
    ]);
    command.args(["--edges=normal,build", "--prefix=none", "--format={p}"]);
    command.args(["--offline", "--locked"]);
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn agent_with_one_loader_does_not_link_the_other() {
    let libbpf = linked_with("libbpf");
    assert!(libbpf.contains("libbpf-sys") && !libbpf.contains("aya"));
    let aya = linked_with("aya");
    assert!(aya.contains("aya") && aya.contains("virtlens-probe"));
    let of_c = ["libbpf-rs", "libbpf-sys", "libelf-sys", "libz-sys"];
    let linked: Vec<_> = aya
        .iter()
        .filter(|name| of_c.contains(&name.as_str()))
        .collect();
    assert!(linked.is_empty(), "{linked:?}");
}
