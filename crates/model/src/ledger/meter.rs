//! Totals that never fall.

use serde::{Deserialize, Serialize};

/// A total that never falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u64; 2]", from = "[u64; 2]")]
pub struct Meter {
    /// What counted before the source began anew.
    base: u64,
    /// What the source had counted before it was this meter's.
    skipped: u64,
    /// The highest total so far.
    shown: u64,
}

impl Meter {
    /// The source says `value` now. Returns the total.
    pub fn read(&mut self, value: u64) -> u64 {
        let counted = value.saturating_sub(self.skipped);
        self.shown = self.shown.max(self.base.saturating_add(counted));
        self.shown
    }

    /// The source counts from zero again: what it said so far stays.
    pub fn renew(&mut self) {
        self.turn_to(0);
    }

    /// From now on another source is read, which says `value` now: only what
    /// it counts from here on is added.
    pub fn turn_to(&mut self, value: u64) {
        self.base = self.shown;
        self.skipped = value;
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.shown
    }

    /// The highest value that its source has said, as far as that counts.
    pub fn value(&self) -> u64 {
        self.skipped
            .saturating_add(self.shown.saturating_sub(self.base))
    }

    /// Whether it is all that its source has counted, and nothing else.
    pub fn is_plain(&self) -> bool {
        self.base == 0 && self.skipped == 0
    }
}

/// What its source does not tell; the rest is read anew.
impl From<Meter> for [u64; 2] {
    fn from(meter: Meter) -> Self {
        [meter.base, meter.skipped]
    }
}

impl From<[u64; 2]> for Meter {
    fn from([base, skipped]: [u64; 2]) -> Self {
        Self {
            base,
            skipped,
            shown: base,
        }
    }
}

/// Times of one role, by where they come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: u64,
}

impl Times {
    /// Adds a thread's.
    pub fn add(&mut self, cpu_ns: u64, wait_ns: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(cpu_ns);
        self.wait_ns = self.wait_ns.saturating_add(wait_ns);
    }
}

/// A total of a VM's pod: a part of it comes from the VMM's own process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(Meter, u64)", from = "(Meter, u64)")]
pub struct PodMeter {
    meter: Meter,
    /// The most that came from the VMM's own process.
    own: u64,
    /// What came from VMM processes of this VM before the present one.
    former: u64,
}

impl PodMeter {
    /// `own` is of the VMM's process, `pod` of the other processes of its pod.
    pub fn read(&mut self, own: u64, pod: u64) -> u64 {
        self.own = self.own.max(own);
        let total = self.former.saturating_add(self.own).saturating_add(pod);
        self.meter.read(total)
    }

    /// The VMM's process is replaced by another; the pod's other processes
    /// go on.
    pub fn succeed(&mut self) {
        self.former = self.former.saturating_add(self.own);
        self.own = 0;
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.meter.total()
    }

    /// See [`Meter::is_plain`].
    pub fn is_plain(&self) -> bool {
        self.meter.is_plain() && self.former == 0
    }
}

impl From<PodMeter> for (Meter, u64) {
    fn from(meter: PodMeter) -> Self {
        (meter.meter, meter.former)
    }
}

impl From<(Meter, u64)> for PodMeter {
    fn from((meter, former): (Meter, u64)) -> Self {
        Self {
            meter,
            own: 0,
            former,
        }
    }
}

/// The times of one role (or of what has none) as they are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[PodMeter; 2]", from = "[PodMeter; 2]")]
pub struct TimesMeter {
    cpu: PodMeter,
    wait: PodMeter,
}

impl TimesMeter {
    /// `own` is of the VMM's process, `pod` of the other processes of its pod.
    pub fn read(&mut self, own: Times, pod: Times) -> Times {
        Times {
            cpu_ns: self.cpu.read(own.cpu_ns, pod.cpu_ns),
            wait_ns: self.wait.read(own.wait_ns, pod.wait_ns),
        }
    }

    /// See [`PodMeter::succeed`].
    pub fn succeed(&mut self) {
        self.cpu.succeed();
        self.wait.succeed();
    }
}

impl From<TimesMeter> for [PodMeter; 2] {
    fn from(meter: TimesMeter) -> Self {
        [meter.cpu, meter.wait]
    }
}

impl From<[PodMeter; 2]> for TimesMeter {
    fn from([cpu, wait]: [PodMeter; 2]) -> Self {
        Self { cpu, wait }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{Meter, Times, TimesMeter};

    #[test]
    fn a_meter_shows_the_highest_until_the_source_caught_up() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(100), 100);
        assert_eq!(meter.read(60), 100, "a dip does not show");
        assert_eq!(meter.read(110), 110, "and leaves nothing behind");
        meter.renew();
        assert_eq!(meter.read(5), 115, "a source made anew adds to the old");
        meter.turn_to(1000);
        assert_eq!(
            meter.read(1003),
            118,
            "of another source only what is new counts"
        );
    }

    proptest! {
        #[test]
        fn no_meter_falls(steps in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..64)) {
            let mut meter = Meter::default();
            let mut before = 0;
            for (value, renewed) in steps {
                if renewed {
                    meter.renew();
                }
                let now = meter.read(value);
                prop_assert!(now >= before);
                before = now;
            }
        }

        /// A VM restarted in its pod: what its processes used adds up, what
        /// the pod's other processes used counts once.
        #[test]
        fn a_restart_counts_each_process_once(
            lives in proptest::collection::vec(0u64..1_000_000, 1..8),
            pods in proptest::collection::vec(0u64..1_000_000, 8),
        ) {
            let mut meter = TimesMeter::default();
            let (mut own, mut pod, mut shown) = (0, 0, 0);
            for (life, more) in lives.iter().zip(pods) {
                own += life;
                pod += more;
                let times = |cpu_ns| Times { cpu_ns, wait_ns: 0 };
                shown = meter.read(times(*life), times(pod)).cpu_ns;
                meter.succeed();
            }
            prop_assert_eq!(shown, own + pod);
        }
    }
}
