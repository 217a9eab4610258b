//! The agent accepts all configuration examples in the docs, and the chart's
//! configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use virtlens::config::Settings;

use crate::chart::{deploy, parse};
use virtlens_tests::pages::{Page, pages};

/// Panics if the agent would reject these documents: its configuration file, and
/// variables in its environment.
pub(crate) fn assert_agent_accepts<'d>(what: &str, documents: impl IntoIterator<Item = &'d str>) {
    for document in documents {
        let document = parse(document);
        if let Some(text) = document["data"]["virtlens.yaml"].as_str() {
            assert_config(what, text);
        }
        let containers = &document["spec"]["template"]["spec"]["containers"];
        for container in containers.as_array().into_iter().flatten() {
            for entry in container["env"].as_array().into_iter().flatten() {
                let value = entry["value"].as_str().unwrap_or_default();
                assert_variable(what, entry["name"].as_str().expect("a name"), value);
            }
        }
    }
}

fn assert_config(what: &str, text: &str) -> Settings {
    let settings = Settings::from_yaml(text);
    let settings = settings.unwrap_or_else(|error| panic!("{what}: {error}:\n{text}"));
    assert_ne!(settings, Settings::default(), "{what} sets something");
    settings
}

/// `VIRTLENS_CONFIG` names the file, which is read before the other settings.
fn assert_variable(what: &str, name: &str, value: &str) {
    if !name.starts_with("VIRTLENS_") || name == "VIRTLENS_CONFIG" || value.is_empty() {
        return;
    }
    let settings = Settings::from_env(|one| (one == name).then(|| value.to_owned()));
    let settings = settings.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_ne!(
        settings,
        Settings::default(),
        "{what}: {name} is no setting"
    );
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn in_folder(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|one| one == extension))
        .collect();
    paths.sort();
    paths
}

#[test]
fn rendered_config_map_of_every_values_file_is_accepted_by_the_agent() {
    let mut files = in_folder(&deploy("chart/tests/golden"), "yaml");
    files.push(deploy("manifests/virtlens.yaml"));
    let mut configs = 0;
    for file in files {
        let text = read(&file);
        configs += text.matches("\n  virtlens.yaml: |").count();
        assert_agent_accepts(&file.display().to_string(), text.split("\n---\n"));
    }
    assert!(configs >= 6, "{configs}");
}

/// The comment below `config: {}` in the chart's values.
#[test]
fn example_in_values_of_the_chart_is_accepted_by_the_agent() {
    let values = read(&deploy("chart/virtlens/values.yaml"));
    let (_, below) = values.split_once("\nconfig: {}\n").expect("the value");
    let lines = below.lines().map_while(|line| line.strip_prefix("#  "));
    let example = lines.collect::<Vec<_>>().join("\n");
    let settings = assert_config("values.yaml", &example);
    assert!(settings.thresholds.is_some(), "{example}");
}

/// Checks code blocks that begin with a key of the configuration file, and variables.
#[test]
fn every_docs_example_is_accepted_by_agent() {
    let keys: BTreeSet<String> = agent_keys("0: 1\n");
    let (mut files, mut variables) = (0, 0);
    let others = [
        "deploy/systemd/virtlens.service",
        "deploy/chart/virtlens/values.yaml",
    ];
    for page in pages().into_iter().chain(others.map(Page::read)) {
        let (name, text) = (page.name(), &page.text);
        for block in page.blocks() {
            let key = block.text.split(':').next().unwrap_or_default().trim();
            if block.language == "yaml" && keys.contains(key) {
                assert_config(&name, &block.text);
                files += 1;
            }
        }
        let is_of_variable = |char: char| char.is_ascii_uppercase() || char == '_';
        for (at, _) in text.match_indices("VIRTLENS_") {
            let rest = &text[at..];
            let end = rest
                .find(|char| !is_of_variable(char))
                .unwrap_or(rest.len());
            if let Some(value) = rest[end..].strip_prefix('=') {
                let value = value.split(|char: char| " \n`)".contains(char)).next();
                let value = value.unwrap_or_default().trim_end_matches(['.', ',']);
                assert_variable(&name, &rest[..end], value);
                variables += 1;
            }
        }
    }
    assert!(files > 0 && variables > 0, "{files} {variables}");
}

/// Helm rejects the same keys as the agent, so a wrong key fails the installation instead
/// of each agent.
#[test]
fn chart_schema_has_the_keys_of_agent_config() {
    let schema: Value = serde_json::from_str(&read(&deploy("chart/virtlens/values.schema.json")))
        .expect("a schema");
    let config = &schema["properties"]["config"];
    let thresholds = &config["properties"]["thresholds"];
    let keys = |schema: &Value| {
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        let properties: BTreeMap<String, Value> =
            serde_json::from_value(schema["properties"].clone()).expect("properties");
        properties.into_keys().collect::<BTreeSet<String>>()
    };
    assert_eq!(keys(config), agent_keys("0: 1\n"));
    assert_eq!(keys(thresholds), agent_keys("thresholds: {0: 1}\n"));
}

/// The keys that the agent suggests for an unknown key.
fn agent_keys(text: &str) -> BTreeSet<String> {
    let error = Settings::from_yaml(text).expect_err("no such key");
    let (_, known) = error.split_once("; known ").expect("all known keys");
    let (_, known) = known.split_once(": ").expect("a list");
    let known = known.split(" at line").next().unwrap_or_default();
    known.split(", ").map(str::to_owned).collect()
}
