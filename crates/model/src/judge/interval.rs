//! Usage of a VM between two readings, or since the VM began.
//!
//! An interval is a view of both readings; values are computed on request. The table
//! shows them as rates, and [`crate::judge::findings`] judges them.

use std::time::Duration;

use crate::identify::cgroup::is_within;
use crate::snapshot::{Quota, RoleUse, Thread, Vcpu, Vm, Worker};
use crate::vocab::{Comm, CpuSet, DiscardSum, Discards, KvmCounters, Role};

/// A VM over an interval.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    /// The VM at the end of the interval.
    pub now: &'a Vm,
    before: Option<&'a Vm>,
    length_ns: u64,
}

/// Usage of one vCPU in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuUse {
    /// `vcpu_id`.
    pub id: u32,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: Option<u64>,
    /// Guest-mode time, ns (an estimate).
    pub guest_ns: Option<u64>,
    /// Number of times that the scheduler put it on a CPU.
    pub timeslices: Option<u64>,
    /// Number of times that it left its CPU although it was runnable.
    pub involuntary_switches: Option<u64>,
    /// KVM's counters; the time spent polling is part of the CPU time.
    pub kvm: KvmCounters,
}

impl VcpuUse {
    /// Mean run delay before the vCPU was put on a CPU, ns; `None` if it never was.
    pub fn mean_wait_ns(&self) -> Option<u64> {
        self.wait_ns?.checked_div(self.timeslices?)
    }
}

/// Usage of one limit in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitUse<'a> {
    /// The limit at the end of the interval, with its totals.
    pub now: &'a Quota,
    /// The limit, cores.
    pub cores: f64,
    /// CPU time charged to the limit, ns, in the order of [`Role::ALL`]; `None` for a
    /// role without threads in it.
    pub used_ns: [Option<u64>; Role::ALL.len()],
    /// Periods in which the cgroup had runnable tasks.
    pub periods: u64,
    /// Periods in which the cgroup was throttled.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
    /// Wall time in which the cgroup was throttled on at least one CPU, ns, if tracked.
    pub wall_ns: Option<u64>,
}

impl LimitUse<'_> {
    /// CPU time of a role charged to the limit, ns.
    pub fn of(&self, role: Role) -> Option<u64> {
        let mut roles = Role::ALL.iter().zip(self.used_ns);
        roles.find(|(of, _)| **of == role).and_then(|(_, ns)| ns)
    }

    /// CPU time of all roles charged to the limit, ns.
    pub fn total_ns(&self) -> u64 {
        let known = self.used_ns.iter().flatten();
        known.fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

/// Changes of a VM's memory in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Page faults of the guest that KVM fixed.
    pub faults: Option<u64>,
    /// Discards of RAM; `None` if they are not tracked.
    pub discards: Option<Discards>,
    /// Reported memory that the guest reused, bytes.
    pub refault_bytes: Option<u64>,
}

/// Whether both are the same VM with the same VMM process. Only then are their counters
/// comparable.
pub fn is_same(one: &Vm, other: &Vm) -> bool {
    one.vm == other.vm && one.pid == other.pid
}

impl<'a> Interval<'a> {
    /// The interval from `before` to `now`, two readings of one VM ([`is_same`]) that are
    /// `length_ns` apart.
    pub fn between(before: &'a Vm, now: &'a Vm, length_ns: u64) -> Self {
        Self {
            now,
            before: Some(before),
            length_ns: length_ns.max(1),
        }
    }

    /// The total usage of the VM since it began, as if used in one second.
    pub fn since_began(now: &'a Vm) -> Self {
        Self {
            now,
            before: None,
            length_ns: 1_000_000_000,
        }
    }

    /// Length of the interval, ns; never 0.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Converts CPU time to cores: the time as a share of the interval.
    pub fn cores(&self, ns: u64) -> f64 {
        Duration::from_nanos(ns).div_duration_f64(Duration::from_nanos(self.length_ns))
    }

