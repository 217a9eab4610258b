//! Measures of a VM over a window of many readings.

use crate::judge::interval::Interval;
use crate::vocab::{CpuSet, Role};

/// A measured value of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// CPU time of all threads, cores.
    Cpu,
    /// CPU time of a role, cores.
    RoleCpu(Role),
    /// CPU limit of all cgroups together, cores.
    Limit,
    /// Used share of the binding limit.
    QuotaUsed,
    /// Share of the time in which the binding limit was throttled.
    Throttled,
    /// Share of the time in which a vCPU was runnable without running.
    VcpuRunDelay,
    /// Run delay before a vCPU was put on a CPU, s.
    VcpuMeanRunDelay,
    /// CPU time of vCPUs in halt polling, cores.
    HaltPoll,
    /// VM exits per second.
    Exits,
    /// Number of vCPUs that the guest can use.
    Vcpus,
    /// Resident memory of the VMM, bytes.
    Resident,
}

/// Unit of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// CPU time per time.
    Cores,
    /// A part of a whole, from 0 to 1.
    Share,
    /// Seconds.
    Seconds,
    /// A count per second.
    PerSecond,
    /// A number.
    Count,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Share => "share",
            Self::Seconds => "seconds",
            Self::PerSecond => "per_second",
            Self::Count => "count",
            Self::Bytes => "bytes",
        }
    }
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::RoleCpu(Role::Vcpu),
        Self::RoleCpu(Role::Vhost),
        Self::RoleCpu(Role::Virtiofsd),
        Self::RoleCpu(Role::Iothread),
        Self::RoleCpu(Role::Emulator),
        Self::RoleCpu(Role::Helper),
        Self::Limit,
        Self::QuotaUsed,
        Self::Throttled,
        Self::VcpuRunDelay,
        Self::VcpuMeanRunDelay,
        Self::HaltPoll,
        Self::Exits,
        Self::Vcpus,
        Self::Resident,
    ];

    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::RoleCpu(Role::Vcpu) => "cpu_vcpu",
            Self::RoleCpu(Role::Vhost) => "cpu_vhost",
            Self::RoleCpu(Role::Virtiofsd) => "cpu_virtiofsd",
            Self::RoleCpu(Role::Iothread) => "cpu_iothread",
            Self::RoleCpu(Role::Emulator) => "cpu_emulator",
            Self::RoleCpu(Role::Helper) => "cpu_helper",
            Self::Limit => "cpu_limit",
            Self::QuotaUsed => "quota_used",
            Self::Throttled => "throttled",
            Self::VcpuRunDelay => "vcpu_run_delay",
            Self::VcpuMeanRunDelay => "vcpu_mean_run_delay",
            Self::HaltPoll => "halt_poll",
            Self::Exits => "exits",
            Self::Vcpus => "vcpus",
            Self::Resident => "memory_resident",
        }
    }

    /// Unit of the values.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Cpu | Self::RoleCpu(_) | Self::Limit | Self::HaltPoll => Unit::Cores,
            Self::QuotaUsed | Self::Throttled | Self::VcpuRunDelay => Unit::Share,
            Self::VcpuMeanRunDelay => Unit::Seconds,
            Self::Exits => Unit::PerSecond,
            Self::Vcpus => Unit::Count,
            Self::Resident => Unit::Bytes,
        }
    }

    /// Whether somebody sets the value: it changes on purpose only.
    pub const fn is_setting(self) -> bool {
        matches!(self, Self::Limit | Self::Vcpus)
    }

    fn index(self) -> Option<usize> {
        Self::ALL.iter().position(|one| *one == self)
    }
}

/// Measures of a VM over a window.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    sums: [Sum; Measure::ALL.len()],
    /// The pCPUs on which vCPUs were at the readings.
    pub pcpus: CpuSet,
    last: Option<Instant>,
}

/// When a reading was made.
#[derive(Debug, Clone, Copy)]
pub struct Instant {
    /// On the monotonic clock of the agent, ns.
    pub clock_ns: u64,
    /// Since 1970, ns.
    pub unix_ns: u64,
}

