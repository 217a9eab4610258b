//! The load of a measurement: a node full of VMs, and other threads.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use virtlens_tests::process::tids;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

/// vCPUs per VM.
pub(crate) const VCPUS: usize = 8;

/// The flag that makes this program a process of idle threads.
pub(crate) const IDLE_THREADS_FLAG: &str = "--idle-threads";

/// VMs with halted vCPUs, each in a container of a separate pod where cgroups can be
/// created.
#[derive(Debug, Default)]
pub(crate) struct Vms {
    // VMs are dropped before their cgroups, and containers before pods.
    vms: Vec<Minivm>,
    cgroups: Vec<[TestCgroup; 2]>,
}

impl Vms {
    /// Starts VMs until there are `count`.
    pub(crate) fn grow_to(&mut self, count: usize) {
        let has_cgroups = need::cpu_cgroup().is_ok();
        for number in self.vms.len()..count {
            let name = format!("bench-{number}");
            // With the main thread and the kernel's worker (`kvm-nx-lpage-re`, since
            // v6.14) these are four further threads.
            let args = [
                "--vcpus",
                "8",
                "--thread",
                "IO iothread0=1",
                "--thread",
                "worker=1",
            ];
            let mut launch = Minivm::launch().args(args).args(["--name", &name]);
            if has_cgroups {
                let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
                let container = pod.child(&format!("{number:064x}"));
                launch = launch.cgroup(&container);
                self.cgroups.push([container, pod]);
            }
            self.vms.push(Minivm::start_launch(launch));
        }
    }

    /// Number of threads of a VM according to the kernel.
    pub(crate) fn threads_each(&self) -> usize {
        let threads: usize = self.vms.iter().map(|vm| tids(vm.pid()).len()).sum();
        threads / self.vms.len().max(1)
    }
}

/// A process of many sleeping threads; killed on drop.
#[derive(Debug)]
pub(crate) struct IdleThreads(Child);

impl IdleThreads {
    /// Starts the process and waits until all its threads exist.
    pub(crate) fn start(count: u32) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program has a path"))
            .args([IDLE_THREADS_FLAG, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it writes a line");
        assert_eq!(line, "ready\n", "{count} threads can be had");
        Self(child)
    }
}

impl Drop for IdleThreads {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The child's side of [`IdleThreads`]: ends when its stdin closes.
pub(crate) fn be_idle(count: u32) {
    for _ in 0..count {
        thread::Builder::new()
            .stack_size(16 << 10)
            .spawn(|| {
                loop {
                    thread::park();
                }
            })
            .expect("the host allows so many threads");
    }
    println!("ready");
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}
