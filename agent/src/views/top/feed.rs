//! The source of the readings: this host, another agent, or a recording.

use std::time::{Duration, Instant};

use super::rows::Row;
use super::state::Top;
use super::tracing::Tracing;
use crate::collect::Collector;

/// Length of the interval that findings cover, except for the first ones.
const JUDGED_EVERY: Duration = Duration::from_secs(5);

/// Time until the first findings.
const JUDGED_FIRST: Duration = Duration::from_secs(2);

/// Supplies the screens with readings.
pub(super) trait Feed {
    /// Adds the reading that is due, if any.
    fn update(&mut self, top: &mut Top);

    /// Time until the next reading is due, unless a key changes it.
    fn due_in(&self, top: &Top) -> Duration;

    /// Starts a trace of a VM, at the time of a reading as it is written in file names.
    fn trace(&self, vm: &Row, time: &str) -> anyhow::Result<Tracing>;
}

/// Reads this host.
pub(super) struct Live<'c> {
    collector: &'c mut Collector,
    read: Instant,
    judged: Instant,
    judge_after: Duration,
}

impl<'c> Live<'c> {
    /// A feed whose first reading was just taken and judged.
    pub(super) fn new(collector: &'c mut Collector) -> Self {
        let now = Instant::now();
        Self {
            collector,
            read: now,
            judged: now,
            judge_after: JUDGED_FIRST,
        }
    }
}

impl Feed for Live<'_> {
    fn update(&mut self, top: &mut Top) {
        if self.read.elapsed() < top.interval {
            return;
        }
        self.read = Instant::now();
        let reading = if self.judged.elapsed() >= self.judge_after {
            self.judged = self.read;
            self.judge_after = JUDGED_EVERY;
            self.collector.collect_judged()
        } else {
            self.collector.collect()
        };
        top.add(reading);
    }

    fn due_in(&self, top: &Top) -> Duration {
        top.interval.saturating_sub(self.read.elapsed())
    }

    fn trace(&self, vm: &Row, time: &str) -> anyhow::Result<Tracing> {
        Tracing::here(vm, time, self.collector)
    }
}
