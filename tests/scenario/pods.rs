//! The rig's pods: their values in the kernel's files and in the agent's readings.

use std::fs;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use virtlens::collect::Collector;
use virtlens_model::snapshot::{RoleUse, Snapshot, Vm};
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader;
use virtlens_vmtest::scenario::{Pod, Scenario};

/// A quota, µs in 100 ms, below the use of a pod of two busy vCPUs where its emulated
/// host is slow, 1.1 cores.
pub(crate) const CAPPED_US: u64 = 90_000;

/// The agent's collector and the pods that it reads.
pub(crate) struct Reader {
    pub(crate) scenario: Scenario,
    collector: Collector,
}

/// A reading during which the given threads used no CPU time.
pub(crate) struct AtRest {
    pub(crate) snapshot: Arc<Snapshot>,
    /// CPU time of each thread, ns.
    pub(crate) truth: Vec<u64>,
}

/// A VM between two readings of its cgroup's CPU time.
pub(crate) struct BesideUsage {
    pub(crate) vm: Vm,
    pub(crate) usage_ns: RangeInclusive<u64>,
}

/// Bandwidth counters of `cpu.stat`.
pub(crate) struct CpuStat {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
    pub(crate) throttled_us: u64,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let scenario = Scenario::read().expect("this suite runs in tests/vm");
        let mut reader = Self {
            scenario,
            collector: Collector::open(&reader::options()).expect("the host can be read"),
        };
        // A vCPU is found when it is first seen inside KVM_RUN.
        for _ in 0..10 {
            reader.read();
            sleep(Duration::from_millis(50));
        }
        reader
    }

    pub(crate) fn read(&mut self) -> Arc<Snapshot> {
        self.collector.collect()
    }

    /// Reads and judges the activity since the last judgement.
    pub(crate) fn judge(&mut self) -> Arc<Snapshot> {
        self.collector.collect_judged()
    }

    pub(crate) fn named(&self) -> &Pod {
        &self.scenario.pods["named"]
    }

    /// Reads once the threads have used no CPU time for a while.
    pub(crate) fn at_rest(&mut self, threads: &[(u32, i32)]) -> AtRest {
        for _ in 0..100 {
            let before = times(threads);
            let snapshot = self.read();
            sleep(Duration::from_millis(50));
            let after = times(threads);
            // A halted guest wakes now and then for its housekeeping.
            if burned(&before, &after) < 500_000 {
                return AtRest {
                    snapshot,
                    truth: before,
                };
            }
        }
        panic!("threads {threads:?} do not come to rest");
    }

    pub(crate) fn under(&self, load: &str, work: impl FnOnce()) {
        self.scenario.start(load).expect("the load starts");
        work();
        self.scenario.stop(load).expect("the load stops");
    }

    pub(crate) fn under_reader(&mut self, load: &str, work: impl FnOnce(&mut Self)) {
        self.scenario.start(load).expect("the load starts");
        work(self);
        self.scenario.stop(load).expect("the load stops");
    }

    /// Runs `work` with another quota, µs in 100 ms.
    pub(crate) fn with_quota<T>(
        &mut self,
        pod: &Pod,
        us: u64,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let file = self
            .scenario
            .cgroup_root
            .join(&pod.pod_cgroup)
            .join("cpu.max");
        let usual = fs::read_to_string(&file).expect("cpu.max can be read");
        fs::write(&file, format!("{us} 100000")).expect("cpu.max can be set");
        let seen = work(self);
        fs::write(&file, usual).expect("cpu.max can be set");
        seen
    }

    /// Reads the pod's VM, and its cgroup's CPU time shortly before and after.
    pub(crate) fn read_beside_usage(&mut self, pod: &Pod) -> BesideUsage {
        let before = self.usage_ns(pod);
        let snapshot = self.read();
        let after = self.usage_ns(pod);
        BesideUsage {
            vm: vm(&snapshot, pod).clone(),
            usage_ns: before..=after,
        }
    }

    /// CPU time of the pod's vhost workers that are outside of its cgroup, ns.
    pub(crate) fn vhost_outside_ns(pod: &Pod) -> u64 {
        let cgroup = pod.pod_cgroup.to_string_lossy();
        let workers = pod.vhost_tids().into_iter();
        let outside = workers.filter(|tid| is_outside(*tid, &cgroup));
        let outside: Vec<_> = outside.map(|tid| (tid, tid.cast_signed())).collect();
        times(&outside).iter().sum()
    }

    /// CPU time that the kernel charged to the pod, plus that of its vhost workers
    /// outside of its cgroup, ns.
    pub(crate) fn usage_ns(&self, pod: &Pod) -> u64 {
        self.limited_ns(pod) + Self::vhost_outside_ns(pod)
    }

    /// CPU time that the kernel charged to the pod's cgroup, ns.
    pub(crate) fn limited_ns(&self, pod: &Pod) -> u64 {
        self.stat(pod, "usage_usec") * 1000
    }

    pub(crate) fn cpu_stat(&self, pod: &Pod) -> CpuStat {
        CpuStat {
            periods: self.stat(pod, "nr_periods"),
            throttled: self.stat(pod, "nr_throttled"),
            throttled_us: self.stat(pod, "throttled_usec"),
        }
    }

    fn stat(&self, pod: &Pod, key: &str) -> u64 {
        let file = self
            .scenario
            .cgroup_root
            .join(&pod.pod_cgroup)
            .join("cpu.stat");
        let text = fs::read_to_string(&file).expect("cpu.stat can be read");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no {key} in {text}"))
    }
}

