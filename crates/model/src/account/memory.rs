//! Counters of memory.

use serde::{Deserialize, Serialize};

use crate::account::known::Known;
use crate::account::meter::Meter;
use crate::facts::DiscardsFact;
use crate::vocab::{DirtyLogging, Discard, DiscardSum, Discards};

/// The counters of one VM's memory.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryMeter {
    /// Events, bytes and ns of each kind.
    sums: Known<[[Meter; 3]; Discard::ALL.len()]>,
    refault: Meter,
    #[serde(skip)]
    peak_bytes: u64,
    /// Not handed over to the next agent, whose clock differs.
    #[serde(skip)]
    dirty_logging: Option<DirtyLogging>,
    /// When writes were first seen to be logged.
    #[serde(skip)]
    logged_since_ns: Option<u64>,
}

impl MemoryMeter {
    /// The VM was restarted with another VMM process.
    pub fn renew(&mut self) {
        let renew = |one: &mut [Meter; 3]| one.iter_mut().for_each(Meter::renew);
        self.sums.change(|sums| sums.iter_mut().for_each(renew));
        self.refault.renew();
        self.peak_bytes = 0;
        self.dirty_logging = None;
        self.logged_since_ns = None;
    }

    /// Reads at `now_ns` whether KVM logs the guest's writes; `None` if unknown.
    pub fn read_dirty_logging(&mut self, enabled: Option<bool>, now_ns: u64) {
        match enabled {
            Some(true) => self.logged_since_ns = self.logged_since_ns.or(Some(now_ns)),
            Some(false) => self.logged_since_ns = None,
            None => {}
        }
        self.dirty_logging = enabled.map(|enabled| DirtyLogging {
            enabled,
            seen_ns: self
                .logged_since_ns
                .map(|since_ns| now_ns.saturating_sub(since_ns)),
        });
    }

    /// Whether KVM logs the guest's writes; `None` if unknown.
    pub fn dirty_logging(&self) -> Option<DirtyLogging> {
        self.dirty_logging
    }

    /// The VM ended while no agent was running: the last reuse of memory is unknown.
    pub fn end_unseen(&mut self) {
        self.refault = Meter::default();
    }

    /// Highest resident memory so far, bytes; `bytes` is the present value.
    pub fn peak_bytes(&mut self, bytes: u64) -> u64 {
        self.peak_bytes = self.peak_bytes.max(bytes);
        self.peak_bytes
    }

    /// Reads the reported memory that the guest has reused, bytes.
    pub fn read_refault(&mut self, bytes: u64) {
        self.refault.read(bytes);
    }

    /// Reported memory that the guest has reused, bytes.
    pub fn refault_bytes(&self) -> u64 {
        self.refault.total()
    }

    /// Reads the discards.
    pub fn read(&mut self, fact: &DiscardsFact) {
        for ([events, bytes, ns], sum) in self.sums.now().iter_mut().zip(fact.sums) {
            events.read(sum.events);
            bytes.read(sum.bytes);
            ns.read(sum.ns);
        }
    }

    /// Discards of RAM; `None` if they are not tracked.
    pub fn discards(&self) -> Option<Discards> {
        let [inflate, deflate, report, other] =
            self.sums.get()?.map(|[events, bytes, ns]| DiscardSum {
                events: events.total(),
                bytes: bytes.total(),
                ns: ns.total(),
            });
        Some(Discards {
            inflate,
            deflate,
            report,
            other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryMeter;
    use crate::facts::DiscardsFact;
    use crate::vocab::DiscardSum;

    #[test]
    fn dirty_logging_counts_from_first_reading_that_shows_it() {
        let mut meter = MemoryMeter::default();
        let mut seen_ns = |enabled, now_ns| {
            meter.read_dirty_logging(enabled, now_ns);
            meter.dirty_logging().map(|one| (one.enabled, one.seen_ns))
        };
        assert_eq!(seen_ns(None, 5), None);
        assert_eq!(seen_ns(Some(false), 10), Some((false, None)));
        assert_eq!(seen_ns(Some(true), 20), Some((true, Some(0))));
        assert_eq!(seen_ns(Some(true), 35), Some((true, Some(15))));
        assert_eq!(seen_ns(None, 40), None);
        assert_eq!(seen_ns(Some(true), 50), Some((true, Some(30))));
        assert_eq!(seen_ns(Some(false), 60), Some((false, None)));
        assert_eq!(seen_ns(Some(true), 70), Some((true, Some(0))));
    }

    #[test]
    fn restarted_vm_continues_counters() {
        let mut meter = MemoryMeter::default();
        assert_eq!(meter.discards(), None, "what is not followed is absent");
        let fact = |bytes| {
            let mut fact = DiscardsFact::default();
            fact.sums[2] = DiscardSum {
                events: 1,
                bytes,
                ns: 7,
            };
            fact
        };
        meter.read(&fact(100));
        meter.renew();
        meter.read(&fact(30));
        let report = meter.discards().expect("it was read").report;
        assert_eq!((report.events, report.bytes, report.ns), (2, 130, 14));
    }
}