/// Most by which the clocks of one agent differ between two readings. Readings of two agents
/// differ by their starts.
const MAX_SKEW_NS: u64 = 1_000_000_000;

/// A value as a quotient, so that each reading counts with its weight.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    value: f64,
    weight: f64,
}

impl Measured {
    /// The mean of a measure; `None` if it is unknown.
    pub fn of(&self, measure: Measure) -> Option<f64> {
        let sum = self.sums.get(measure.index()?)?;
        (sum.weight > 0.0).then(|| sum.value / sum.weight)
    }

    /// Time from the last reading to the next one, ns, if one agent made both and the wall
    /// clock was not set between them. The next reading becomes the last one.
    pub fn step(&mut self, next: Instant) -> Option<u64> {
        let last = self.last.replace(next)?;
        let wall_ns = next.unix_ns.checked_sub(last.unix_ns)?;
        let length_ns = next.clock_ns.checked_sub(last.clock_ns)?;
        let is_one_agent = wall_ns.abs_diff(length_ns) < MAX_SKEW_NS;
        (length_ns > 0 && is_one_agent).then_some(length_ns)
    }

    /// Adds the usage between two readings that follow each other.
    pub fn add(&mut self, used: &Interval) {
        let vm = used.now;
        let length = ns(used.length_ns());
        self.sum(Measure::Cpu, ns(used.cpu_ns()), length);
        for role in Role::ALL {
            // A role without threads uses nothing.
            let cpu_ns = used.role(role).map_or(0, |used| used.cpu_ns);
            self.sum(Measure::RoleCpu(role), ns(cpu_ns), length);
        }
        if let Some(cores) = vm.limit_cores {
            self.sum(Measure::Limit, cores * length, length);
        }
        if let Some(limit) = used.binding().filter(|limit| limit.cores > 0.0) {
            let whole = limit.cores * length;
            self.sum(Measure::QuotaUsed, ns(limit.total_ns()), whole);
            self.sum(Measure::Throttled, ns(used.throttled_ns(&limit)), length);
        }
        for vcpu in used.vcpus() {
            if let Some(wait_ns) = vcpu.wait_ns {
                self.sum(Measure::VcpuRunDelay, ns(wait_ns), length);
                let slices = vcpu.timeslices.unwrap_or(0);
                let waits = ns(if slices > 0 { wait_ns } else { 0 });
                self.sum(Measure::VcpuMeanRunDelay, waits, count(slices));
            }
        }
        let mut vcpus = used.vcpus().map(|vcpu| vcpu.kvm);
        if let Some(first) = vcpus.next() {
            let kvm = vcpus.fold(first, |sum, more| sum.with(&more, u64::saturating_add));
            if let Some(poll) = kvm.halt_poll_ns() {
                let poll_ns = poll.success.saturating_add(poll.fail);
                self.sum(Measure::HaltPoll, ns(poll_ns), length);
            }
            if let Some(exits) = kvm.exits() {
                let exits = exits.0.into_iter().fold(0, u64::saturating_add);
                self.sum(Measure::Exits, count(exits), length);
            }
        }
        let vcpus = f64::from(vm.vcpu_count.usable());
        self.sum(Measure::Vcpus, vcpus * length, length);
        if let Some(bytes) = vm.memory.resident_bytes {
            self.sum(Measure::Resident, count(bytes) * length, length);
        }
        let there = vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some());
        self.pcpus.extend(there.filter_map(|vcpu| vcpu.pcpu));
    }

    fn sum(&mut self, measure: Measure, value: f64, weight: f64) {
        let sum = measure.index().and_then(|at| self.sums.get_mut(at));
        if let Some(sum) = sum {
            sum.value += value;
            sum.weight += weight;
        }
    }
}

/// A time, ns, in seconds.
fn ns(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "a mean, beyond 2^53 as well")]
fn count(count: u64) -> f64 {
    count as f64
}
