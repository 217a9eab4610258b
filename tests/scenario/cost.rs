//! Cost of a trace for the traced guest. Run by hand on an idle machine: `vmtest --kernel
//! NAME --bare --exec cost=PROGRAM cost:: --ignored --show-output`.

use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use virtlens::collect::Collector;
use virtlens_tests::{Minivm, eventually, reader};

use crate::trace::{start, stop};

const PAIRS: usize = 11;

/// Length of a window. A measurement has [`WINDOWS`] windows of some thousand exits each
/// under two layers of emulation, and uses the lower quartile: an emulated CPU does not
/// know when it is descheduled, and counts that wait as its own time.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOWS: usize = 24;

/// Added cost per exit, with the cheapest exit: the vCPU exits on every second
/// instruction, and KVM only has to count it. Measured in pairs with and without a trace.
///
/// The measure is the vCPU's CPU time, because the trace's process needs a CPU as well.
#[test]
#[ignore = "a measurement of some minutes"]
fn trace_cost_per_exit_is_measured() {
    let guest = Minivm::start(["--vcpus", "1", "--start", "exit"]);
    let mut collector = Collector::open(&reader::options()).expect("the host can be read");
    eventually("the agent to find the vCPU", || {
        let snapshot = collector.collect();
        let vm = snapshot.vms.iter().find(|vm| vm.pid == guest.pid())?;
        vm.vcpus.first()?.kvm.exits()
    });
    let (mut without, mut added, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let mut ns = [0.0; 2];
        // The order alternates, as a machine may drift.
        for turn in [pair % 2, 1 - pair % 2] {
            let trace = (turn == 0).then(|| start(guest.pid()));
            ns[turn] = ns_per_exit(&mut collector, &guest);
            if let Some(trace) = trace {
                let summary = stop(trace);
                assert!(summary.contains(", 0 lost"), "{summary}");
                eventually("the programs to go", || (programs() == 0).then_some(()));
            }
        }
        println!("an exit: {:.0} ns with, {:.0} ns without", ns[0], ns[1]);
        without.push(ns[1]);
        added.push(ns[0] - ns[1]);
        ratios.push(ns[0] / ns[1]);
    }
    println!(
        "an exit: {} ns without, {} ns added, ratio {}",
        shown(without, 0),
        shown(added, 0),
        shown(ratios, 3)
    );
}

/// CPU time of the vCPU per exit, both from the kernel's counters.
fn ns_per_exit(collector: &mut Collector, guest: &Minivm) -> f64 {
    let windows = (0..WINDOWS).map(|_| ns_per_exit_now(collector, guest));
    quarters(windows.collect())[0]
}

fn ns_per_exit_now(collector: &mut Collector, guest: &Minivm) -> f64 {
    let mut read = || {
        let snapshot = collector.collect();
        let vm = reader::vm(&snapshot, guest.pid());
        let exits: u64 = vm.vcpus[0]
            .kvm
            .exits()
            .expect("they are counted")
            .0
            .iter()
            .sum();
        let tid = guest.ready.vcpus[0].tid.cast_unsigned();
        let thread = vm.threads.iter().find(|thread| thread.tid == tid);
        (thread.expect("it lives").cpu_ns, exits)
    };
    let before = read();
    sleep(WINDOW);
    let after = read();
    let exits = after.1 - before.1;
    assert!(exits > 100, "{exits} exits");
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let mean = (after.0 - before.0) as f64 / exits as f64;
    mean
}

/// Number of loaded programs that belong to a trace.
fn programs() -> usize {
    let names = ProgInfoIter::default().map(|program| program.name);
    let names = names.filter(|name| name.to_string_lossy().starts_with("trace_"));
    names.count()
}

/// The lower quartile, the median, the upper quartile.
fn quarters(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Formats the median and the quartiles around it.
fn shown(values: Vec<f64>, digits: usize) -> String {
    let [low, median, high] = quarters(values);
    format!("{median:.digits$} ({low:.digits$} … {high:.digits$})")
}