    /// Converts a count in the interval to a rate per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate, beyond 2^53 as well")]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.length_ns as f64
    }

    /// Usage of each role.
    pub fn roles(&self) -> impl Iterator<Item = RoleUse> + use<'a> {
        let before = self.before;
        self.now.roles.iter().map(move |now| {
            let then = before.and_then(|vm| vm.roles.iter().find(|then| then.role == now.role));
            RoleUse {
                cpu_ns: since(now.cpu_ns, then.map(|then| then.cpu_ns)),
                wait_ns: since_known(now, then, |of| of.wait_ns),
                throttle_hits: since_known(now, then, |of| of.throttle_hits),
                ..*now
            }
        })
    }

    /// Usage of one role; `None` if the role has and had no threads.
    pub fn role(&self, role: Role) -> Option<RoleUse> {
        self.roles().find(|of| of.role == role)
    }

    /// CPU time of all roles and of threads without a role, ns.
    pub fn cpu_ns(&self) -> u64 {
        let roles = self.roles().map(|role| role.cpu_ns);
        roles.fold(self.unattributed_cpu_ns(), u64::saturating_add)
    }

    /// CPU time of threads without a role, ns.
    pub fn unattributed_cpu_ns(&self) -> u64 {
        let then = self.before.map(|vm| vm.unattributed_cpu_ns);
        since(self.now.unattributed_cpu_ns, then)
    }

    /// Run delay of all roles, ns, as far as known.
    pub fn wait_ns(&self) -> Option<u64> {
        let known = self.roles().filter_map(|role| role.wait_ns);
        known.reduce(u64::saturating_add)
    }

    /// Usage of each vCPU that had the same thread at both ends. A vCPU first seen within
    /// the interval is left out, because the time of its usage is unknown.
    pub fn vcpus(&self) -> impl Iterator<Item = VcpuUse> + use<'a> {
        let before = self.before;
        let there = self.now.vcpus.iter().filter(|vcpu| vcpu.tid.is_some());
        there.filter_map(move |now| {
            let Some(before) = before else {
                return Some(vcpu_since(now, None));
            };
            let mut vcpus = before.vcpus.iter();
            let then = vcpus.find(|then| then.id == now.id && then.tid == now.tid)?;
            Some(vcpu_since(now, Some(then)))
        })
    }

    /// Numbers of vCPUs that had a thread at the start and at the end of the interval.
    pub fn vcpus_at_ends(&self) -> [usize; 2] {
        let count = |vm: &Vm| vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some()).count();
        [self.before.map_or(0, count), count(self.now)]
    }

    /// Affinity of each vCPU at the start and at the end of the interval.
    pub fn vcpu_masks(&self) -> impl Iterator<Item = Option<&'a CpuSet>> + use<'a> {
        let ends = self.before.into_iter().chain([self.now]);
        let vcpus = ends.flat_map(|vm| &vm.vcpus);
        let there = vcpus.filter(|vcpu| vcpu.tid.is_some());
        there.map(|vcpu| vcpu.affinity.as_deref())
    }

    /// Usage of each I/O worker that was the same thread at both ends.
    pub fn workers(&self) -> impl Iterator<Item = Worker> + use<'a> {
        let before = self.before;
        self.now.workers.iter().filter_map(move |now| {
            let same = |then: &&Worker| {
                (then.role, then.worker, then.tid) == (now.role, now.worker, now.tid)
            };
            let then = match before {
                Some(before) => Some(before.workers.iter().find(same)?),
                None => None,
            };
            Some(Worker {
                cpu_ns: since(now.cpu_ns, then.map(|then| then.cpu_ns)),
                ..*now
            })
        })
    }

    /// CPU time of living threads with a name that `is_one` accepts, ns. A thread that was
    /// first seen during the interval counts whole.
    pub fn threads_ns(&self, is_one: impl Fn(Comm) -> bool) -> u64 {
        let cpu_ns = |thread: &Thread| {
            let then = self.before.and_then(|vm| {
                let mut threads = vm.threads.iter();
                threads.find(|then| then.tid == thread.tid)
            });
            since(thread.cpu_ns, then.map(|then| then.cpu_ns))
        };
        let threads = self.now.threads.iter();
        threads
            .filter(|thread| is_one(thread.name))
            .fold(0, |sum, thread| sum.saturating_add(cpu_ns(thread)))
    }

    /// Usage of each limit, at every level that has one. A limit that was set or changed
    /// within the interval is left out, because its usage is unknown.
    pub fn limits(&self) -> impl Iterator<Item = LimitUse<'a>> + use<'a> {
        let before = self.before;
        self.now.quota.iter().filter_map(move |now| {
            let cores = now.cores?;
            let Some(before) = before else {
                return Some(limit_since(now, cores, None));
            };
            let then = before.quota.iter().find(|one| one.cgroup == now.cgroup)?;
            let is_same = (now.cores, now.period_ns) == (then.cores, then.period_ns);
            is_same.then(|| limit_since(now, cores, Some(then)))
        })
    }

    /// Usage of the binding limit: the one that was throttled for the longest time, or
    /// without throttling the lowest.
    pub fn binding(&self) -> Option<LimitUse<'a>> {
        self.limits().min_by(|a, b| {
            let throttled = self.throttled_ns(b).cmp(&self.throttled_ns(a));
            throttled.then(a.cores.total_cmp(&b.cores))
        })
    }

    /// Upper bound of the time for which limits above a vCPU's thread were throttled, ns.
    pub fn vcpu_throttled_ns(&self, id: u32) -> u64 {
        let mut vcpus = self.now.vcpus.iter();
        let cgroup = vcpus
            .find(|vcpu| vcpu.id == id)
            .and_then(|vcpu| vcpu.cgroup.as_deref());
        let above = self
            .limits()
            .filter(|limit| cgroup.is_some_and(|at| is_within(at, &limit.now.cgroup)));
        let throttled = above.map(|limit| self.throttled_ns(&limit));
        throttled.fold(0, u64::saturating_add).min(self.length_ns)
    }

    /// Time for which a limit was throttled, ns: wall time if tracked, else the upper
    /// bound according to the kernel's counters.
    pub fn throttled_ns(&self, limit: &LimitUse) -> u64 {
        let periods_ns = limit.throttled_periods.saturating_mul(limit.now.period_ns);
        let most_ns = periods_ns.min(limit.throttled_ns);
        limit.wall_ns.unwrap_or(most_ns).min(self.length_ns)
    }

    /// Changes of the VM's memory.
    pub fn memory(&self) -> MemoryUse {
        let now = &self.now.memory;
        let then = self.before.map(|vm| &vm.memory);
        let nothing = Some(Discards::default());
        let then_discards = then.map_or(nothing, |then| then.discards);
        let discards = now.discards.zip(then_discards).map(|(now, then)| Discards {
            inflate: sum_since(now.inflate, then.inflate),
            deflate: sum_since(now.deflate, then.deflate),
            report: sum_since(now.report, then.report),
            other: sum_since(now.other, then.other),
        });
        MemoryUse {
            faults: since_known(now, then, |of| of.faults),
            discards,
            refault_bytes: since_known(now, then, |of| of.refault_bytes),
        }
    }
}

