//! Kubernetes names of a pod, on a real VM in a pod's cgroup.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Source};
use virtlens_tests::reader::{self, dropped, vm};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid};

fn source(snapshot: &Snapshot) -> &Source {
    let mut sources = snapshot.sources.iter();
    sources
        .find(|source| source.name == "pods")
        .expect("names come from a file")
}

fn write(path: &Path, uid: &str, name: &str) {
    let pods = serde_json::json!({"items": [
        {"metadata": {"uid": uid, "namespace": "shop", "name": name},
         "spec": {"runtimeClassName": "kata", "overhead": {"cpu": "250m"},
                  "containers": [{"resources": {"limits": {"cpu": "1"}}}]}},
        {"metadata": {"uid": uid, "namespace": "shop", "name": "of-another-node"},
         "spec": {"nodeName": "node-b"}},
    ]});
    fs::write(path, pods.to_string()).expect("a file can be written");
}

fn until(
    collector: &mut Collector,
    what: &str,
    mut is_so: impl FnMut(&Snapshot) -> bool,
) -> Arc<Snapshot> {
    eventually(what, || {
        let snapshot = collector.collect();
        is_so(&snapshot).then_some(snapshot)
    })
}

#[test]
fn vm_has_the_name_of_its_pod() {
    const TEST: &str = "vm_has_the_name_of_its_pod";
    if !reader::ready(TEST) || !need::all(TEST, [need::cpu_cgroup()]) {
        return;
    }
    let uid = unique_pod_uid();
    let dir = tempfile::tempdir().expect("there is room for a folder");
    let file = dir.path().join("pods.json");
    write(&file, &uid, "web-0");
    let cgroup = TestCgroup::new(&cgroupfs_pod_path(&uid));
    let guest = Minivm::start_launch(Minivm::launch().args(["--start", "spin"]).cgroup(&cgroup));
    let unlisted = Minivm::start(["--start", "halt"]);
    let mut collector = Collector::open(&Options {
        names: Some(virtlens_kube::Source::File {
            path: file.clone(),
            node: "node-a".to_owned(),
        }),
        ..reader::options()
    })
    .expect("the host can be read");

    let first = collector.collect();
    let seen = vm(&first, guest.pid());
    let called = (seen.namespace.as_deref(), seen.pod.as_deref());
    assert_eq!(called, (Some("shop"), Some("web-0")));
    let spec = seen.pod_spec.as_ref().expect("it is known");
    assert_eq!(spec.quota_millis(), Some(1250));
    assert_eq!(spec.runtime_class.as_deref(), Some("kata"));
    assert_eq!(vm(&first, unlisted.pid()).pod, None, "it is in no pod");
    assert!(source(&first).up, "{:?}", source(&first));
    assert!(source(&first).age_ns.is_some());

    // A name that appears later is used from then on.
    sleep(Duration::from_millis(20));
    write(&file, &uid, "web-0-renamed");
    until(&mut collector, "the new name is known", |snapshot| {
        vm(snapshot, guest.pid()).pod.as_deref() == Some("web-0-renamed")
    });

    // A broken source removes no name and reports its error.
    fs::write(&file, "{").expect("a file can be written");
    let broken = until(&mut collector, "the broken file is reported", |snapshot| {
        !source(snapshot).up
    });
    let reason = &source(&broken).reason;
    assert!(reason.contains("pods.json"), "{reason}");
    let name = &vm(&broken, guest.pid()).pod;
    assert_eq!(name.as_deref(), Some("web-0-renamed"));
    let age_ns = source(&broken).age_ns.expect("it was there once");
    let older = until(&mut collector, "the age grows", |snapshot| {
        source(snapshot).age_ns > Some(age_ns)
    });
    assert!(dropped(&older, "pods_unread") > 0);

    // A pod that is gone from the list keeps its name while its VM exists.
    fs::write(&file, r#"{"items": []}"#).expect("a file can be written");
    let gone = until(&mut collector, "the file is read again", |snapshot| {
        source(snapshot).up
    });
    let name = &vm(&gone, guest.pid()).pod;
    assert_eq!(name.as_deref(), Some("web-0-renamed"));
}
