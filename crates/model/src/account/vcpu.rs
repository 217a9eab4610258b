//! The counters of one vCPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::known::Known;
use crate::account::meter::Meter;
use crate::facts::VcpuStats;
use crate::vocab::{Halts, KvmCounters, Switches};

/// The counters of one vCPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VcpuMeter {
    /// CPU time of all threads that ran the vCPU, ns.
    pub cpu: Meter,
    /// Run delay of all threads that ran the vCPU, ns.
    pub wait: Meter,
    /// Guest-mode time, ns.
    pub guest: Meter,
    /// Context switches.
    pub switches: SwitchesMeter,
    /// KVM's counters, if they were ever read.
    pub stats: Known<StatsMeter>,
    /// CPU time by pCPU, ns.
    pub pcpus: BTreeMap<u32, Meter>,
    /// Histograms of its halts, if they were ever requested.
    pub halts: Known<Box<HaltsMeter>>,
}

impl VcpuMeter {
    /// The vCPU's threads belong to another process from now on.
    pub fn renew(&mut self) {
        self.cpu.renew();
        self.wait.renew();
        self.guest.renew();
        self.pcpus.values_mut().for_each(Meter::renew);
        self.switches.renew();
        if self.stats.get().is_some() {
            self.stats.change(StatsMeter::renew);
        } else {
            // The final values are unknown, so the counters restart.
            self.stats = Known::default();
        }
        self.halts.change(|halts| halts.renew());
    }

    /// Whether sources report the whole state.
    pub fn is_plain(&self) -> bool {
        let mut meters = [&self.cpu, &self.wait, &self.guest]
            .into_iter()
            .chain(self.switches.meters())
            .chain(self.pcpus.values());
        let former = self.stats.any().and_then(|stats| stats.former.as_ref());
        let halts = self.halts.any().and_then(|halts| halts.former.as_ref());
        former.is_none() && halts.is_none() && meters.all(Meter::is_plain)
    }

    /// Drops the state that sources report.
    pub fn drop_plain(&mut self) {
        self.pcpus.retain(|_, meter| !meter.is_plain());
        self.stats.change(StatsMeter::drop_plain);
        self.halts.change(|halts| halts.present = Halts::default());
    }

    /// Reads the present CPU time by pCPU, ns.
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

    /// Reads KVM's counters at the end of a thread of the vCPU. The counters of another
    /// `kvm_vcpu` than the last one read are ignored.
    pub fn read_ended(&mut self, stats: &VcpuStats) {
        let read = self.stats.any().map_or(0, |read| read.instance);
        if read == 0 || read == stats.instance {
            self.stats.now().read_ended(stats);
        }
    }

    /// Reads KVM's present counters. Returns true if they belong to another `kvm_vcpu`
    /// than before.
    pub fn read_stats(&mut self, stats: &VcpuStats) -> bool {
        self.stats.now().read(stats)
    }
}

/// Histograms of the halts of one vCPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HaltsMeter {
    instance: u64,
    /// Sum of former instances; usually none.
    former: Option<Halts>,
    /// Highest counts of the present instance.
    present: Halts,
}

impl HaltsMeter {
    /// The vCPU was recreated, possibly at the same address.
    fn renew(&mut self) {
        self.former = Some(self.total());
        self.present = Halts::default();
        self.instance = 0;
    }

    /// Reads the counts of a living vCPU.
    pub fn read(&mut self, instance: u64, halts: &Halts) {
        let is_elsewhere = self.instance != instance;
        if self.instance != 0 && (is_elsewhere || halts.fell_from(&self.present)) {
            self.renew();
        }
        self.instance = instance;
        self.present = self.present.with(halts, u64::max);
    }

    /// The totals, as last read.
    pub fn total(&self) -> Halts {
        self.former.as_ref().map_or(self.present, |former| {
            self.present.with(former, u64::saturating_add)
        })
    }
}

/// Context switches of the threads of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchesMeter {
    timeslices: Meter,
    involuntary: Meter,
}

impl SwitchesMeter {
    /// Reads the present numbers.
    pub fn read(&mut self, switches: Switches) {
        self.timeslices.read(switches.timeslices);
        self.involuntary.read(switches.involuntary);
    }

    /// The totals, as last read.
    pub fn total(&self) -> Switches {
        Switches {
            timeslices: self.timeslices.total(),
            involuntary: self.involuntary.total(),
        }
    }

    fn renew(&mut self) {
        self.timeslices.renew();
        self.involuntary.renew();
    }

    fn meters(&self) -> [&Meter; 2] {
        [&self.timeslices, &self.involuntary]
    }
}

/// KVM's counters of one vCPU: those of the present `kvm_vcpu` and of its predecessors.
/// There are thousands of these, so they are kept small.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StatsMeter {
    instance: u64,
    /// Sum of former instances; usually none.
    former: Option<Box<KvmCounters>>,
    /// Highest values of the present instance.
    present: KvmCounters,
    /// Last reported counters at the end of a thread of the vCPU.
    #[serde(default)]
    ended: Option<Box<KvmCounters>>,
    /// Whether `ended` belongs to a former instance at the same address.
    #[serde(default)]
    ended_before: bool,
}