/// Increase of a counter since `then`; the full value if the counter did not exist.
fn since(now: u64, then: Option<u64>) -> u64 {
    now.saturating_sub(then.unwrap_or(0))
}

/// Like [`since`] for a counter that can be unknown; `None` if it was unknown `then`.
/// Both values belong to the same object, or `then` belongs to its predecessor.
fn since_known<T>(now: &T, then: Option<&T>, counter: impl Fn(&T) -> Option<u64>) -> Option<u64> {
    let then = then.map_or(Some(0), &counter);
    Some(counter(now)?.saturating_sub(then?))
}

fn sum_since(now: DiscardSum, then: DiscardSum) -> DiscardSum {
    DiscardSum {
        events: now.events.saturating_sub(then.events),
        bytes: now.bytes.saturating_sub(then.bytes),
        ns: now.ns.saturating_sub(then.ns),
    }
}

fn vcpu_since(now: &Vcpu, then: Option<&Vcpu>) -> VcpuUse {
    VcpuUse {
        id: now.id,
        cpu_ns: since(now.cpu_ns, then.map(|then| then.cpu_ns)),
        wait_ns: since_known(now, then, |of| of.wait_ns),
        guest_ns: since_known(now, then, |of| of.guest_ns),
        timeslices: since_known(now, then, |of| of.timeslices),
        involuntary_switches: since_known(now, then, |of| of.involuntary_switches),
        kvm: then.map_or(now.kvm, |then| now.kvm.since(&then.kvm)),
    }
}

fn limit_since<'a>(now: &'a Quota, cores: f64, then: Option<&Quota>) -> LimitUse<'a> {
    let used_ns = Role::ALL.map(|role| {
        let now = *now.used_ns.get(&role)?;
        Some(since(
            now,
            then.and_then(|then| then.used_ns.get(&role).copied()),
        ))
    });
    LimitUse {
        now,
        cores,
        used_ns,
        periods: since(now.periods, then.map(|then| then.periods)),
        throttled_periods: since(
            now.throttled_periods,
            then.map(|then| then.throttled_periods),
        ),
        throttled_ns: since(now.throttled_ns, then.map(|then| then.throttled_ns)),
        wall_ns: since_known(now, then, |of| of.throttle.map(|throttle| throttle.wall_ns)),
    }
}

#[cfg(test)]
mod tests;
