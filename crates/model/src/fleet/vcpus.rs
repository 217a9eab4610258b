//! The vCPUs of one VM: times of their threads, and their shown values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::account::meter::Times;
use crate::account::vcpu::{StatsMeter, VcpuMeter};
use crate::facts::{HaltsFact, ThreadFact, VcpuFact, VcpuStats};
use crate::identify::place::{Cgroups, Place};
use crate::snapshot::Vcpu;
use crate::vocab::topology::guest::GuestTopology;
use crate::vocab::topology::host::HostTopology;
use crate::vocab::{CgroupId, Switches};

/// Values that the source lacks for a living thread. The value of the VM is then unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lacking {
    /// Run delay.
    pub(super) wait: bool,
    /// Context switches.
    pub(super) switches: bool,
}

/// Times of all threads of one vCPU.
#[derive(Debug, Default)]
pub(super) struct VcpuSums<'a> {
    pub(super) times: Times,
    pub(super) guest_ns: u64,
    /// Context switches, as far as known.
    pub(super) switches: Switches,
    pub(super) living: Option<(&'a ThreadFact, &'a VcpuFact)>,
    /// A thread of this VM that ran the vCPU has ended.
    pub(super) has_ended: bool,
    /// KVM's counters at the end of one of its threads.
    pub(super) ended: Option<&'a VcpuStats>,
    /// Histograms of its halts, if they were requested.
    pub(super) halts: Option<&'a HaltsFact>,
    /// CPU time by pCPU up to the last move, ns, if it was read.
    pub(super) pcpus: BTreeMap<u32, u64>,
}

/// The vCPUs of a VM by id. Few and usually sorted: a Vec is faster than a map.
#[derive(Debug, Default)]
pub(super) struct Vcpus<'a>(pub(super) Vec<(u32, VcpuSums<'a>)>);

impl<'a> Vcpus<'a> {
    pub(super) fn of(&mut self, id: u32) -> &mut VcpuSums<'a> {
        let at = self.at(id).unwrap_or_else(|at| {
            self.0.insert(at, (id, VcpuSums::default()));
            at
        });
        &mut self.0[at].1
    }

    pub(super) fn get(&self, id: u32) -> Option<&VcpuSums<'a>> {
        Some(&self.0[self.at(id).ok()?].1)
    }

    /// Number of vCPUs that ran and have no living thread, according to this reading and
    /// to `has_run`. A vCPU that never ran is not parked.
    pub(super) fn parked(&self, has_run: &[u32]) -> usize {
        let lives = |id: u32| self.get(id).is_some_and(|sums| sums.living.is_some());
        let ended = self.0.iter().filter(|(_, sums)| sums.has_ended);
        let ran = ended.map(|(id, _)| *id).chain(has_run.iter().copied());
        let mut parked: Vec<u32> = ran.filter(|id| !lives(*id)).collect();
        parked.sort_unstable();
        parked.dedup();
        parked.len()
    }

    /// Index of a vCPU, or its insertion point.
    fn at(&self, id: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id)
    }
}

impl VcpuSums<'_> {
    /// Adds the time since the last move to the present pCPU.
    pub(super) fn settle_pcpus(&mut self) {
        let Some((thread, vcpu)) = self.living else {
            return;
        };
        if let (Some(pcpu), Some(charged_ns)) = (thread.pcpu, vcpu.charged_ns) {
            let since_ns = thread.cpu_ns.saturating_sub(charged_ns);
            let sum = self.pcpus.entry(pcpu).or_default();
            *sum = sum.saturating_add(since_ns);
        }
    }
}

/// The values that this reading has for every vCPU of a VM.
pub(super) struct VcpusKnown<'a> {
    pub(super) lacking: Lacking,
    pub(super) guest_time: bool,
    pub(super) topology: Option<GuestTopology>,
    pub(super) residency: bool,
    pub(super) place: Option<&'a Place>,
    pub(super) cgroups: &'a Cgroups<'a>,
    pub(super) host: &'a HostTopology,
}

impl VcpusKnown<'_> {
    /// Path of a cgroup: usually that of the VM.
    fn path(&self, cgroup: CgroupId) -> Option<Arc<str>> {
        let place = self.place.filter(|place| place.cgroup == cgroup);
        if let Some(place) = place {
            return Some(Arc::clone(&place.path));
        }
        Some(Arc::clone(&self.cgroups.get(&cgroup)?.path))
    }
}

/// A vCPU with the totals of `meter`.
pub(super) fn shown(
    id: u32,
    meter: &VcpuMeter,
    living: Option<(&ThreadFact, &VcpuFact)>,
    known: &VcpusKnown<'_>,
) -> Vcpu {
    let thread = living.map(|(thread, _)| thread);
    let pcpu = thread.and_then(|thread| thread.pcpu);
    let kvm = meter.stats.get().map(StatsMeter::total);
    // Every thread that ran was put on a CPU.
    let switches = Some(meter.switches.total());
    let switches = switches.filter(|total| !known.lacking.switches && total.timeslices > 0);
    Vcpu {
        id,
        index: living.and_then(|(_, vcpu)| vcpu.index),
        tid: thread.map(|thread| thread.tid),
        cpu_ns: meter.cpu.total(),
        wait_ns: (!known.lacking.wait).then(|| meter.wait.total()),
        guest_ns: (known.guest_time || meter.guest.total() > 0).then(|| meter.guest.total()),
        timeslices: switches.map(|switches| switches.timeslices),
        involuntary_switches: switches.map(|switches| switches.involuntary),
        kvm: kvm.unwrap_or_default(),
        preempted: living.and_then(|(_, vcpu)| Some(vcpu.stats?.preempted)),
        cgroup: thread.and_then(|thread| known.path(thread.cgroup)),
        pcpu,
        affinity: thread.and_then(|thread| thread.affinity.clone()),
        guest: known.topology.map(|guest| guest.place(id)),
        host: pcpu.and_then(|pcpu| known.host.place(pcpu)).copied(),
        residency_ns: if known.residency {
            meter.residency_ns()
        } else {
            BTreeMap::new()
        },
    }
}
