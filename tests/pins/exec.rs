//! A thread that calls exec continues as the leader of its process.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use virtlens_model::vocab::Role;
use virtlens_tests::reader::{self, MS, cpu_ns, vm};
use virtlens_tests::root::{Root, TASK_STORAGE};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

use crate::pinned;

/// The leader burns CPU time, then another thread execs a program that sleeps.
const SCRIPT: &str = "
import os, threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
def other():
    burn(0.02)
    os.execv('/bin/sleep', ['sleep', '2'])
burn(0.25)
threading.Thread(target=other).start()
time.sleep(60)
";

/// The thread takes its leader's tid and start time, and its leader exits (`de_thread`,
/// `fs/exec.c`). The CPU time of each is counted once, with task storage and with the
/// hash map.
#[test]
fn exec_thread_and_its_leader_are_counted_once() {
    let test = "exec_thread_and_its_leader_are_counted_once";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    for knows_task_storage in [true, false] {
        let root = Root::with_bpffs();
        root.set_knows(TASK_STORAGE, knows_task_storage);
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let (main, side) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
        let launch = Minivm::launch().args(["--vcpus", "1"]);
        let guest = Minivm::start_launch(launch.cgroup(&main));
        let mut collector = pinned(&root);
        collector.collect();
        let helper = Launch::new("python3").args(["-c", SCRIPT]).cgroup(&side);
        let mut helper = helper.spawn();
        let comm = format!("/proc/{}/comm", helper.id());
        eventually("it execs", || {
            collector.collect();
            let name = fs::read_to_string(&comm).expect("it runs");
            (name == "sleep\n").then_some(())
        });
        // Until the kernel has freed the leader.
        sleep(Duration::from_millis(500));
        collector.collect();
        helper.wait().expect("it ends");
        let what = format!("with task storage: {knows_task_storage}");
        reader::assert_settles(&mut collector, &what, side.usage_ns(), 20 * MS, |now| {
            cpu_ns(vm(now, guest.pid()), Role::Helper)
        });
    }
}
