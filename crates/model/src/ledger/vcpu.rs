//! The counters of one vCPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Known, Meter};
use crate::facts::VcpuStats;
use crate::snapshot::{ExitCounts, HaltPoll};

/// The counters of one vCPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VcpuMeter {
    /// CPU time of all threads that ran it, ns.
    pub cpu: Meter,
    /// Run delay of all threads that ran it, ns.
    pub wait: Meter,
    /// Guest-mode time, ns.
    pub guest: Meter,
    /// KVM's counters, if they were ever read.
    pub stats: Known<StatsMeter>,
    /// CPU time by pCPU, ns.
    pub pcpus: BTreeMap<u32, Meter>,
}

impl VcpuMeter {
    /// The vCPU's threads are another process's from now on.
    pub(super) fn renew(&mut self) {
        self.cpu.renew();
        self.wait.renew();
        self.guest.renew();
        self.pcpus.values_mut().for_each(Meter::renew);
        if self.stats.get().is_some() {
            self.stats.change(StatsMeter::renew);
        } else {
            // What was not read to its end begins anew.
            self.stats = Known::default();
        }
    }

    /// Whether sources tell all that it holds.
    pub(super) fn is_plain(&self) -> bool {
        let mut meters = [&self.cpu, &self.wait, &self.guest]
            .into_iter()
            .chain(self.pcpus.values());
        let former = self.stats.any().and_then(|stats| stats.former.as_ref());
        former.is_none() && meters.all(Meter::is_plain)
    }

    /// Drops what a source tells.
    pub(super) fn drop_plain(&mut self) {
        self.pcpus.retain(|_, meter| !meter.is_plain());
        self.stats.change(|stats| stats.present = Counts::default());
    }

    /// CPU time by pCPU as it is now, ns.
    pub fn read_pcpus(&mut self, by_pcpu: &BTreeMap<u32, u64>) {
        for (pcpu, ns) in by_pcpu {
            self.pcpus.entry(*pcpu).or_default().read(*ns);
        }
    }

    /// CPU time by pCPU as last read, ns.
    pub fn residency_ns(&self) -> BTreeMap<u32, u64> {
        let total = |(pcpu, meter): (&u32, &Meter)| (*pcpu, meter.total());
        self.pcpus.iter().map(total).collect()
    }

    /// KVM's counters as a thread of it ended. Those of another `kvm_vcpu` than the
    /// one that was read last are not its end.
    pub fn read_ended(&mut self, stats: &VcpuStats) {
        let read = self.stats.any().map_or(0, |read| read.instance);
        if read == 0 || read == stats.instance {
            self.stats.now().read(stats);
        }
    }

    /// KVM's counters as they are now. True if they are another `kvm_vcpu`'s than
    /// before.
    pub fn read_stats(&mut self, stats: &VcpuStats) -> bool {
        self.stats.now().read(stats)
    }
}

/// KVM's counters of one vCPU: of the `kvm_vcpu` that is there, and of those
/// before it. There are thousands of these, so they are kept small.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StatsMeter {
    instance: u64,
    /// What former instances had counted; mostly there was none.
    former: Option<Box<Counts>>,
    /// The highest so far of the present one.
    present: Counts,
    halt_wait_known: bool,
    pf_taken_known: bool,
}

/// Counters of one or more instances.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Counts {
    poll_success: u64,
    poll_fail: u64,
    halt_wait: u64,
    pf_fixed: u64,
    pf_taken: u64,
    exits: [u64; 7],
}

impl Counts {
    fn of(stats: &VcpuStats) -> Self {
        Self {
            poll_success: stats.halt_poll_success_ns,
            poll_fail: stats.halt_poll_fail_ns,
            halt_wait: stats.halt_wait_ns.unwrap_or(0),
            pf_fixed: stats.pf_fixed,
            pf_taken: stats.pf_taken.unwrap_or(0),
            exits: stats.exits.by_class(),
        }
    }

    /// One by one with `other`.
    fn with(mut self, other: &Self, one: fn(u64, u64) -> u64) -> Self {
        for (mine, its) in [
            (&mut self.poll_success, other.poll_success),
            (&mut self.poll_fail, other.poll_fail),
            (&mut self.halt_wait, other.halt_wait),
            (&mut self.pf_fixed, other.pf_fixed),
            (&mut self.pf_taken, other.pf_taken),
        ]
        .into_iter()
        .chain(self.exits.iter_mut().zip(other.exits))
        {
            *mine = one(*mine, its);
        }
        self
    }
}

impl StatsMeter {
    /// The vCPU is made anew; the new one may lie where the old one was.
    fn renew(&mut self) {
        self.former = Some(Box::new(self.total()));
        self.present = Counts::default();
        self.instance = 0;
    }

    fn read(&mut self, stats: &VcpuStats) -> bool {
        let is_another = self.instance != stats.instance && self.instance != 0;
        if is_another {
            self.former = Some(Box::new(self.total()));
            self.present = Counts::default();
        }
        self.instance = stats.instance;
        self.halt_wait_known |= stats.halt_wait_ns.is_some();
        self.pf_taken_known |= stats.pf_taken.is_some();
        self.present = self.present.with(&Counts::of(stats), u64::max);
        is_another
    }

    fn total(&self) -> Counts {
        self.former.as_ref().map_or(self.present, |former| {
            self.present.with(former, u64::saturating_add)
        })
    }

    /// All of them, as last read.
    pub fn shown(&self) -> Stats {
        let total = self.total();
        Stats {
            halt_poll_ns: HaltPoll {
                success: total.poll_success,
                fail: total.poll_fail,
            },
            halt_wait_ns: self.halt_wait_known.then_some(total.halt_wait),
            exits: ExitCounts(total.exits),
            pf_fixed: total.pf_fixed,
            pf_taken: self.pf_taken_known.then_some(total.pf_taken),
        }
    }
}

/// KVM's counters of one vCPU, as they are shown.
#[derive(Debug, Clone, Copy)]
pub struct Stats {
    /// Time spent polling in a HLT.
    pub halt_poll_ns: HaltPoll,
    /// Time blocked in a HLT, ns.
    pub halt_wait_ns: Option<u64>,
    /// Exits by class.
    pub exits: ExitCounts,
    /// Page faults that KVM fixed.
    pub pf_fixed: u64,
    /// Page faults taken.
    pub pf_taken: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::VcpuMeter;
    use crate::facts::VcpuStats;

    #[test]
    fn a_vcpu_made_anew_counts_on() {
        let mut meter = VcpuMeter::default();
        let stats = |instance, total| {
            let mut stats = VcpuStats {
                instance,
                pf_fixed: total,
                ..VcpuStats::default()
            };
            stats.exits.total = total;
            stats
        };
        meter.read_stats(&stats(1, 50));
        meter.read_stats(&stats(2, 3));
        let read = meter.stats.get().expect("was read").shown();
        assert_eq!((read.exits.other(), read.pf_fixed), (53, 53));
        let unknown = (read.pf_taken, read.halt_wait_ns);
        assert_eq!(
            unknown,
            (None, None),
            "what the kernel does not tell stays so"
        );
    }
}