/// Whether a vhost worker is outside of its pod's cgroup: before v6.1 a kernel thread
/// follows its owner on v1 only (`kernel/cgroup/cgroup-v1.c`, `cgroup_attach_task_all`).
pub(crate) fn is_outside(tid: u32, cgroup: &str) -> bool {
    let path = fs::read_to_string(format!("/proc/{tid}/cgroup")).expect("it lives");
    !path.contains(cgroup)
}

/// CPU time of each thread, ns.
pub(crate) fn times(threads: &[(u32, i32)]) -> Vec<u64> {
    threads
        .iter()
        .map(|(pid, tid)| {
            Schedstat::read(*pid, *tid)
                .expect("the thread lives on")
                .cpu_ns
        })
        .collect()
}

/// CPU time that threads used between two readings, ns.
pub(crate) fn burned(before: &[u64], after: &[u64]) -> u64 {
    after.iter().sum::<u64>() - before.iter().sum::<u64>()
}

/// CPU time of a role between two of the agent's readings, ns.
pub(crate) fn accounted(before: &Snapshot, after: &Snapshot, pod: &Pod, role: Role) -> u64 {
    let of = |snapshot| self::role(vm(snapshot, pod), role).map_or(0, |one| one.cpu_ns);
    of(after) - of(before)
}

/// The VM of a pod.
pub(crate) fn vm<'a>(snapshot: &'a Snapshot, pod: &Pod) -> &'a Vm {
    reader::vm(snapshot, pod.vmm_pid)
}

/// The entry of a role in a VM.
pub(crate) fn role(vm: &Vm, role: Role) -> Option<&RoleUse> {
    vm.roles.iter().find(|one| one.role == role)
}

/// Wall-clock time during which the pod was throttled on any CPU, ns.
pub(crate) fn throttled_wall_ns(snapshot: &Snapshot, pod: &Pod) -> u64 {
    let path = pod.pod_cgroup.to_string_lossy();
    let vm = vm(snapshot, pod);
    let level = vm.quota.iter().find(|one| one.cgroup.ends_with(&*path));
    let seen = level.and_then(|level| level.throttle.as_ref());
    seen.expect("throttling is followed").wall_ns
}

/// Milliseconds, rounded for output.
pub(crate) fn millis(ns: u64) -> u64 {
    ns / 1_000_000
}
