//! The rig's self-tests, with plain tools only: all that the suites measure is present,
//! and each load uses the CPU time of the thread that it is meant for.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use virtlens_vmtest::report::{Line, Outcome};
use virtlens_vmtest::scenario::Pod;

use crate::cgroup;
use crate::loads::{Loads, lock};
use crate::procfs::{blocked_in, burn_ns, comm, keyed, last_cpu, run_ns, threads, wait_for};

/// How long a thread is observed, idle or loaded.
const WINDOW: Duration = Duration::from_millis(1500);

/// Number of times at which the CPUs of the vCPUs are read in a window.
const LOOKS: u32 = 15;

/// `ioctl` on x86-64 and `KVM_RUN` (include/uapi/linux/kvm.h: `_IO(0xAE, 0x80)`).
const IN_KVM_RUN: (u64, u64) = (16, 0xae80);

/// Reports the features of this kernel that its files show.
pub(crate) fn features() {
    let feature = |name: &str, there: bool| {
        if there {
            println!("{}", Line::Feature(name.to_owned()));
        }
    };
    let controllers = fs::read_to_string(cgroup::path(Path::new("cgroup.controllers")));
    let controllers = controllers.unwrap_or_default();
    let has = |name| controllers.split_whitespace().any(|have| have == name);
    feature("cgroup2", ["cpu", "cpuset", "memory"].into_iter().all(has));
    feature("vmlinux_btf", Path::new("/sys/kernel/btf/vmlinux").exists());
    feature("module_btf", Path::new("/sys/kernel/btf/kvm").exists());
    feature("nested_kvm", Path::new("/dev/kvm").exists());
    feature("first_cpu_isolated", is_first_cpu_isolated());
}

/// Whether the runner isolates the machine's first CPU.
fn is_first_cpu_isolated() -> bool {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated");
    isolated.is_ok_and(|list| list.trim() == "0")
}

/// The pods under test.
pub(crate) struct Checks<'a> {
    pub(crate) named: &'a Pod,
    pub(crate) plain: &'a Pod,
    pub(crate) loads: &'a Arc<Mutex<Loads>>,
}

