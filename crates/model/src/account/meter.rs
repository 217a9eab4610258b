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

    /// Of what the source counts from here on, so much more is not added.
    pub fn skip(&mut self, value: u64) {
        self.skipped = self.skipped.saturating_add(value);
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.shown
    }

    /// How much of its source's count it holds, or has skipped.
    pub fn counted(&self) -> u64 {
        let counted = self.shown.saturating_sub(self.base);
        self.skipped.saturating_add(counted)
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

/// A total of a VM: what its VMM process counted, and what the other processes of its
/// pod counted while their time was this VM's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(Meter, u64)", from = "(Meter, u64)")]
pub struct PodMeter {
    /// Of the VMM processes of this VM, one after another.
    own: Meter,
    /// Of the other processes of its pod.
    pod: Meter,
    /// Only what the pod's processes count after the next reading is this VM's.
    skips_pod: bool,
}

impl PodMeter {
    /// `own` is of the VMM's process, `pod` of the other processes of its pod; 0 where
    /// their time is another VM's.
    pub fn read(&mut self, own: u64, pod: u64) -> u64 {
        if std::mem::take(&mut self.skips_pod) {
            self.pod.turn_to(pod);
        }
        self.own.read(own).saturating_add(self.pod.read(pod))
    }

    /// The VMM's process is replaced by another; the pod's other processes
    /// go on.
    pub fn succeed(&mut self) {
        self.own.renew();
    }

    /// From now on the time of the pod's other processes is this VM's, from where
    /// `former` had counted it; all of it where no VM had.
    pub fn take_pod(&mut self, former: Option<&Self>) {
        self.pod
            .turn_to(former.map_or(0, |former| former.pod.counted()));
    }

    /// Of what the pod's processes count, so much was this VM's before.
    pub fn skip_pod(&mut self, counted: u64) {
        self.pod.skip(counted);
    }

    /// The time of the pod's other processes is another VM's from now on.
    pub fn leave_pod(&mut self) {
        self.pod.turn_to(self.pod.counted());
    }

    /// As [`PodMeter::take_pod`] where it is not known how far another VM had counted it.
    pub fn take_pod_from_next(&mut self) {
        self.skips_pod = true;
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.own.total().saturating_add(self.pod.total())
    }

    /// See [`Meter::is_plain`].
    pub fn is_plain(&self) -> bool {
        self.own.is_plain() && self.pod.is_plain()
    }
}

/// A VMM process is counted from its beginning: nothing of it is ever skipped.
impl From<PodMeter> for (Meter, u64) {
    fn from(meter: PodMeter) -> Self {
        (meter.pod, meter.own.base)
    }
}

impl From<(Meter, u64)> for PodMeter {
    fn from((pod, former): (Meter, u64)) -> Self {
        Self {
            own: Meter::from([former, 0]),
            pod,
            skips_pod: false,
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

    /// See [`PodMeter::take_pod`].
    pub fn take_pod(&mut self, former: Option<&Self>) {
        self.cpu.take_pod(former.map(|former| &former.cpu));
        self.wait.take_pod(former.map(|former| &former.wait));
    }

    /// See [`PodMeter::skip_pod`].
    pub fn skip_pod(&mut self, counted: Times) {
        self.cpu.skip_pod(counted.cpu_ns);
        self.wait.skip_pod(counted.wait_ns);
    }

    /// See [`PodMeter::leave_pod`].
    pub fn leave_pod(&mut self) {
        self.cpu.leave_pod();
        self.wait.leave_pod();
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
