//! vCPUs in another scheduling class under a CPU limit.

use std::thread::sleep;
use std::time::Duration;

use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::{Role, SchedClass, Scope};
use virtlens_tests::process::set_fifo;
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, Reader, burned, millis, times};

/// CPU time of vCPUs that counts towards the pod's limit, ns.
fn used_ns(snapshot: &Snapshot, pod: &Pod) -> u64 {
    let levels = &pods::vm(snapshot, pod).quota;
    let level = levels.iter().find(|one| one.scope == Scope::Pod);
    let used = level.and_then(|level| level.used_ns.get(&Role::Vcpu));
    *used.expect("vCPUs are under the pod's limit")
}

fn class(snapshot: &Snapshot, pod: &Pod, tid: u32) -> Option<SchedClass> {
    let threads = &pods::vm(snapshot, pod).threads;
    let thread = threads.iter().find(|thread| thread.tid == tid);
    thread.expect("it lives").sched_class
}

/// The kernel charges no quota for the time of a real-time thread.
#[test]
fn time_of_realtime_vcpu_is_not_reported_as_quota_used() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let all: Vec<(u32, i32)> = pod
        .vcpu_tids
        .iter()
        .map(|tid| (pod.vmm_pid, tid.cast_signed()))
        .collect();
    let (fifo, fair) = (all[0], &all[1..]);
    let fifo_tid = pod.vcpu_tids[0];
    set_fifo(fifo.1, true);
    let first = reader.at_rest(&all);
    assert_eq!(
        class(&first.snapshot, &pod, fifo_tid),
        Some(SchedClass::Realtime)
    );
    assert_eq!(
        class(&first.snapshot, &pod, pod.vcpu_tids[1]),
        Some(SchedClass::Fair)
    );
    let (low_fifo, low_fair) = (times(&[fifo]), times(fair));
    reader.scenario.start("cpu").expect("the load starts");
    reader.with_quota(&pod, 30_000, |_| sleep(Duration::from_secs(3)));
    reader.scenario.stop("cpu").expect("the load stops");
    let last = reader.at_rest(&all);
    let (high_fifo, high_fair) = (times(&[fifo]), times(fair));
    let used = used_ns(&last.snapshot, &pod) - used_ns(&first.snapshot, &pod);
    let (by_fifo, by_fair) = (burned(&low_fifo, &high_fifo), burned(&low_fair, &high_fair));
    println!(
        "quota used {} ms, fair vCPUs {} ms, real-time vCPU {} ms",
        millis(used),
        millis(by_fair),
        millis(by_fifo)
    );
    assert!(by_fifo > 1_000_000_000, "the limit stops it: {by_fifo} ns");
    // The reading is between the two of the truth, in which the threads use little.
    assert!(used.abs_diff(by_fair) < 2_000_000, "{used}, {by_fair}");

    // Back in the fair class only later time counts.
    set_fifo(fifo.1, false);
    let back = reader.at_rest(&all);
    assert_eq!(
        class(&back.snapshot, &pod, fifo_tid),
        Some(SchedClass::Fair)
    );
    let since = used_ns(&back.snapshot, &pod) - used_ns(&last.snapshot, &pod);
    // `last` was read before the times of `high`, in which the threads use little.
    let by_all = burned(&high_fifo, &times(&[fifo])) + burned(&high_fair, &times(fair));
    assert!(since < by_all + 2_000_000, "{since}, {by_all}");
    assert!(by_all < by_fifo / 10, "the load has ended: {by_all} ns");
}
