//! Cost for a balloon that the agent follows it. Run by hand on an idle machine: `vmtest
//! --kernel NAME --exec cost=PROGRAM --ignored --nocapture`.

use std::time::{Duration, Instant};

use virtlens_tests::Minivm;
use virtlens_tests::process::Schedstat;

use crate::Agent;
use crate::guest::{Guest, Ram};

const PAIRS: usize = 12;

/// Pages that are given back at once, and repetitions per measurement.
const PAGES: u32 = 32768;
const TIMES: usize = 9;

const PAGES_OF_A_GIB: f64 = 262_144.0;

/// Inflating a balloon by 1 GiB costs at most 3 % more with the programs.
///
/// A guest's own inflates vary by a tenth under two layers of emulation. So an inflate is
/// timed without the programs, and the cost of the programs is measured separately: a
/// process with a VM gives back as many pages, in pairs with and without them. The
/// process is named like QEMU, so that the agent knows it to have no reports.
#[test]
#[ignore = "a measurement of some minutes"]
fn inflating_one_gib_with_agent_costs_little() {
    let inflate_secs = inflate_secs();
    let args = ["--vcpus", "1", "--start", "halt", "--mem", "128M"];
    let mut vm = Minivm::start_launch(Minivm::launch().arg0("qemu-system-x86_64").args(args));
    let mut added: Vec<f64> = (0..PAIRS)
        .map(|pair| {
            let mut secs = [0.0; 2];
            // The order alternates, as a machine may drift.
            for turn in [pair % 2, 1 - pair % 2] {
                let agent = (turn == 0).then(|| {
                    let mut agent = Agent::new();
                    agent.find(vm.pid());
                    agent
                });
                secs[turn] = give_back_secs(&mut vm);
                drop(agent);
            }
            let [with, without] = secs;
            println!("a GiB by pages: {with:.2} s with, {without:.2} s without");
            with - without
        })
        .collect();
    added.sort_by(f64::total_cmp);
    let median = f64::midpoint(added[PAIRS / 2 - 1], added[PAIRS / 2]);
    let part = median / inflate_secs;
    println!(
        "added {median:.2} s ({added:.2?}) to a GiB inflated in {inflate_secs:.1} s: {:.1} %",
        part * 100.0
    );
    assert!(part <= 0.03, "{:.1} % longer", part * 100.0);
}

/// CPU time of the VMM, which has no other work, to give back 1 GiB page by page: the
/// median of some smaller pieces. CPU time excludes other load of the machine.
fn give_back_secs(vm: &mut Minivm) -> f64 {
    let took = std::array::from_fn::<f64, TIMES, _>(|_| {
        vm.command("touch 0 128M");
        let began = Schedstat::sum(vm.pid());
        vm.command(&format!("madvise dontneed 0 4096 {PAGES}"));
        let used_ns = Schedstat::sum(vm.pid()).cpu_ns - began.cpu_ns;
        Duration::from_nanos(used_ns).as_secs_f64()
    });
    println!("pieces {took:.3?}");
    median(took.to_vec()) * PAGES_OF_A_GIB / f64::from(PAGES)
}

/// Seconds that a guest takes to inflate by 1 GiB: the median of some smaller inflates.
fn inflate_secs() -> f64 {
    const RAM_MIB: u32 = 384;
    const TAKEN_MIB: u32 = 128;
    let left_mib = u64::from(RAM_MIB - TAKEN_MIB);
    let mut guest = Guest::start(Ram::Anonymous, RAM_MIB.into(), false, drop);
    let took: Vec<f64> = (0..9)
        .map(|_| {
            // A balloon cannot take memory that the guest has not touched.
            guest.order("fill 160");
            guest.order("empty it");
            let began = Instant::now();
            guest.balloon(left_mib);
            guest.wait_for_balloon(left_mib);
            let took = began.elapsed().as_secs_f64();
            guest.balloon(RAM_MIB.into());
            guest.wait_for_balloon(RAM_MIB.into());
            took
        })
        .collect();
    println!("{TAKEN_MIB} MiB inflated: {took:.2?} s");
    median(took) * f64::from(1024 / TAKEN_MIB)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}
