//! An agent of another version, with another layout of its maps, takes over, and this
//! version takes over again.

use std::process::Command;

use virtlens_tests::reader::{self, MS, assert_close};
use virtlens_tests::root::Root;
use virtlens_tests::scraped::{Counters, counters, cpu_ns, dropped};
use virtlens_tests::{Agent, Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::run;

/// The other version: `scripts/build-other-layout`.
fn other(root: &Root) -> Command {
    let program = std::env::var_os("VIRTLENS_OTHER").expect("make test-pins sets it");
    let mut command = Command::new(program);
    command
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--min-age",
            "1ms",
            "--root",
        ])
        .arg(root.path());
    command
}

/// Values that an agent reports of a pod that burns CPU time before and during its run.
struct Outcome {
    /// CPU time in its first reading, ns.
    first_ns: u64,
    maps_lost: u64,
    log: Vec<String>,
}

fn watch(command: Command, pod: &TestCgroup, guest: &mut Minivm) -> Outcome {
    let mut agent = Agent::start(command);
    let first = counters(&agent);
    let before_ns = pod.usage_ns();
    let burned = guest.spawn(4, 10, "passing");
    assert!(burned >= 40 * MS, "they burned");
    let last = counters(&agent);
    let used = pod.usage_ns() - before_ns;
    let of = |counters: &Counters| cpu_ns(counters, "upgraded");
    // Nothing is missing of the time since this agent started.
    assert_close(
        "the pod",
        of(&last) - of(&first),
        used,
        (used / 200).max(20 * MS),
    );
    let maps_lost = dropped(&agent, "map_layout");
    let (code, log) = agent.stop();
    assert_eq!(code, Some(0), "{log:#?}");
    Outcome {
        first_ns: of(&first),
        maps_lost,
        log,
    }
}

#[test]
#[ignore = "needs a second build of the agent: make test-pins"]
fn maps_with_another_layout_are_dropped_with_a_warning() {
    let test = "maps_with_another_layout_are_dropped_with_a_warning";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let container = pod.child(&"ab".repeat(32));
    let args = ["--vcpus", "1", "--thread", "io=1", "--name", "upgraded"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));

    let own = watch(run(&root), &pod, &mut guest);
    assert_eq!(own.maps_lost, 0, "{:#?}", own.log);
    let retired = guest.spawn(4, 20, "passing");
    let known = pod.usage_ns();
    let versions = [other as fn(&Root) -> Command, run, other];
    for version in versions {
        let outcome = watch(version(&root), &pod, &mut guest);
        // The map of thread state and the map of retired values; no other map of that
        // layout exists.
        assert_eq!(outcome.maps_lost, 2, "{:#?}", outcome.log);
        let named = |line: &&String| line.contains("retired-") && line.contains("counts are lost");
        assert_eq!(
            outcome.log.iter().filter(named).count(),
            1,
            "{:#?}",
            outcome.log
        );
        // Earlier retired values are missing, and were not misread as other values.
        let lost = known - outcome.first_ns.min(known);
        assert!(
            lost >= retired,
            "{lost} ns lost, of them {retired} by threads that ended"
        );
        assert!(outcome.first_ns < pod.usage_ns(), "more than there was");
        let again = watch(version(&root), &pod, &mut guest);
        assert_eq!(again.maps_lost, 0, "its own are its own: {:#?}", again.log);
        assert!(again.first_ns >= outcome.first_ns + 40 * MS, "and go on");
    }
}
