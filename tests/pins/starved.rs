//! The agent's container runs out of memory: the kernel kills the agent, and the next
//! agent continues.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::reader::{self, MS};
use virtlens_tests::root::Root;
use virtlens_tests::scraped::{Counters, counters, cpu_ns, not_fallen};
use virtlens_tests::{
    Agent, Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

use crate::run;

/// A cgroup of the memory controller, on v1 or v2.
struct Memory {
    dir: PathBuf,
    limit: &'static str,
}

impl Memory {
    /// Mount of the controller, and the file name of its limit.
    fn controller() -> Option<(PathBuf, &'static str)> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let mut mounts = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((PathBuf::from(words.next()?), words.next()?, words.next()?))
        });
        let of_v1 = |(_, kind, options): &(PathBuf, &str, &str)| {
            *kind == "cgroup" && options.split(',').any(|one| one == "memory")
        };
        if let Some((root, ..)) = mounts.clone().find(of_v1) {
            return Some((root, "memory.limit_in_bytes"));
        }
        let (root, ..) = mounts.find(|(_, kind, _)| *kind == "cgroup2")?;
        fs::write(root.join("cgroup.subtree_control"), "+memory").ok()?;
        Some((root, "memory.max"))
    }

    fn new(name: &str) -> Self {
        let (root, limit) = Self::controller().expect("it is needed");
        let dir = root.join(format!("virtlens-{name}-{}", std::process::id()));
        fs::create_dir(&dir).expect("root may make a cgroup");
        Self { dir, limit }
    }

    fn set_limit(&self, bytes: u64) {
        fs::write(self.dir.join(self.limit), bytes.to_string()).expect("it takes a number");
    }

    /// Starts a process in the cgroup as the first candidate of the OOM killer, as for
    /// pods that may use more than they requested.
    fn start_in(&self, mut command: Command) -> Command {
        let mut procs = self.procs();
        let enter = move || {
            procs.write_all(b"0")?;
            let mut score = fs::OpenOptions::new()
                .write(true)
                .open("/proc/self/oom_score_adj")?;
            score.write_all(b"1000")
        };
        // SAFETY: only system calls are made between fork and exec, on a path that fits
        // on the stack.
        unsafe { command.pre_exec(enter) };
        command
    }

    fn procs(&self) -> fs::File {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.dir.join("cgroup.procs"));
        file.expect("every cgroup has it")
    }

    /// Number of processes that the OOM killer killed in this cgroup.
    fn kills(&self) -> u64 {
        let files = ["memory.events", "memory.oom_control"].map(|name| self.dir.join(name));
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
        let text = text.expect("one of them is there");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("since v4.13").parse().expect("it is a number")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        eventually("its cgroup is empty", || fs::remove_dir(&self.dir).ok());
    }
}

/// Allocates the memory that it shares with the agent until the kernel has killed both,
/// the agent first.
fn take_all(memory: &Memory) {
    let mut procs = memory.procs();
    // `tail` searches for the end of an endless line.
    let mut tail = Command::new("tail");
    tail.arg("/dev/zero").stdout(Stdio::null());
    // SAFETY: a write to an open file.
    unsafe { tail.pre_exec(move || procs.write_all(b"0")) };
    let ended = tail.status().expect("every host has it");
    assert!(!ended.success(), "it is never satisfied");
}

fn ready(test: &str) -> bool {
    let has_memory = need::that(
        "memory_cgroup",
        Memory::controller().is_some(),
        "no cgroup hierarchy has the memory controller",
    );
    reader::ready(test) && need::all(test, [need::cpu_cgroup(), has_memory])
}

/// Nothing is lost that happens before the kill, during the agent's absence, or
/// afterwards.
#[test]
fn out_of_memory_agent_loses_nothing() {
    if !ready("out_of_memory_agent_loses_nothing") {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let args = [
        "--vcpus", "2", "--start", "duty:20", "--thread", "io=1", "--name", "steady",
    ];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    let mut seen = Counters::new();
    // The CPU usage of the pod just before and just after a reading.
    let read = || {
        let agent = Agent::start(run(&root));
        let before_ns = pod.usage_ns();
        let counters = counters(&agent);
        (counters, before_ns, pod.usage_ns())
    };
    let (first, first_least_ns, first_most_ns) = read();
    not_fallen(&mut seen, first.clone());

    for _ in 0..3 {
        let memory = Memory::new("starved");
        memory.set_limit(64 << 20);
        let mut agent = Agent::start(memory.start_in(run(&root)));
        not_fallen(&mut seen, counters(&agent));
        guest.spawn(3, 10, "passing");
        take_all(&memory);
        eventually("the agent is gone", || agent.has_ended().then_some(()));
        assert_eq!(memory.kills(), 2);
        guest.spawn(3, 10, "passing");
    }

    let (last, last_least_ns, last_most_ns) = read();
    not_fallen(&mut seen, last.clone());
    let counted_ns = cpu_ns(&last, "steady") - cpu_ns(&first, "steady");
    let (least_ns, most_ns) = (last_least_ns - first_most_ns, last_most_ns - first_least_ns);
    // The kernel charges the cgroup and the threads at different moments.
    let lag_ns = (most_ns / 200).max(20 * MS);
    assert!(
        (least_ns.saturating_sub(lag_ns)..=most_ns + lag_ns).contains(&counted_ns),
        "{counted_ns} ns are counted; the pod used {least_ns} to {most_ns} ns"
    );
}

/// With so little memory the agent is killed at some moment of its start. The state that
/// it leaves does not affect the next agent.
#[test]
fn agent_failing_at_start_leaves_nothing() {
    if !ready("agent_failing_at_start_leaves_nothing") {
        return;
    }
    let root = Root::with_bpffs();
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:20", "--name", "steady"]);
    let mut seen = Counters::new();
    not_fallen(&mut seen, counters(&Agent::start(run(&root))));
    let mut ended = 0;
    for mib in [1, 2, 4, 8, 16] {
        let memory = Memory::new("hungry");
        memory.set_limit(mib << 20);
        let mut command = memory.start_in(run(&root));
        let started = command.stderr(Stdio::null()).spawn();
        if let Ok(mut child) = started {
            sleep(Duration::from_millis(300));
            drop(child.kill());
            child.wait().expect("it is our child");
        }
        ended += memory.kills();
        drop(memory);
        not_fallen(&mut seen, counters(&Agent::start(run(&root))));
    }
    println!("the kernel ended {ended} of 5");
    assert!(ended > 0, "none was short of memory");
    drop(guest);
}
