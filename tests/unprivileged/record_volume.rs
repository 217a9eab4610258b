//! The volume of the chart for the recording, and without one for traces.

use std::path::Path;

use serde_json::Value;
use virtlens::config::Settings;
use virtlens_tests::need;

use crate::chart::{parse, render};

/// Of the chart with this value: the agent's settings, its pod, the mount and the volume for the
/// recording, and the volumes that `OpenShift` allows.
struct Rendered {
    settings: Settings,
    pod: Value,
    mount: Option<Value>,
    volume: Option<Value>,
    allowed: Vec<String>,
}

/// The entry of a list with this name.
fn named(list: &Value, name: &str) -> Option<Value> {
    let mut list = list.as_array().into_iter().flatten();
    list.find(|one| one["name"] == name).cloned()
}

/// The size of an emptyDir, MiB.
fn limit_mib(volume: &Value) -> u64 {
    let limit = volume["emptyDir"]["sizeLimit"].as_str().expect("a size");
    let mib = limit.strip_suffix("Mi").and_then(|mib| mib.parse().ok());
    mib.expect("MiB")
}

fn rendered(set: &str) -> Rendered {
    let documents = render(&["--set", "openshift.scc.create=true", "--set", set]);
    let of = |kind: &str| {
        let parsed = documents.iter().map(|(_, body)| parse(body));
        let mut of_kind = parsed.filter(|document| document["kind"] == kind);
        of_kind.next().unwrap_or_else(|| panic!("no {kind}"))
    };
    let config = of("ConfigMap");
    let text = config["data"]["virtlens.yaml"].as_str().expect("a text");
    let pod = of("DaemonSet")["spec"]["template"]["spec"].take();
    let allowed = of("SecurityContextConstraints")["volumes"].take();
    Rendered {
        settings: Settings::from_yaml(text).expect("valid settings"),
        mount: named(&pod["containers"][0]["volumeMounts"], "record"),
        volume: named(&pod["volumes"], "record"),
        pod,
        allowed: serde_json::from_value(allowed).expect("a list of names"),
    }
}

#[test]
fn empty_dir_of_the_recording_has_room_for_it() {
    if !need::all("empty_dir_of_the_recording_has_room_for_it", [need::helm()]) {
        return;
    }
    for (set, mib, incidents_mib) in [
        ("record.enabled=true", 256, 64),
        ("record.maxMiB=16", 16, 64),
        ("record.incidentsMaxMiB=500", 256, 500),
    ] {
        let chart = rendered(set);
        assert_eq!(chart.settings.record_max_mib, Some(mib), "{set}");
        assert_eq!(
            chart.settings.incidents_max_mib,
            Some(incidents_mib),
            "{set}"
        );
        let folder = chart.settings.record.expect("it records");
        let mount = chart.mount.expect("it is mounted");
        let mounted = mount["mountPath"].as_str().expect("a path");
        // Kubelet creates an emptyDir that everybody may read, the agent the directory in it.
        assert!(folder.starts_with(mounted) && folder != *mounted, "{mount}");
        assert!(mount["readOnly"].is_null(), "{mount}");
        let volume = chart.volume.expect("it is there");
        let limit = limit_mib(&volume);
        // A segment is at most an eighth longer than the limit of all.
        let least = mib + mib / 8 + 8 + incidents_mib;
        assert!(limit >= least, "{set}: {limit} MiB");
        assert!(chart.allowed.contains(&"emptyDir".to_owned()), "{set}");
    }
}

#[test]
fn recording_on_the_node_needs_no_empty_dir() {
    if !need::all("recording_on_the_node_needs_no_empty_dir", [need::helm()]) {
        return;
    }
    let chart = rendered("record.hostPath=/var/lib/virtlens");
    let volume = chart.volume.expect("it is there");
    assert_eq!(volume["hostPath"]["path"], "/var/lib/virtlens");
    assert!(!chart.allowed.contains(&"emptyDir".to_owned()));
}

#[test]
fn chart_without_a_recording_has_neither_settings_nor_volume() {
    let test = "chart_without_a_recording_has_neither_settings_nor_volume";
    if !need::all(test, [need::helm()]) {
        return;
    }
    let chart = rendered("record.enabled=false");
    let Settings {
        record,
        record_interval,
        record_max_mib,
        record_max_age,
        incidents_max_mib,
        ..
    } = chart.settings;
    assert_eq!((record, record_max_mib), (None, None));
    assert_eq!(incidents_max_mib, None);
    assert_eq!((record_interval, record_max_age), (None, None));
    assert_eq!((chart.mount, chart.volume), (None, None));
}

/// Largest trace that a client may request, MiB (`maxSize` of `POST /api/v1/trace`).
const MAX_TRACE_MIB: u64 = 64;

#[test]
fn chart_without_a_recording_has_room_for_a_trace() {
    if !need::all(
        "chart_without_a_recording_has_room_for_a_trace",
        [need::helm()],
    ) {
        return;
    }
    let chart = rendered("record.enabled=false");
    let agent = &chart.pod["containers"][0];
    let mount = named(&agent["volumeMounts"], "traces").expect("it is mounted");
    let mounted = mount["mountPath"].as_str().expect("a path");
    assert!(mount["readOnly"].is_null(), "{mount}");
    let folder = named(&agent["env"], "TMPDIR").expect("it is set");
    let folder = Path::new(folder["value"].as_str().expect("a path"));
    // Kubelet creates an emptyDir that everybody may read, the agent the directory in it.
    assert!(
        folder.starts_with(mounted) && folder != Path::new(mounted),
        "{folder:?}"
    );
    let volume = named(&chart.pod["volumes"], "traces").expect("it is there");
    assert!(limit_mib(&volume) > MAX_TRACE_MIB, "{volume}");
    assert!(chart.allowed.contains(&"emptyDir".to_owned()));
    let recording = rendered("record.enabled=true");
    let agent = &recording.pod["containers"][0];
    assert_eq!(named(&agent["env"], "TMPDIR"), None);
    assert_eq!(named(&agent["volumeMounts"], "traces"), None);
}
