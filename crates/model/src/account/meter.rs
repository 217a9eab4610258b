//! Monotonic totals.

use serde::{Deserialize, Serialize};

/// A total that never decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u64; 2]", from = "[u64; 2]")]
pub struct Meter {
    /// The total before the source restarted.
    base: u64,
    /// The part of the source's value that does not count for this meter.
    skipped: u64,
    /// The highest total so far.
    shown: u64,
}

impl Meter {
    /// Reads the source's present value. Returns the total.
    pub fn read(&mut self, value: u64) -> u64 {
        let counted = value.saturating_sub(self.skipped);
        self.shown = self.shown.max(self.base.saturating_add(counted));
        self.shown
    }

    /// The source restarted from zero: the total is kept.
    pub fn renew(&mut self) {
        self.switch_to(0);
    }

    /// Switches to another source with the present value `value`: only later increments
    /// are added.
    pub fn switch_to(&mut self, value: u64) {
        self.base = self.shown;
        self.skipped = value;
    }

    /// Excludes a further `value` of the source's count.
    pub fn skip(&mut self, value: u64) {
        self.skipped = self.skipped.saturating_add(value);
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.shown
    }

    /// The source's value up to which this meter has counted or skipped.
    pub fn counted(&self) -> u64 {
        let counted = self.shown.saturating_sub(self.base);
        self.skipped.saturating_add(counted)
    }

    /// Whether the total equals the source's value.
    pub fn is_plain(&self) -> bool {
        self.base == 0 && self.skipped == 0
    }
}

/// The part that cannot be read from the source again.
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

/// CPU time and run delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: u64,
}

impl Times {
    /// Adds the times of a thread.
    pub fn add(&mut self, cpu_ns: u64, wait_ns: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(cpu_ns);
        self.wait_ns = self.wait_ns.saturating_add(wait_ns);
    }
}

/// A total of a VM: the value of its VMM process, plus the increments of the pod's other
/// processes while they were counted for this VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(Meter, u64)", from = "(Meter, u64)")]
pub struct PodMeter {
    /// Values of the VMM processes of this VM, one after another.
    own: Meter,
    /// Values of the other processes of its pod.
    pod: Meter,
    /// The next reading only sets the start value of the pod's processes.
    skips_pod: bool,
}

impl PodMeter {
    /// Reads the value of the VMM process (`own`) and of the other processes of its pod
    /// (`pod`); `pod` is 0 while another VM counts them.
    pub fn read(&mut self, own: u64, pod: u64) -> u64 {
        if std::mem::take(&mut self.skips_pod) {
            self.pod.switch_to(pod);
        }
        self.own.read(own).saturating_add(self.pod.read(pod))
    }

    /// The VMM process was replaced by another; the pod's other processes continue.
    pub fn succeed(&mut self) {
        self.own.renew();
    }

    /// Counts the pod's other processes for this VM from now on, starting at the value of
    /// `former`, or at 0 if no VM counted them.
    pub fn take_pod(&mut self, former: Option<&Self>) {
        self.pod
            .switch_to(former.map_or(0, |former| former.pod.counted()));
    }

    /// Skips a value of the pod's processes that this VM has already counted.
    pub fn skip_pod(&mut self, counted: u64) {
        self.pod.skip(counted);
    }

    /// Stops counting the pod's other processes, which belong to another VM from now on.
    pub fn leave_pod(&mut self) {
        self.pod.switch_to(self.pod.counted());
    }

    /// Like [`PodMeter::take_pod`], for an unknown value of the former VM.
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

/// A VMM process is counted from its start, so its `skipped` is always 0.
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

/// The total times of one role (or of threads without a role).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[PodMeter; 2]", from = "[PodMeter; 2]")]
pub struct TimesMeter {
    cpu: PodMeter,
    wait: PodMeter,
}

impl TimesMeter {
    /// Reads the times of the VMM process (`own`) and of the other processes of its pod
    /// (`pod`).
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
    fn meter_keeps_highest_value_until_source_exceeds_it() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(100), 100);
        assert_eq!(meter.read(60), 100, "a dip does not show");
        assert_eq!(meter.read(110), 110, "and leaves nothing behind");
        meter.renew();
        assert_eq!(meter.read(5), 115, "a source made anew adds to the old");
        meter.switch_to(1000);
        assert_eq!(
            meter.read(1003),
            118,
            "of another source only what is new counts"
        );
    }

    proptest! {
        #[test]
        fn meters_never_fall(steps in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..64)) {
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

        /// A VM restarted in its pod: the times of its processes are added, the time of
        /// the pod's other processes counts once.
        #[test]
        fn restart_counts_each_process_once(
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
