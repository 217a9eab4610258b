//! The counters of one vCPU.

use std::collections::BTreeMap;

use crate::account::known::Known;
use crate::account::meter::Meter;
use crate::facts::VcpuStats;
use crate::vocab::{ExitCounts, HaltPoll};
use serde::{Deserialize, Serialize};

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
    pub fn renew(&mut self) {
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
    pub fn is_plain(&self) -> bool {
        let mut meters = [&self.cpu, &self.wait, &self.guest]
            .into_iter()
            .chain(self.pcpus.values());
        let former = self.stats.any().and_then(|stats| stats.former.as_ref());
        former.is_none() && meters.all(Meter::is_plain)
    }

    /// Drops what a source tells.
    pub fn drop_plain(&mut self) {
        self.pcpus.retain(|_, meter| !meter.is_plain());
        self.stats.change(StatsMeter::drop_plain);
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
            self.stats.now().read_ended(stats);
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
    /// What was told last as the end of a thread that ran it.
    #[serde(default)]
    ended: Option<Box<Counts>>,
    /// That is the end of a former one, which lay where the present one lies.
    #[serde(default)]
    ended_before: bool,
    halt_wait_known: bool,
    pf_taken_known: bool,
}

/// Counters of one or more instances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Whether one of them is lower than in `other`: KVM's never fall. Exits of no kind
    /// are left out, as they follow from others.
    fn fell_from(&self, other: &Self) -> bool {
        let all = |counts: &Self| {
            let [kinds @ .., _] = counts.exits;
            let times = [counts.poll_success, counts.poll_fail, counts.halt_wait];
            let faults = [counts.pf_fixed, counts.pf_taken];
            kinds.into_iter().chain(times).chain(faults)
        };
        all(self).zip(all(other)).any(|(now, before)| now < before)
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
        (self.ended, self.ended_before) = (None, false);
    }

    /// Drops what a source tells.
    fn drop_plain(&mut self) {
        self.present = Counts::default();
        if !self.ended_before {
            self.ended = None;
        }
    }

    /// The counters of a vCPU that lives. True if it is another one than before: it lies
    /// elsewhere, or counts from zero, as one does of a VM that was made where the former
    /// one was.
    fn read(&mut self, stats: &VcpuStats) -> bool {
        let counts = Counts::of(stats);
        let is_elsewhere = self.instance != stats.instance;
        let is_another = self.instance != 0 && (is_elsewhere || counts.fell_from(&self.present));
        if is_another {
            self.former = Some(Box::new(self.total()));
            self.present = Counts::default();
            self.ended_before = !is_elsewhere;
        }
        if is_elsewhere {
            self.ended = None;
        }
        self.take(stats, &counts);
        is_another
    }

    /// The counters of a vCPU as a thread that ran it ended; told again in each reading.
    fn read_ended(&mut self, stats: &VcpuStats) {
        let counts = Counts::of(stats);
        let is_new = self.ended.as_deref() != Some(&counts);
        if is_new {
            self.ended = Some(Box::new(counts));
            self.ended_before = false;
        }
        if !self.ended_before {
            self.take(stats, &counts);
        }
    }

    fn take(&mut self, stats: &VcpuStats, counts: &Counts) {
        self.instance = stats.instance;
        self.halt_wait_known |= stats.halt_wait_ns.is_some();
        self.pf_taken_known |= stats.pf_taken.is_some();
        self.present = self.present.with(counts, u64::max);
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

    fn stats(instance: u64, total: u64) -> VcpuStats {
        let mut stats = VcpuStats {
            instance,
            pf_fixed: total,
            ..VcpuStats::default()
        };
        stats.exits.total = total;
        stats
    }

    #[test]
    fn vcpu_made_anew_at_the_same_address_counts_on() {
        let mut meter = VcpuMeter::default();
        let total = |meter: &VcpuMeter| meter.stats.get().expect("was read").shown().pf_fixed;
        assert!(!meter.read_stats(&stats(1, 50)));
        assert!(meter.read_stats(&stats(1, 3)), "KVM's counters never fall");
        assert!(!meter.read_stats(&stats(1, 4)));
        assert_eq!(total(&meter), 54);
        // Its thread ended, and that is told again beside the next one's.
        for now in [2, 5, 6] {
            meter.read_ended(&stats(1, 7));
            meter.read_stats(&stats(1, now));
        }
        assert_eq!(total(&meter), 50 + 7 + 6);
        meter.read_ended(&stats(1, 9));
        assert_eq!(total(&meter), 50 + 7 + 9);
    }

    #[test]
    fn vcpu_that_comes_back_in_another_thread_counts_once() {
        let mut meter = VcpuMeter::default();
        for (ended, now) in [(5, 5), (5, 8), (9, 9), (9, 12)] {
            meter.read_ended(&stats(1, ended));
            assert!(!meter.read_stats(&stats(1, now)));
        }
        assert_eq!(meter.stats.get().expect("was read").shown().pf_fixed, 12);
    }

    #[test]
    fn a_vcpu_made_anew_counts_on() {
        let mut meter = VcpuMeter::default();
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
