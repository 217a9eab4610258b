//! A thread exits while the exit program is not attached.

use std::fs;

use virtlens_tests::reader::{self, MS, dropped, vm};
use virtlens_tests::root::Root;
use virtlens_tests::{Minivm, eventually};

use crate::pinned;

const REASON: &str = "ended_vcpus_missed";

/// The thread's CPU time is counted when it is freed. KVM's counters of it may be gone by
/// then, and that loss is counted.
#[test]
fn vcpu_with_missed_end_is_reported_and_counted() {
    if !reader::ready("vcpu_with_missed_end_is_reported_and_counted") {
        return;
    }
    let root = Root::with_bpffs();
    let mut guest = Minivm::start(["--vcpus", "2", "--name", "missed"]);
    let mut collector = pinned(&root);
    // Since its thread is known as that of the vCPU.
    let first = eventually("the vCPU to be seen", || {
        let snapshot = collector.collect();
        let mut vcpus = vm(&snapshot, guest.pid()).vcpus.iter();
        let is_seen = vcpus.any(|one| one.id == 1 && one.kvm.exits().is_some());
        is_seen.then_some(snapshot)
    });
    drop(collector);

    // Simulates a kernel that rejects this program; the others still count.
    let links = fs::read_dir(root.pins().join("links")).expect("it is there");
    let mut links = links.map(|link| link.expect("it can be read"));
    let on_exit = links.find(|link| link.file_name().to_string_lossy().starts_with("on_exit-"));
    fs::remove_file(on_exit.expect("it is pinned").path()).expect("it is detached");
    guest.burn_vcpus("1", 53);
    let used_ns = guest.unplug(1);
    let mut collector = pinned(&root);
    eventually("the kernel frees the thread", || {
        (dropped(&collector.collect(), REASON) > 0).then_some(())
    });
    // That reading may have read the ended threads before the kernel freed this one.
    let last = collector.collect();

    assert_eq!((dropped(&first, REASON), dropped(&last, REASON)), (0, 1));
    let mut vcpus = vm(&last, guest.pid()).vcpus.iter();
    let ended = vcpus.find(|one| one.id == 1).expect("its time stays");
    assert_eq!(ended.tid, None, "it has ended");
    // Plus the CPU time of its exit.
    let reported = used_ns..used_ns + 20 * MS;
    assert!(
        reported.contains(&ended.cpu_ns),
        "{} in {reported:?}",
        ended.cpu_ns
    );
}
