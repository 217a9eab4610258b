//! A trace of a real pod at its limit, compared with the kernel's counters.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::perfetto::{Slice, Trace, assert_seamless, took_ns};
use virtlens_tests::{binary, eventually};
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, CAPPED_US, Reader, burned, millis};

const FILE: &str = "/tmp/pod.pftrace";

/// Upper bound of the time for the choice of the next thread, in percent of the CPU time, on
/// an emulated machine beside other machines. A trace counts it for the thread before, the
/// kernel does not: it updates the CPU time first (`__schedule`, kernel/sched/core.c).
const CHOICE_PERCENT: u32 = 3;

/// Starts a trace of the VM of a process and waits until it has begun.
pub(crate) fn start(pid: u32) -> Child {
    let _ = std::fs::remove_file(FILE);
    let child = Command::new(binary("virtlens"))
        .arg("trace")
        .arg(pid.to_string())
        .args(["--for", "2m", "--output", FILE])
        .stdout(Stdio::piped())
        .spawn();
    let child = child.expect("virtlens starts");
    eventually("the trace to begin", || {
        let file = std::fs::metadata(FILE).ok()?;
        (file.len() > 4096).then_some(())
    });
    child
}

/// Stops a trace and returns its summary.
pub(crate) fn stop(child: Child) -> String {
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is our child");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Exits of a pod's vCPUs as counted by KVM.
fn exits(snapshot: &Snapshot, pod: &Pod) -> u64 {
    let vcpus = pods::vm(snapshot, pod).vcpus.iter();
    let counts = vcpus.filter_map(|vcpu| vcpu.kvm.exits());
    counts.flat_map(|exits| exits.0).sum()
}

/// Number of exits among the guest slices of a vCPU, and how many of them were for an
/// interrupt of the host.
fn count(slices: &[&Slice], has_reasons: bool) -> (u64, u64) {
    let named = |slice: &&&Slice| match &*slice.name {
        "guest" | "halt polling" => false,
        name => (name != "exit") == has_reasons,
    };
    let exits = slices.iter().filter(named);
    let interrupts = exits.clone().filter(|slice| slice.name == "INTR");
    (exits.count() as u64, interrupts.count() as u64)
}

/// The kernel's count and the share of it that the trace recorded, from the summary.
fn compared(summary: &str, what: &str) -> (u64, f64) {
    let line = summary
        .lines()
        .find_map(|line| line.trim().strip_prefix(what));
    let (reported, counted) = line
        .and_then(|line| line.trim().split_once(" of "))
        .unwrap_or_else(|| panic!("nothing of {what} in {summary}"));
    let number = |text: &str| {
        text.split(' ')
            .next()
            .and_then(|text| text.parse::<f64>().ok())
    };
    let (reported, counted) = (number(reported), number(counted));
    let (reported, counted) = reported.zip(counted).expect("numbers");
    // Both times are in seconds.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    (counted as u64, reported / counted)
}

#[test]
fn trace_agrees_with_kernel_counters() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let tids: Vec<(u32, i32)> = pod
        .vcpu_tids
        .iter()
        .map(|tid| (pod.vmm_pid, tid.cast_signed()))
        .collect();
    let untraced = pods::times(&tids);
    let child = start(pod.vmm_pid);
    let before = reader.at_rest(&tids);
    reader.scenario.start("cpu").expect("the load starts");
    reader.with_quota(&pod, CAPPED_US, |_| sleep(Duration::from_secs(3)));
    reader.scenario.stop("cpu").expect("the load stops");
    let after = reader.at_rest(&tids);
    let summary = stop(child);
    let most = burned(&untraced, &pods::times(&tids));
    println!("{summary}");
    assert!(summary.contains(", 0 lost"), "{summary}");

    // KVM is a module of these kernels, and aya does not read module types. The oldest
    // kernel reports the reason without them.
    let is_aya = std::env::var("VIRTLENS_LOADER").is_ok_and(|name| name == "aya");
    let has_reasons = !is_aya || reader.scenario.kernel == "debian-5.10";
    let is_reported = summary.contains("not available: exit reasons of vCPUs");
    assert_eq!(is_reported, !has_reasons, "{summary}");

    let trace = Trace::decode(Path::new(FILE));
    let truth = burned(&before.truth, &after.truth);
    let counted = exits(&after.snapshot, &pod) - exits(&before.snapshot, &pod);
    let (mut running, mut guest, mut reported, mut interrupts) = (0, 0, 0, 0);
    for tid in &pod.vcpu_tids {
        let (thread, kvm) = (trace.of_thread(*tid), trace.of_guest(*tid));
        assert_seamless(&thread);
        assert_seamless(&kvm);
        assert_eq!(took_ns(&thread, "unknown"), 0, "nothing was lost");
        assert!(took_ns(&thread, "throttled") > 0, "it was held back");
        running += took_ns(&thread, "running");
        guest += took_ns(&kvm, "guest");
        let (all, of_host) = count(&kvm, has_reasons);
        reported += all;
        interrupts += of_host;
    }
    // The trace includes the idle guest before and after the load.
    println!(
        "CPU time: burned {} to {} ms, reported {} ms",
        millis(truth),
        millis(most),
        millis(running)
    );
    println!("exits: counted {counted}, reported {reported}, of them {interrupts} interrupts");
    let possible = truth - truth / 100..=most + most * u64::from(CHOICE_PERCENT) / 100;
    assert!(
        possible.contains(&running),
        "CPU time: reported {running} ns of {possible:?} ns"
    );
    assert!(guest > truth / 4 && guest < running, "{guest} ns in guests");
    let share = compared(&summary, "CPU time ").1;
    let possible = 0.99..=1.0 + f64::from(CHOICE_PERCENT) / 100.0;
    assert!(
        possible.contains(&share),
        "{share} of the CPU time is reported"
    );
    let (all_counted, share) = compared(&summary, "exits ");
    if reader.scenario.kernel == "debian-5.10" {
        // There KVM counts up to one exit more per interrupt of the host; ftrace sees as
        // few guest entries and exits as this trace.
        let more = all_counted.checked_sub(reported).expect("it counts all");
        let most = interrupts + all_counted / 50;
        assert!(
            more <= most,
            "{all_counted} counted, {reported} reported, {interrupts} interrupts"
        );
    } else {
        // Without reasons, the slice in which the trace found a vCPU looks like the
        // others.
        let found_in = if has_reasons { 0 } else { tids.len() as u64 };
        let all = all_counted..=all_counted + found_in;
        assert!(
            all.contains(&reported),
            "{reported} of {all:?} exits are in the file"
        );
        assert!((share - 1.0).abs() < f64::EPSILON, "and in the summary");
        assert!(
            counted <= reported,
            "{counted} counted, {reported} reported"
        );
        assert!(
            (reported - counted) * 10 <= reported,
            "{counted} counted, {reported} reported"
        );
    }

    let wall = pods::throttled_wall_ns(&after.snapshot, &pod)
        - pods::throttled_wall_ns(&before.snapshot, &pod);
    let quota = trace.on(|track| track.name.starts_with("quota pod"));
    let quota = took_ns(&quota, "throttled");
    println!(
        "throttled: reported {} ms, wall {} ms",
        millis(quota),
        millis(wall)
    );
    assert!(quota >= wall - wall / 20, "throttled {quota} of {wall} ns");
    let of_quota = |track: u64| {
        let name = &trace.tracks[&track].name;
        name.starts_with("quota pod") && name.ends_with(" used")
    };
    let counts = trace.counts.iter().filter(|one| of_quota(one.0));
    let most = counts.map(|one| one.2).fold(0.0, f64::max);
    println!("{most:.2} cores used at most");
    assert!(most > 0.5, "{most} cores of the limit are used");
}