impl Checks<'_> {
    /// Runs and reports all checks.
    pub(crate) fn run(&self) {
        let vhost_is_thread = self.named.vhost_tid.is_some_and(|tid| {
            let own = threads(self.named.vmm_pid);
            own.contains(&tid)
        });
        let kind = if vhost_is_thread {
            "vhost_thread"
        } else {
            "vhost_kthread"
        };
        println!("{}", Line::Feature(kind.to_owned()));

        check("idle_vcpus_sleep_in_kvm_run", || {
            self.idle_vcpus_sleep_in_kvm_run()
        });
        check("threads_are_named_only_on_request", || {
            self.threads_are_named_only_on_request()
        });
        check("helpers_sit_where_the_runtime_puts_them", || {
            self.helpers_sit()
        });
        check("vcpus_burn_under_cpu_load", || {
            self.burns("cpu", &self.named.vcpu_tids)
        });
        if is_first_cpu_isolated() {
            check("vcpus_never_run_on_isolated_cpu", || {
                self.vcpus_leave_cpu_0()
            });
        }
        check("vhost_worker_burns_under_flood", || self.vhost_burns());
        check("virtiofsd_burns_under_file_io", || {
            let all = self
                .named
                .virtiofsd_pids
                .iter()
                .flat_map(|pid| threads(*pid));
            self.burns("virtiofs", &all.collect::<Vec<_>>())
        });
        check("iothread_burns_under_disk_reads", || {
            self.burns("disk", &self.named.iothread_tids)
        });
        check("quota_throttles_the_pod", || self.quota_throttles_the_pod());
        check("freed_guest_memory_returns", || {
            self.freed_guest_memory_returns()
        });
    }

    fn idle_vcpus_sleep_in_kvm_run(&self) -> anyhow::Result<()> {
        for pod in [self.named, self.plain] {
            ensure!(
                !pod.vcpu_tids.is_empty(),
                "{}: QEMU names no vCPU threads",
                pod.uid
            );
            for tid in &pod.vcpu_tids {
                wait_for(
                    "a vCPU halted in the kernel",
                    Duration::from_secs(10),
                    || (blocked_in(*tid).ok()? == Some(IN_KVM_RUN)).then_some(()),
                )?;
            }
        }
        Ok(())
    }

    /// The load of the guest makes the scheduler move its vCPUs.
    fn vcpus_leave_cpu_0(&self) -> anyhow::Result<()> {
        lock(self.loads).order("start cpu")?;
        let looked = (0..LOOKS).try_for_each(|_| {
            sleep(WINDOW / LOOKS);
            let pods = [self.named, self.plain].into_iter();
            pods.flat_map(|pod| &pod.vcpu_tids).try_for_each(|tid| {
                let cpu = last_cpu(*tid)?;
                ensure!(cpu != 0, "thread {tid} of a vCPU ran on the isolated CPU 0");
                Ok(())
            })
        });
        lock(self.loads).order("stop cpu")?;
        looked
    }

    fn threads_are_named_only_on_request(&self) -> anyhow::Result<()> {
        let names = |tids: &[u32]| tids.iter().map(|tid| comm(*tid)).collect::<Vec<_>>();
        let vcpus = names(&self.named.vcpu_tids);
        ensure!(
            vcpus == ["CPU 0/KVM", "CPU 1/KVM"],
            "named vCPUs are called {vcpus:?}"
        );
        let io = names(&self.named.iothread_tids);
        ensure!(io == ["IO io0"], "the named iothread is called {io:?}");
        let process = comm(self.plain.vmm_pid);
        let others = [
            names(&self.plain.vcpu_tids),
            names(&self.plain.iothread_tids),
        ]
        .concat();
        ensure!(
            others == [process.as_str(); 2],
            "plain threads are called {others:?}"
        );
        Ok(())
    }

    fn helpers_sit(&self) -> anyhow::Result<()> {
        for pod in [self.named, self.plain] {
            let vmm = cgroup_of(pod.vmm_pid)?;
            ensure!(vmm == pod.vmm_cgroup, "the VMM is in {}", vmm.display());
            ensure!(
                pod.virtiofsd_pids.len() == 2,
                "virtiofsd is {:?}",
                pod.virtiofsd_pids
            );
            for pid in &pod.virtiofsd_pids {
                let group = cgroup_of(*pid)?;
                ensure!(
                    group == pod.virtiofsd_cgroup,
                    "virtiofsd is in {}",
                    group.display()
                );
            }
        }
        Ok(())
    }

    fn burns(&self, load: &str, tids: &[u32]) -> anyhow::Result<()> {
        ensure!(!tids.is_empty(), "there are no such threads");
        let idle_ns = burn_ns(tids, WINDOW)?;
        let busy_ns = self.under(load, || burn_ns(tids, WINDOW))?;
        // The load far exceeds an idle guest's housekeeping.
        ensure!(
            busy_ns > 3 * idle_ns,
            "{load}: {idle_ns} ns idle, {busy_ns} ns under load"
        );
        println!("{load}: {idle_ns} ns idle, {busy_ns} ns under load");
        Ok(())
    }

    /// Two workers have the same name; the flood reaches only that of vhost-net.
    fn vhost_burns(&self) -> anyhow::Result<()> {
        let net = self.named.vhost_tid.context("no vhost-net worker")?;
        let vsock = self.named.vsock_tid.context("no vhost-vsock worker")?;
        let before = (run_ns(net)?, run_ns(vsock)?);
        self.burns("vhost", &[net])?;
        let (net_ns, vsock_ns) = (run_ns(net)? - before.0, run_ns(vsock)? - before.1);
        ensure!(
            vsock_ns * 10 < net_ns,
            "vhost-net used {net_ns} ns, vhost-vsock {vsock_ns} ns"
        );
        Ok(())
    }

    fn quota_throttles_the_pod(&self) -> anyhow::Result<()> {
        let stat = cgroup::path(&self.named.pod_cgroup).join("cpu.stat");
        let throttled = || keyed(&stat, "nr_throttled");
        let before = throttled()?;
        cgroup::set_quota(&self.named.pod_cgroup, Some(30_000))?;
        let after = self.under("cpu", || {
            wait_for("throttling", Duration::from_secs(10), || {
                throttled().ok().filter(|now| *now >= before + 3)
            })
        });
        cgroup::set_quota(&self.named.pod_cgroup, Some(crate::QUOTA_US))?;
        after?;
        Ok(())
    }

    fn freed_guest_memory_returns(&self) -> anyhow::Result<()> {
        let status = format!("/proc/{}/status", self.named.vmm_pid);
        let resident_kib = || keyed(Path::new(&status), "RssShmem:");
        let mut peak_kib = resident_kib()?;
        self.under("memory", || {
            let half_the_ballast_kib = 32 * 1024;
            wait_for("memory given back", Duration::from_secs(30), || {
                let now_kib = resident_kib().ok()?;
                peak_kib = peak_kib.max(now_kib);
                (now_kib + half_the_ballast_kib < peak_kib).then_some(())
            })
        })
    }

    /// Runs `watch` under a load, and always stops the load.
    fn under<T>(&self, load: &str, watch: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        lock(self.loads).order(&format!("start {load}"))?;
        let seen = watch();
        lock(self.loads).order(&format!("stop {load}"))?;
        seen
    }
}

/// Runs one check and prints its line.
pub(crate) fn check(name: &str, run: impl FnOnce() -> anyhow::Result<()>) {
    let outcome = match run() {
        Ok(()) => Outcome::Ok,
        Err(error) => Outcome::Fail(format!("{error:#}")),
    };
    println!(
        "{}",
        Line::Test {
            name: format!("rig::{name}"),
            outcome
        }
    );
}

fn cgroup_of(pid: u32) -> anyhow::Result<std::path::PathBuf> {
    let path = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let group = text
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .context(path)?;
    Ok(group.into())
}