impl StatsMeter {
    /// The vCPU was recreated, possibly at the same address.
    fn renew(&mut self) {
        self.former = Some(Box::new(self.total()));
        self.present = KvmCounters::default();
        self.instance = 0;
        (self.ended, self.ended_before) = (None, false);
    }

    /// Drops the state that sources report.
    fn drop_plain(&mut self) {
        self.present = KvmCounters::default();
        if !self.ended_before {
            self.ended = None;
        }
    }

    /// Reads the counters of a living vCPU. Returns true if it is another instance than
    /// before: it has another address, or its counters decreased, as in a VM that was
    /// created at the former one's address.
    fn read(&mut self, stats: &VcpuStats) -> bool {
        let counts = &stats.counters;
        let is_elsewhere = self.instance != stats.instance;
        let is_another = self.instance != 0 && (is_elsewhere || counts.fell_from(&self.present));
        if is_another {
            self.former = Some(Box::new(self.total()));
            self.present = KvmCounters::default();
            self.ended_before = !is_elsewhere;
        }
        if is_elsewhere {
            self.ended = None;
        }
        self.take(stats);
        is_another
    }

    /// Reads the counters at the end of a thread of the vCPU; the source repeats them in
    /// each reading.
    fn read_ended(&mut self, stats: &VcpuStats) {
        let counts = &stats.counters;
        let is_new = self.ended.as_deref() != Some(counts);
        if is_new {
            self.ended = Some(Box::new(*counts));
            self.ended_before = false;
        }
        if !self.ended_before {
            self.take(stats);
        }
    }

    fn take(&mut self, stats: &VcpuStats) {
        self.instance = stats.instance;
        self.present = self.present.with(&stats.counters, u64::max);
    }

    /// The totals, as last read.
    pub fn total(&self) -> KvmCounters {
        self.former.as_ref().map_or(self.present, |former| {
            self.present.with(former, u64::saturating_add)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{HaltsMeter, VcpuMeter};
    use crate::facts::VcpuStats;
    use crate::vocab::{ExitCounts, Halts, KvmCounters, KvmValues};

    fn stats(instance: u64, total: u64) -> VcpuStats {
        VcpuStats {
            instance,
            counters: KvmCounters::from(KvmValues {
                exits: Some(ExitCounts::of(total, [0; 6])),
                pf_fixed: Some(total),
                ..KvmValues::default()
            }),
            preempted: false,
        }
    }

    #[test]
    fn vcpu_recreated_at_same_address_continues_counters() {
        let mut meter = VcpuMeter::default();
        let total = |meter: &VcpuMeter| meter.stats.get().expect("was read").total().pf_fixed();
        assert!(!meter.read_stats(&stats(1, 50)));
        assert!(meter.read_stats(&stats(1, 3)), "KVM's counters never fall");
        assert!(!meter.read_stats(&stats(1, 4)));
        assert_eq!(total(&meter), Some(54));
        // Its thread ended, and the source repeats this next to the next thread's
        // counters.
        for now in [2, 5, 6] {
            meter.read_ended(&stats(1, 7));
            meter.read_stats(&stats(1, now));
        }
        assert_eq!(total(&meter), Some(50 + 7 + 6));
        meter.read_ended(&stats(1, 9));
        assert_eq!(total(&meter), Some(50 + 7 + 9));
    }

    #[test]
    fn vcpu_resumed_in_another_thread_counts_once() {
        let mut meter = VcpuMeter::default();
        for (ended, now) in [(5, 5), (5, 8), (9, 9), (9, 12)] {
            meter.read_ended(&stats(1, ended));
            assert!(!meter.read_stats(&stats(1, now)));
        }
        assert_eq!(
            meter.stats.get().expect("was read").total().pf_fixed(),
            Some(12)
        );
    }

    #[test]
    fn recreated_vcpu_continues_its_halts() {
        let halts = |count| Halts {
            wait: [count; 32],
            ..Halts::default()
        };
        let mut meter = HaltsMeter::default();
        for (instance, count) in [(1, 5), (1, 7), (2, 3), (2, 2), (2, 4)] {
            meter.read(instance, &halts(count));
        }
        assert_eq!(meter.total(), halts(7 + 3 + 4));
    }

    #[test]
    fn recreated_vcpu_continues_counters() {
        let mut meter = VcpuMeter::default();
        meter.read_stats(&stats(1, 50));
        meter.read_stats(&stats(2, 3));
        let read = meter.stats.get().expect("was read").total();
        assert_eq!(
            (read.exits().map(|exits| exits.other()), read.pf_fixed()),
            (Some(53), Some(53))
        );
        let unknown = (read.pf_taken(), read.halt_wait_ns());
        assert_eq!(
            unknown,
            (None, None),
            "a value that the kernel does not report stays unknown"
        );
    }
}
