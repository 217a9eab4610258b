//! Four virtual CPUs on two host cores with two threads each, in the variants of a study
//! that compared `KubeVirt` with plain libvirt: without topology and without pinning;
//! pinned one to one or as a whole, without topology; and pinned with topology. CPUs 1
//! and 17, and 2 and 18, are siblings.

use super::{Guest, ONE_NODE, floating, found, judge_one, pairs, vm};
use crate::judge::placement::types::VmPlacement;
use crate::snapshot::Pairs;
use crate::vocab::MismatchKind::{SmtShared, SmtSplit};
use crate::vocab::{MismatchKind, Role};

/// All variants have the emulator on a separate CPU.
fn judged(vm: VmPlacement) -> (Pairs, u32, Vec<(MismatchKind, Vec<u32>)>) {
    let judged = judge_one(&ONE_NODE.host(), vm.helper(Role::Emulator, "5"));
    let pairs = judged.pairs.expect("host and guest are known");
    (pairs, judged.pinned_vcpus, found(&judged))
}

const ONE_EACH: Guest = Guest(4, 1, 1);
const TWO_THREADS: Guest = Guest(1, 2, 2);

#[test]
fn floating_without_topology_raises_nothing() {
    let vm = floating(ONE_NODE, "def", ONE_EACH).ran_on(&[3, 8, 11, 30]);
    assert_eq!(judged(vm), (pairs(0, 0, 0), 0, vec![]));
}

#[test]
fn pinned_without_topology_raises_smt_shared() {
    let vm = vm("pin", ONE_EACH, &["1", "17", "2", "18"]);
    let shared = vec![(SmtShared, vec![0, 1]), (SmtShared, vec![2, 3])];
    assert_eq!(judged(vm), (pairs(0, 0, 2), 4, shared));
}

#[test]
fn pinned_to_separate_cores_without_topology_raises_nothing() {
    let vm = vm("pin", ONE_EACH, &["1", "2", "3", "20"]);
    assert_eq!(judged(vm), (pairs(0, 0, 0), 4, vec![]));
}

#[test]
fn confined_without_topology_is_not_pinned() {
    let masks = ["1-2,17-18"; 4];
    // Two host cores for four guest cores: some guest cores must share.
    let vm = vm("pin_def", ONE_EACH, &masks).ran_on(&[1, 17, 2, 18]);
    assert_eq!(judged(vm), (pairs(0, 0, 0), 0, vec![]));
}

#[test]
fn siblings_pinned_to_siblings_raise_nothing() {
    let vm = vm("vtune", TWO_THREADS, &["1", "17", "2", "18"]);
    assert_eq!(judged(vm), (pairs(2, 0, 0), 4, vec![]));
}

#[test]
fn pins_in_order_of_cpu_numbers_raise_smt_mismatches() {
    let vm = vm("kubevirt", TWO_THREADS, &["1", "2", "17", "18"]);
    let wrong = vec![
        (SmtSplit, vec![0, 1]),
        (SmtSplit, vec![2, 3]),
        (SmtShared, vec![0, 2]),
        (SmtShared, vec![1, 3]),
    ];
    assert_eq!(judged(vm), (pairs(0, 2, 2), 4, wrong));
}

#[test]
fn evidence_names_vcpus_and_pcpus() {
    let wrong = vm("kubevirt", TWO_THREADS, &["1", "2", "17", "18"]);
    let judged = judge_one(&ONE_NODE.host(), wrong);
    let [split, _, shared, _] = &judged.mismatches[..] else {
        panic!("{judged:?}");
    };
    assert_eq!(split.pcpus.to_string(), "1-2");
    assert_eq!(
        split.evidence,
        "vCPUs 0 and 1 are threads of one guest core, and are pinned to pCPUs 1-2 of host cores \
         1 and 2"
    );
    assert_eq!(shared.pcpus.to_string(), "1,17");
    assert_eq!(
        shared.evidence,
        "vCPUs 0 and 2 are different cores of the guest, and are pinned to pCPUs 1,17 of one host \
         core"
    );
}
