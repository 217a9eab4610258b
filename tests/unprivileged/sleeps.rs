//! Suites wait for conditions: each fixed sleep in a test is listed here with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use Reason::{Age, Hidden, Load, Poll, Window};

/// Why a test sleeps for a fixed time.
#[derive(Debug, Clone, Copy)]
enum Reason {
    /// Between two looks at a condition.
    Poll,
    /// The interval that is measured, or in which nothing may happen.
    Window,
    /// Part of a load or of a slow server.
    Load,
    /// The agent or the file system does not see a younger change.
    Age,
    /// No file shows the awaited state, and the test passes or retries without it.
    Hidden,
}

/// Number of sleeps of each file and reason.
const SLEEPS: &[(&str, usize, Reason)] = &[
    ("agent/tests/agent/http.rs", 1, Load),
    ("agent/tests/agent/http.rs", 1, Poll),
    ("agent/tests/agent/http.rs", 1, Window),
    ("agent/tests/agent/stopping.rs", 1, Poll),
    ("agent/tests/agent/web/certificates.rs", 1, Window),
    ("crates/kube/tests/endless.rs", 1, Poll),
    ("crates/kube/tests/kubelet.rs", 1, Window),
    ("tests/cluster/pods.rs", 1, Poll),
    ("tests/cluster/pods.rs", 1, Window),
    ("tests/draw/main.rs", 1, Window),
    ("tests/kernel/capabilities.rs", 1, Poll),
    ("tests/kernel/conservation.rs", 1, Window),
    ("tests/kernel/doctor.rs", 1, Load),
    ("tests/kernel/doctor.rs", 1, Window),
    ("tests/kernel/kata.rs", 2, Window),
    ("tests/kernel/loaders.rs", 1, Age),
    ("tests/kernel/loaders.rs", 2, Hidden),
    ("tests/kernel/loaders.rs", 1, Poll),
    ("tests/kernel/loaders.rs", 1, Window),
    ("tests/kernel/names.rs", 1, Age),
    ("tests/kernel/placement.rs", 1, Hidden),
    ("tests/kernel/prometheus.rs", 1, Load),
    ("tests/kernel/times.rs", 1, Window),
    ("tests/kernel/trace.rs", 1, Poll),
    ("tests/libvirt/agent.rs", 1, Poll),
    ("tests/libvirt/cpu.rs", 3, Window),
    ("tests/libvirt/life.rs", 2, Poll),
    ("tests/libvirt/life.rs", 4, Window),
    ("tests/libvirt/limits.rs", 7, Window),
    ("tests/libvirt/pins.rs", 2, Window),
    ("tests/memory/cycle.rs", 1, Poll),
    ("tests/memory/cycle.rs", 3, Window),
    ("tests/memory/guest.rs", 1, Poll),
    ("tests/pins/exec.rs", 1, Hidden),
    ("tests/pins/exec.rs", 1, Load),
    ("tests/pins/killed.rs", 3, Window),
    ("tests/pins/starved.rs", 1, Window),
    ("tests/placement/guests.rs", 1, Poll),
    ("tests/placement/residency.rs", 1, Hidden),
    ("tests/record/main.rs", 1, Window),
    ("tests/record/usage.rs", 1, Poll),
    ("tests/record/usage.rs", 1, Window),
    ("tests/scenario/cost.rs", 1, Window),
    ("tests/scenario/doctor.rs", 1, Hidden),
    ("tests/scenario/doctor.rs", 1, Window),
    ("tests/scenario/main.rs", 2, Window),
    ("tests/scenario/pods.rs", 1, Hidden),
    ("tests/scenario/pods.rs", 1, Poll),
    ("tests/scenario/pressure.rs", 1, Window),
    ("tests/scenario/realtime.rs", 1, Window),
    ("tests/scenario/series.rs", 1, Load),
    ("tests/scenario/shapes/bench.rs", 1, Hidden),
    ("tests/scenario/shapes/bench.rs", 1, Poll),
    ("tests/scenario/shapes/bench.rs", 1, Window),
    ("tests/scenario/throttle.rs", 1, Window),
    ("tests/scenario/trace.rs", 1, Window),
    ("tests/scenario/vhost.rs", 1, Window),
    ("tests/soak/hour.rs", 2, Window),
    ("tests/soak/kills.rs", 2, Load),
    ("tests/soak/many_threads.rs", 1, Poll),
    ("tests/soak/starts.rs", 2, Load),
    ("tests/soak/starts.rs", 1, Poll),
    ("tests/soak/watched.rs", 1, Age),
    ("tests/src/cgroup.rs", 1, Poll),
    ("tests/src/faulty/mod.rs", 1, Load),
    ("tests/src/lib.rs", 1, Poll),
    ("tests/src/mixin.rs", 1, Poll),
    ("tests/ui/browser.rs", 1, Poll),
    ("tests/ui/cost.rs", 1, Window),
    ("tests/ui/misplaced.rs", 1, Load),
];

/// Folders with tests, beside those of each crate, and parts of them that are programs.
const FOLDERS: [&str; 2] = ["tests", "agent/tests"];
const PROGRAMS: [&str; 3] = ["tests/minivm/src", "tests/vm/src", "tests/unprivileged"];

fn count(root: &Path, folder: &str, found: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(root.join(folder)).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name();
        let path = format!("{folder}/{}", name.to_str().expect("UTF-8"));
        if entry.path().is_dir() {
            if !PROGRAMS.contains(&&*path) {
                count(root, &path, found);
            }
        } else if entry.path().extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(entry.path()).expect("it can be read");
            let sleeps = text.matches("sleep(").count();
            if sleeps > 0 {
                found.insert(path, sleeps);
            }
        }
    }
}

#[test]
fn every_fixed_sleep_of_a_test_is_listed_with_its_reason() {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        count(root, folder, &mut found);
    }
    for krate in fs::read_dir(root.join("crates")).expect("it is there") {
        let name = krate.expect("it can be read").file_name();
        let folder = format!("crates/{}/tests", name.to_str().expect("UTF-8"));
        if root.join(&folder).is_dir() {
            count(root, &folder, &mut found);
        }
    }
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for (file, sleeps, _) in SLEEPS {
        *listed.entry((*file).to_owned()).or_default() += sleeps;
    }
    assert_eq!(
        found, listed,
        "wait for the condition with `eventually`, or list the sleep in SLEEPS"
    );
}
