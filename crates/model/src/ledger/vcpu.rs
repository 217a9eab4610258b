//! The counters of one vCPU.

use std::collections::BTreeMap;

use super::Meter;
use crate::facts::VcpuStats;
use crate::snapshot::{ExitCounts, HaltPoll};

/// The counters of one vCPU.
#[derive(Debug, Clone, Default)]
pub struct VcpuMeter {
    /// CPU time of all threads that ran it, ns.
    pub cpu: Meter,
    /// Run delay of all threads that ran it, ns.
    pub wait: Meter,
    /// Guest-mode time, ns.
    pub guest: Meter,
    /// KVM's counters, if they were ever read.
    pub stats: Option<StatsMeter>,
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

    /// KVM's counters as they are now.
    pub fn read_stats(&mut self, stats: &VcpuStats) {
        self.stats.get_or_insert_default().read(stats);
    }
}

/// KVM's counters of one vCPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatsMeter {
    instance: u64,
    poll_success: Meter,
    poll_fail: Meter,
    halt_wait: Option<Meter>,
    exits: [Meter; 7],
    pf_fixed: Meter,
    pf_taken: Option<Meter>,
}

impl StatsMeter {
    fn read(&mut self, stats: &VcpuStats) {
        if self.instance != stats.instance {
            self.instance = stats.instance;
            self.each().for_each(Meter::renew);
        }
        self.poll_success.read(stats.halt_poll_success_ns);
        self.poll_fail.read(stats.halt_poll_fail_ns);
        self.pf_fixed.read(stats.pf_fixed);
        if let Some(ns) = stats.halt_wait_ns {
            self.halt_wait.get_or_insert_default().read(ns);
        }
        if let Some(faults) = stats.pf_taken {
            self.pf_taken.get_or_insert_default().read(faults);
        }
        for (meter, value) in self.exits.iter_mut().zip(stats.exits.by_class()) {
            meter.read(value);
        }
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Meter> {
        [
            &mut self.poll_success,
            &mut self.poll_fail,
            &mut self.pf_fixed,
        ]
        .into_iter()
        .chain(&mut self.halt_wait)
        .chain(&mut self.pf_taken)
        .chain(&mut self.exits)
    }

    /// Time spent polling in a HLT.
    pub fn halt_poll(&self) -> HaltPoll {
        HaltPoll {
            success: self.poll_success.total(),
            fail: self.poll_fail.total(),
        }
    }

    /// Time blocked in a HLT, ns.
    pub fn halt_wait_ns(&self) -> Option<u64> {
        self.halt_wait.map(|meter| meter.total())
    }

    /// Page faults fixed, and taken.
    pub fn page_faults(&self) -> (u64, Option<u64>) {
        (
            self.pf_fixed.total(),
            self.pf_taken.map(|meter| meter.total()),
        )
    }

    /// Exits by class.
    pub fn exits(&self) -> ExitCounts {
        ExitCounts(self.exits.map(|meter| meter.total()))
    }
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
        let read = meter.stats.expect("was read");
        assert_eq!((read.exits().other(), read.page_faults()), (53, (53, None)));
        assert_eq!(
            read.halt_wait_ns(),
            None,
            "what the kernel does not tell stays unknown"
        );
    }
}
