//! Co-stop in a trace: exactly the time in which one vCPU of a VM ran and another waited.

use std::process::Command;
use std::time::Duration;

use virtlens_tests::perfetto::{self, Slice, Trace, took_ns};
use virtlens_tests::{binary, need, reader};

use crate::ready::taking_turns;

fn named<'s>(slices: &[&'s Slice], name: &str) -> Vec<&'s Slice> {
    let found = slices.iter().filter(|slice| slice.name.starts_with(name));
    found.copied().collect()
}

/// Time in which a slice of each list overlap, ns. The slices of a list are disjoint.
fn overlap_ns(some: &[&Slice], others: &[&Slice]) -> u64 {
    let pairs = some
        .iter()
        .flat_map(|one| others.iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| {
            let end_ns = one.to_ns.min(other.to_ns);
            end_ns.saturating_sub(one.from_ns.max(other.from_ns))
        })
        .sum()
}

/// The number before ` %` in the summary's line of co-stop.
fn co_stop_percent(summary: &str) -> f64 {
    let mut lines = summary.lines();
    let line = lines.find(|line| line.trim().starts_with("co-stop"));
    let line = line.unwrap_or_else(|| panic!("no co-stop in {summary}"));
    let share = line.split(['(', '%']).nth(1).expect("a share");
    share.trim().parse().expect("a number")
}

#[test]
fn trace_measures_co_stop_exactly() {
    let test = "trace_measures_co_stop_exactly";
    if !reader::ready(test) || !need::all(test, [perfetto::there()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let file = folder.path().join("t.pftrace");
    let guest = taking_turns();
    let mut command = Command::new(binary("virtlens"));
    command.arg("trace").arg(guest.pid().to_string());
    let output = command
        .args(["--for", "2s", "--output"])
        .arg(&file)
        .output();
    let output = output.expect("virtlens starts");
    let summary = String::from_utf8(output.stdout).expect("text");
    println!("{summary}");

    let trace = Trace::decode(&file);
    let of = |at: usize| trace.of_thread(guest.ready.vcpus[at].tid.unsigned_abs());
    let [one, other] = [of(0), of(1)];
    let co_stop_ns = overlap_ns(&named(&one, "running"), &named(&other, "runnable"))
        + overlap_ns(&named(&other, "running"), &named(&one, "runnable"));
    let wall_ns: u64 = one.iter().map(|slice| slice.to_ns - slice.from_ns).sum();
    let ran_ns = took_ns(&one, "running") + took_ns(&other, "running");
    let unknown_ns = took_ns(&one, "unknown") + took_ns(&other, "unknown");
    println!("co-stop {co_stop_ns} of {wall_ns} ns, ran {ran_ns}, unknown {unknown_ns}");
    let [co_stop, wall] = [co_stop_ns, wall_ns].map(Duration::from_nanos);
    let expected = 100.0 * co_stop.div_duration_f64(wall);
    let shown = co_stop_percent(&summary);
    assert!((shown - expected).abs() < 0.11, "{shown}, not {expected}");
    // While one runs, the other waits.
    let error_ns = unknown_ns + wall_ns / 50;
    assert!(
        co_stop_ns.abs_diff(ran_ns) <= error_ns,
        "{co_stop_ns} and {ran_ns}"
    );
}
