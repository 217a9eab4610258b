//! The pod of the chart as a container: its security context, mounts and arguments.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The chart's objects with default values; another test checks this file.
const RENDERED: &str = include_str!("../../deploy/chart/tests/golden/default.yaml");
const BPFFS: &str = "/sys/fs/bpf";

/// The pod of the chart's `DaemonSet`.
pub(crate) fn pod() -> Value {
    let documents = RENDERED.split("---\n").skip(1);
    let parsed = documents.map(|one| serde_norway::from_str::<Value>(one).expect("YAML"));
    let mut all = parsed.filter(|one| one["kind"] == "DaemonSet");
    all.next().expect("there is one")["spec"]["template"]["spec"].clone()
}

/// Capabilities that the pod adds.
pub(crate) fn added(pod: &Value) -> &Value {
    &pod["containers"][0]["securityContext"]["capabilities"]["add"]
}

pub(crate) fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().expect("a list").iter();
    let prefixed = names.map(|name| format!("CAP_{}", name.as_str().expect("a name")));
    prefixed.collect()
}

/// Changes containerd's spec according to the pod, as a kubelet requests over CRI.
pub(crate) fn apply(pod: &Value, spec: &mut Value, (rootfs, bpffs): (&Path, &str), port: u16) {
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let set = names(&security["capabilities"]["add"]);
    let process = &mut spec["process"];
    process["capabilities"] = json!({"bounding": set, "effective": set, "permitted": set});
    process["noNewPrivileges"] = json!(security["allowPrivilegeEscalation"] == false);
    process["user"] = json!({"uid": security["runAsUser"], "gid": security["runAsGroup"]});
    assert_eq!(
        process["args"],
        json!(["/usr/bin/virtlens", "run"]),
        "the image's own"
    );
    assert_eq!(container["args"], json!(["run"]), "the pod's are those");
    let args = process["args"].as_array_mut().expect("a list");
    args.extend([json!("--listen"), json!(format!("127.0.0.1:{port}"))]);
    args.extend([json!("--record"), json!(record())]);
    let readonly = &security["readOnlyRootFilesystem"];
    spec["root"] = json!({"path": rootfs, "readonly": readonly});
    // The host's network replaces the pod's, so that the test can connect.
    assert_eq!(pod["hostPID"], true);
    let namespaces = spec["linux"]["namespaces"].as_array_mut().expect("a list");
    namespaces.retain(|one| one["type"] != "pid" && one["type"] != "network");
    let mounts = spec["mounts"].as_array_mut().expect("a list");
    for (name, to) in empty_dirs(pod) {
        let from = rootfs.with_file_name(name);
        fs::create_dir(&from).expect("there is room for a folder");
        mounts.push(json!({
            "type": "bind", "source": from, "destination": to, "options": ["rbind", "rw"],
        }));
    }
    for (from, to, is_read_only) in host_paths(pod) {
        mounts.retain(|mount| mount["destination"] != *to);
        // A private bpffs replaces the host's, which other agents may use.
        let from = if to == BPFFS { bpffs.to_owned() } else { from };
        let options = ["rbind", if is_read_only { "ro" } else { "rw" }];
        mounts.push(json!({
            "type": "bind", "source": from, "destination": to, "options": options,
        }));
    }
}

/// Empty directories of the pod: name and target.
fn empty_dirs(pod: &Value) -> Vec<(String, String)> {
    let volumes = pod["volumes"].as_array().expect("a list").iter();
    let mounts = &pod["containers"][0]["volumeMounts"];
    let mounts = mounts.as_array().expect("a list");
    volumes
        .filter(|volume| volume["emptyDir"].is_object())
        .map(|volume| {
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]);
            let to = &mount.expect("a volume is mounted")["mountPath"];
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            (text(&volume["name"]), text(to))
        })
        .collect()
}

/// The directory of the recording in the agent's configuration.
fn record() -> String {
    let line = RENDERED.lines().map(str::trim);
    let mut line = line.filter_map(|line| line.strip_prefix("record: "));
    line.next()
        .expect("the chart records by default")
        .to_owned()
}

/// Host paths of the pod: source, target, and whether the mount is writable.
fn host_paths(pod: &Value) -> Vec<(String, String, bool)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let volumes = pod["volumes"].as_array().expect("a list").iter();
    let mounts = pod["containers"][0]["volumeMounts"]
        .as_array()
        .expect("a list");
    volumes
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| {
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]);
            let mount = mount.expect("a volume is mounted");
            let is_read_only = mount["readOnly"] == true;
            let to = text(&mount["mountPath"]);
            assert_eq!(is_read_only, to != BPFFS, "{volume}");
            (text(&volume["hostPath"]["path"]), to, is_read_only)
        })
        .collect()
}
