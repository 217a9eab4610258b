//! Handover between agents with different loaders.

use virtlens_probe::loader::Loader;
use virtlens_tests::reader::{self, MS, all_ns, assert_close, dropped, vm};
use virtlens_tests::root::Root;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::pinned_by;

/// From one loader to the other and back, while threads start and end that no agent sees.
#[test]
fn pins_of_one_loader_are_adopted_by_the_other() {
    let test = "pins_of_one_loader_are_adopted_by_the_other";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let [one, other] = Loader::ALL else {
        panic!("this build has both loaders: {:?}", Loader::ALL);
    };
    for first in [[one, other, one], [other, one, other]] {
        let root = Root::with_bpffs();
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let launch = Minivm::launch().args(["--vcpus", "2", "--name", "handed-on"]);
        let mut guest = Minivm::start_launch(launch.cgroup(&pod));
        let mut seen = None;
        for loader in first {
            let mut collector = pinned_by(&root, *loader);
            let mut snapshot = collector.collect();
            // A new VM shows its vCPUs in the second reading.
            if seen.is_none() {
                snapshot = collector.collect();
            }
            assert_eq!(dropped(&snapshot, "map_layout"), 0, "{loader}");
            let reported_ns = all_ns(vm(&snapshot, guest.pid()));
            let used_ns = pod.usage_ns();
            if let Some((reported_before_ns, used_before_ns)) = seen {
                let reported: u64 = reported_ns - reported_before_ns;
                let used: u64 = used_ns - used_before_ns;
                assert!(used > 40 * MS, "it worked meanwhile: {used} ns");
                assert_close(loader.name(), reported, used, (used / 200).max(20 * MS));
            }
            seen = Some((reported_ns, used_ns));
            drop(collector);
            // Four threads of 20 ms each that no agent sees.
            guest.spawn(4, 20, "unseen");
        }
    }
}
