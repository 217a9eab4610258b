//! Four vCPUs in the layouts that a study compared, `KubeVirt` against plain libvirt:
//! placed correctly, and placed as `KubeVirt` does.

use virtlens_model::snapshot::Topology;
use virtlens_model::vocab::MismatchKind::{SmtShared, SmtSplit};
use virtlens_tests::Minivm;
use virtlens_tests::process::{set_affinity, tids};
use virtlens_tests::seats::{agent, assert_found, checks, judged, pin, pinned, topology};

/// QEMU's default topology: one package per vCPU.
const DEFAULT_SMP: &str = "sockets=4";
const GUEST_SMP: &str = "cores=2,threads=2";

/// Sibling pairs: aligned, split, shared.
fn pairs(found: &Topology) -> (u32, u32, u32) {
    let pairs = found.pairs.expect("host and guest are known");
    (pairs.aligned, pairs.split, pairs.shared)
}

/// Judged by where its vCPUs ran. Two vCPUs: more of them might fit on one node, and then
/// the scheduler decides whether to use it.
#[test]
fn default_vm_floats_without_mismatch() {
    let vm = Minivm::start(["--topology", "sockets=2", "--start", "spin"]);
    let mut agent = agent();
    assert_found(&judged(&mut agent, &vm), &[]);
    vm.wait_for_cpu(&[0, 1], 300);
    let measured = topology(&agent.collect_judged(), vm.pid());
    assert_found(&measured, &[]);
    assert_eq!(measured.pinned_vcpus, 0);
    assert_eq!(pairs(&measured), (0, 0, 0));
}

#[test]
fn vcpus_pinned_to_separate_cores_without_topology_have_no_mismatch() {
    let vm = pinned(DEFAULT_SMP, &[0, 2, 4, 6]);
    let found = judged(&mut agent(), &vm);
    assert_found(&found, &[]);
    assert_eq!((found.pinned_vcpus, pairs(&found)), (4, (0, 0, 0)));
}

/// Two cores for four cores of the guest: no pinning can improve that.
#[test]
fn confined_vm_without_topology_has_no_mismatch() {
    let mut vm = Minivm::start(["--topology", DEFAULT_SMP]);
    for tid in tids(vm.pid()) {
        set_affinity(tid, &[0, 1, 2, 3]);
    }
    let mut agent = agent();
    assert_found(&judged(&mut agent, &vm), &[]);
    vm.command("spin 0-1");
    vm.wait_for_cpu(&[0, 1], 300);
    let found = topology(&agent.collect_judged(), vm.pid());
    assert_found(&found, &[]);
    assert_eq!((found.pinned_vcpus, pairs(&found)), (0, (0, 0, 0)));
}

#[test]
fn siblings_pinned_to_siblings_have_no_mismatch() {
    let vm = pinned(GUEST_SMP, &[0, 1, 2, 3]);
    let found = judged(&mut agent(), &vm);
    assert_found(&found, &[]);
    assert_eq!((found.pinned_vcpus, pairs(&found)), (4, (2, 0, 0)));
    let guest = found.guest.expect("it has CPUID leaves");
    assert_eq!((guest.packages, guest.cores, guest.threads), (1, 2, 2));
}

#[test]
fn kubevirt_pin_order_splits_and_shares_cores() {
    let vm = pinned(GUEST_SMP, &[0, 2, 1, 3]);
    let mut agent = agent();
    let found = judged(&mut agent, &vm);
    assert_found(
        &found,
        &[
            (SmtSplit, &[0, 1], "0,2"),
            (SmtSplit, &[2, 3], "1,3"),
            (SmtShared, &[0, 2], "0-1"),
            (SmtShared, &[1, 3], "2-3"),
        ],
    );
    assert_eq!((found.pinned_vcpus, pairs(&found)), (4, (0, 2, 2)));
    assert_eq!(checks(&mut agent, &vm), ["smt_split", "smt_shared"]);
    pin(&vm, &[0, 1, 2, 3]);
    let mended = judged(&mut agent, &vm);
    assert_found(&mended, &[]);
    assert_eq!(checks(&mut agent, &vm), [] as [&str; 0]);
    assert_eq!(pairs(&mended), (2, 0, 0));
}
