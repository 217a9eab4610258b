//! Rows of the VM list, and their order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use virtlens_model::judge::interval::{Interval, is_same};
use virtlens_model::snapshot::{Check, Severity, Snapshot, Vm};
use virtlens_model::vocab::Role;

use crate::views::pick::name_of;

/// A VM on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmId {
    /// Number of its node.
    pub node: usize,
    /// Its name on the node.
    pub vm: Arc<str>,
}

impl From<&str> for VmId {
    /// A VM of the first node.
    fn from(vm: &str) -> Self {
        let vm = vm.into();
        Self { node: 0, vm }
    }
}

/// A VM in the list. `None` means unknown.
#[derive(Debug, Clone)]
pub struct Row {
    /// Number of its node.
    pub node: usize,
    /// Name of its node; empty unless there are several.
    pub node_name: Arc<str>,
    /// Name of the VM on its node.
    pub vm: Arc<str>,
    /// Process id of the VMM.
    pub pid: u32,
    /// Display name.
    pub name: String,
    /// False once the VM has ended.
    pub is_running: bool,
    /// vCPUs that the guest can use.
    pub vcpus: u32,
    /// CPU time of all its threads, cores.
    pub cores: Option<f64>,
    /// Tightest limit, cores.
    pub quota_cores: Option<f64>,
    /// Usage of that limit, as a share of it.
    pub used: Option<f64>,
    /// Share of time in which that limit was throttled.
    pub throttled: Option<f64>,
    /// The busiest I/O worker, and its CPU time as a share of a core.
    pub worker: Option<(Role, u32, f64)>,
    /// Share of time that the longest waiting vCPU waited.
    pub wait: Option<f64>,
    /// Resident memory of its VMM, bytes.
    pub resident_bytes: Option<u64>,
    /// Memory of the guest, bytes.
    pub guest_bytes: Option<u64>,
    /// A letter for each kind of finding; upper case for a warning.
    pub flags: String,
}

/// Sort key of the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// CPU time.
    #[default]
    Cores,
    /// Usage of the limit, as a share of it.
    Used,
    /// Share of time in which the limit was throttled.
    Throttled,
    /// CPU time of the busiest worker.
    Worker,
    /// Wait time of the vCPU that waits most.
    Wait,
    /// Resident memory.
    Resident,
    /// The name.
    Name,
}

impl Sort {
    /// In column order.
    pub const ALL: [Self; 7] = [
        Self::Name,
        Self::Cores,
        Self::Used,
        Self::Throttled,
        Self::Worker,
        Self::Wait,
        Self::Resident,
    ];

    /// The next key to the right or left.
    #[must_use]
    pub fn step(self, right: bool) -> Self {
        let count = Self::ALL.len();
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + if right { 1 } else { count - 1 }) % count]
    }
}

impl Row {
    /// A VM in a reading, with its usage in the interval before; `node` is the number and the name
    /// of its node.
    pub(super) fn of(vm: &Vm, over: Option<&Interval>, node: (usize, &Arc<str>)) -> Self {
        let limit = over.and_then(Interval::binding);
        let worker = over.and_then(|over| {
            let workers = over.workers();
            let most = workers.max_by_key(|worker| worker.cpu_ns)?;
            Some((most.role, most.worker, over.cores(most.cpu_ns)))
        });
        Self {
            node: node.0,
            node_name: Arc::clone(node.1),
            vm: Arc::clone(&vm.vm),
            pid: vm.pid,
            name: name_of(vm),
            is_running: vm.running,
            vcpus: vm.vcpu_count.usable(),
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
            resident_bytes: vm.memory.resident_bytes,
            guest_bytes: vm.memory.guest_bytes,
            flags: flags(vm),
        }
    }

    /// The VM on the screen.
    pub fn id(&self) -> VmId {
        VmId {
            node: self.node,
            vm: Arc::clone(&self.vm),
        }
    }

    /// Whether it is this VM.
    pub fn is(&self, id: Option<&VmId>) -> bool {
        id.is_some_and(|id| id.node == self.node && id.vm == self.vm)
    }

    fn key(&self, sort: Sort) -> f64 {
        let value = match sort {
            Sort::Cores => self.cores,
            Sort::Used => self.used,
            Sort::Throttled => self.throttled,
            Sort::Worker => self.worker.map(|(_, _, busy)| busy),
            Sort::Wait => self.wait,
            Sort::Resident => self.resident_bytes.map(float),
            Sort::Name => None,
        };
        // Unknown values sort last.
        value.unwrap_or(-1.0)
    }

    /// Whether a name of the VM contains a text in lower case.
    pub(super) fn contains(&self, filter: &str) -> bool {
        self.name.to_lowercase().contains(filter) || self.vm.to_lowercase().contains(filter)
    }
}

fn flags(vm: &Vm) -> String {
    let mut flags: Vec<char> = Vec::new();
    for finding in vm.findings.iter().flat_map(|found| found.iter()) {
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

/// The letters and their meaning.
pub const FLAGS: [(char, &str); 8] = [
    ('Q', "CPU limit"),
    ('W', "I/O worker saturated"),
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
        Check::ReportingChurn | Check::MemoryKept | Check::DirtyLogging => 'M',
    }
}

/// The VMs of a node's reading, with their usage since the reading `before`. `node` is the number
/// and the name of the node.
pub fn rows(
    node: (usize, &Arc<str>),
    before: Option<&Snapshot>,
    now: &Snapshot,
) -> impl Iterator<Item = Row> {
    now.vms.iter().map(move |vm| {
        let over = before.and_then(|before| {
            let then = before.vms.iter().find(|then| is_same(then, vm))?;
            let length_ns = now.clock_ns.saturating_sub(before.clock_ns);
            Some(Interval::between(then, vm, length_ns))
        });
        Row::of(vm, over.as_ref(), node)
    })
}

/// Sorts rows.
pub fn sort(rows: &mut [Cow<'_, Row>], sort: Sort, is_reversed: bool) {
    rows.sort_by(|a, b| {
        let by_value = match sort {
            Sort::Name => Ordering::Equal,
            _ => b.key(sort).total_cmp(&a.key(sort)),
        };
        let by_name = a.name.cmp(&b.name);
        let order = by_value.then(by_name).then(a.node.cmp(&b.node));
        if is_reversed { order.reverse() } else { order }
    });
}

/// Converts to a float for display.
#[expect(clippy::cast_precision_loss, reason = "two digits are displayed")]
pub fn float(number: u64) -> f64 {
    number as f64
}
