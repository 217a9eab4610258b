//! kubeconform with the schemas that the API server publishes: its built-in kinds and its
//! CRDs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value, json};
use virtlens_tests::ApiServer;

/// File name of a kind's schema in the folder, as kubeconform's template.
const NAMES: &str = "{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json";
const KIND: &str = "x-kubernetes-group-version-kind";

/// Writes the schemas of `kinds` to a folder, each with all schemas that it references.
pub(crate) fn write(server: &ApiServer, kinds: &[&str], folder: &Path) {
    let schema = server.ask(["get", "--raw", "/openapi/v2"]);
    let mut schema: Value = serde_json::from_str(&schema).expect("JSON");
    let Value::Object(mut definitions) = schema["definitions"].take() else {
        panic!("the server lists no kinds")
    };
    definitions.values_mut().for_each(close);
    let number_or_text = json!({"oneOf": [{"type": "string"}, {"type": "integer"}]});
    let either = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
    definitions.insert(either.to_owned(), number_or_text);
    for (name, definition) in &definitions {
        for id in definition[KIND].as_array().into_iter().flatten() {
            let part = |key: &str| id[key].as_str().unwrap_or_default().to_lowercase();
            if kinds.contains(&&*part("kind")) {
                // kubeconform uses the version alone for the core group.
                let (group, version) = (part("group"), part("version"));
                let group = if group.is_empty() { &version } else { &group };
                let file = format!("{}-{group}-{version}.json", part("kind"));
                let reference = format!("#/definitions/{name}");
                let schema = json!({"$ref": reference, "definitions": definitions});
                fs::write(folder.join(file), schema.to_string()).expect("there is room");
            }
        }
    }
}

/// Forbids unknown fields in every object that names its fields.
fn close(schema: &mut Value) {
    if let Value::Object(map) = schema {
        let open = map.contains_key("x-kubernetes-preserve-unknown-fields");
        if map.get("properties").is_some_and(Value::is_object) && !open {
            map.entry("additionalProperties").or_insert(false.into());
        }
        for key in ["properties", "items", "additionalProperties"] {
            match map.get_mut(key) {
                Some(Value::Object(below)) if key == "properties" => close_all(below),
                Some(below) => close(below),
                None => {}
            }
        }
    }
}

fn close_all(schemas: &mut Map<String, Value>) {
    schemas.values_mut().for_each(close);
}

/// Runs kubeconform on these files.
pub(crate) fn kubeconform(folder: &Path, files: &[PathBuf]) -> Output {
    let mut command = Command::new("kubeconform");
    command.args(["-strict", "-summary", "-schema-location"]);
    command.arg(folder.join(NAMES)).args(files);
    command.output().expect("kubeconform can be started")
}
