//! What the list of VMs shows of each, and in which order.

use std::cmp::Ordering;

use virtlens_model::judge::interval::{Interval, is_same};
use virtlens_model::snapshot::{Check, Severity, Snapshot, Vm};
use virtlens_model::vocab::Role;

use crate::views::pick::name_of;

/// A VM in the list. `None` is not known.
#[derive(Debug)]
pub struct Row<'s> {
    /// The VM as last read.
    pub vm: &'s Vm,
    /// What people call it.
    pub name: String,
    /// CPU time of all its threads, cores.
    pub cores: Option<f64>,
    /// Its tightest limit, cores.
    pub quota_cores: Option<f64>,
    /// The share of that limit that is used.
    pub used: Option<f64>,
    /// The share of the time in which that limit was throttled.
    pub throttled: Option<f64>,
    /// The busiest of its I/O workers, and the share of a core that it uses.
    pub worker: Option<(Role, u32, f64)>,
    /// The share of the time that the vCPU waited which waited most.
    pub wait: Option<f64>,
}

/// By what the list is sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// CPU time.
    #[default]
    Cores,
    /// Share of the limit that is used.
    Used,
    /// Share of the time that the limit was throttled.
    Throttled,
    /// The busiest worker.
    Worker,
    /// The vCPU that waits most.
    Wait,
    /// Resident memory.
    Resident,
    /// The name.
    Name,
}

impl Sort {
    /// In the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::Name,
        Self::Cores,
        Self::Used,
        Self::Throttled,
        Self::Worker,
        Self::Wait,
        Self::Resident,
    ];

    /// The next one to the right, or to the left.
    #[must_use]
    pub fn step(self, right: bool) -> Self {
        let count = Self::ALL.len();
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + if right { 1 } else { count - 1 }) % count]
    }
}

impl<'s> Row<'s> {
    fn of(vm: &'s Vm, over: Option<&Interval>) -> Self {
        let limit = over.and_then(Interval::binding);
        let worker = over.and_then(|over| {
            let workers = over.workers();
            let most = workers.max_by_key(|worker| worker.cpu_ns)?;
            Some((most.role, most.worker, over.cores(most.cpu_ns)))
        });
        Self {
            vm,
            name: name_of(vm),
            cores: over.map(|over| over.cores(over.cpu_ns())),
            quota_cores: vm.limit_cores,
            used: over
                .zip(limit)
                .map(|(over, limit)| over.cores(limit.total_ns()) / limit.cores),
            throttled: over
                .zip(limit)
                .map(|(over, limit)| over.cores(over.throttled_ns(&limit))),
            worker,
            wait: over.and_then(|over| {
                let waits = over.vcpus().filter_map(|vcpu| vcpu.wait_ns);
                waits.max().map(|ns| over.cores(ns))
            }),
        }
    }

    fn key(&self, sort: Sort) -> f64 {
        let value = match sort {
            Sort::Cores => self.cores,
            Sort::Used => self.used,
            Sort::Throttled => self.throttled,
            Sort::Worker => self.worker.map(|(_, _, busy)| busy),
            Sort::Wait => self.wait,
            Sort::Resident => self.vm.memory.resident_bytes.map(float),
            Sort::Name => None,
        };
        // What is not known comes last.
        value.unwrap_or(-1.0)
    }

    /// A letter for each kind of finding; large for a warning.
    pub fn flags(&self) -> String {
        let mut flags: Vec<char> = Vec::new();
        for finding in self.vm.findings.iter().flat_map(|found| found.iter()) {
            let large = flag(finding.check);
            let small = large.to_ascii_lowercase();
            if finding.severity == Severity::Warning {
                flags.retain(|other| *other != small && *other != large);
                flags.push(large);
            } else if !flags.contains(&large) && !flags.contains(&small) {
                flags.push(small);
            }
        }
        flags.iter().collect()
    }
}

/// The letters, and what they stand for.
pub const FLAGS: [(char, &str); 8] = [
    ('Q', "CPU limit"),
    ('W', "I/O worker at its end"),
    ('C', "all vCPUs busy"),
    ('S', "vCPU starved"),
    ('T', "topology"),
    ('P', "halt polling"),
    ('O', "overhead"),
    ('M', "memory"),
];

fn flag(check: Check) -> char {
    match check {
        Check::QuotaCapped
        | Check::LimitWithoutVm
        | Check::IoThrottled
        | Check::VcpusExceedQuota
        | Check::DefaultVcpusWithLimit => 'Q',
        Check::VhostSaturated | Check::VirtiofsdSaturated | Check::IothreadSaturated => 'W',
        Check::VcpusSaturated => 'C',
        Check::VcpuStarved => 'S',
        Check::Place(_) => 'T',
        Check::HaltPollSpin => 'P',
        Check::OverheadHigh | Check::ThreadsOutsidePod | Check::ThreadPoolIo => 'O',
        Check::ReportingChurn | Check::MemoryKept => 'M',
    }
}

/// The VMs of a reading whose names hold `filter`, sorted; with what they used
/// since the reading before.
pub fn rows<'s>(
    before: Option<&'s Snapshot>,
    now: &'s Snapshot,
    filter: &str,
    (sort, is_reversed): (Sort, bool),
) -> Vec<Row<'s>> {
    let filter = filter.to_lowercase();
    let mut rows: Vec<Row> = now
        .vms
        .iter()
        .filter(|vm| {
            let name = name_of(vm).to_lowercase();
            name.contains(&filter) || vm.vm.to_lowercase().contains(&filter)
        })
        .map(|vm| {
            let over = before.and_then(|before| {
                let then = before.vms.iter().find(|then| is_same(then, vm))?;
                let length_ns = now.clock_ns.saturating_sub(before.clock_ns);
                Some(Interval::between(then, vm, length_ns))
            });
            Row::of(vm, over.as_ref())
        })
        .collect();
    rows.sort_by(|a, b| {
        let by_value = match sort {
            Sort::Name => Ordering::Equal,
            _ => b.key(sort).total_cmp(&a.key(sort)),
        };
        let order = by_value.then_with(|| a.name.cmp(&b.name));
        if is_reversed { order.reverse() } else { order }
    });
    rows
}

/// For a share or a size that is shown.
#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
pub fn float(number: u64) -> f64 {
    number as f64
}
