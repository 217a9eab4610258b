//! A VM is restarted under the same name: its counters continue, with the same agent,
//! another agent, or no agent running.

use virtlens_tests::reader::{self, MS, assert_close};
use virtlens_tests::root::Root;
use virtlens_tests::scraped::{Counters, counters, cpu_ns, not_fallen};
use virtlens_tests::{Agent, Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::run;

/// Starts the VM once.
fn life(cgroup: &TestCgroup) -> Minivm {
    let args = [
        "--vcpus",
        "2",
        "--name",
        "again",
        "--vcpu-name",
        "CPU {}/KVM",
        "--comm",
        "qemu-system-x86",
        "--thread",
        "IO io{}=2",
    ];
    Minivm::start_launch(Minivm::launch().args(args).cgroup(cgroup))
}

fn work(guest: &mut Minivm, ms: u32) {
    guest.burn_vcpus("all", ms);
    guest.burn_threads("all", ms);
    guest.spawn(2, ms / 4, "passing");
}

#[test]
fn restarted_vm_continues_counters_across_agents() {
    let test = "restarted_vm_continues_counters_across_agents";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(100_000), 100_000);
    let container = pod.child(&"ab".repeat(32));
    let mut seen = Counters::new();

    let mut first = life(&container);
    let agent = Agent::start(run(&root));
    not_fallen(&mut seen, counters(&agent));
    work(&mut first, 80);
    not_fallen(&mut seen, counters(&agent));
    // The restart lies between two readings of one agent.
    drop(first);
    let mut second = life(&container);
    work(&mut second, 40);
    not_fallen(&mut seen, counters(&agent));
    drop(agent);

    // Another agent finds the VM running.
    let agent = Agent::start(run(&root));
    not_fallen(&mut seen, counters(&agent));
    work(&mut second, 40);
    not_fallen(&mut seen, counters(&agent));
    drop(agent);

    // The VM ends and is restarted while no agent runs.
    work(&mut second, 40);
    drop(second);
    let mut third = life(&container);
    work(&mut third, 40);
    let agent = Agent::start(run(&root));
    not_fallen(&mut seen, counters(&agent));
    work(&mut third, 40);
    let last = counters(&agent);
    let used = pod.usage_ns();
    not_fallen(&mut seen, last.clone());

    let names: Vec<&String> = last
        .keys()
        .filter(|series| series.contains("vm=\"again-"))
        .collect();
    assert!(names.is_empty(), "it is one VM: {names:?}");
    let reported = cpu_ns(&last, "again");
    println!("reported {} ms, used {} ms", reported / MS, used / MS);
    // The agent's value includes the CPU time of each VMM before it entered its cgroup.
    assert_close("the pod", reported, used, (used / 200).max(3 * 20 * MS));
}
