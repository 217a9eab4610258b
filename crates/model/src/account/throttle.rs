//! Counters of observed throttling.

use serde::{Deserialize, Serialize};

use crate::account::meter::Meter;
use crate::facts::ThrottleFact;
use crate::snapshot::Throttle;
use crate::vocab::{DURATIONS, Durations};

/// Monotonic counters of [`Throttle`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ThrottleMeter([Meter; DURATIONS + 3]);

impl ThrottleMeter {
    /// Reads the source's present values.
    pub fn read(&mut self, fact: &ThrottleFact) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.read(value);
        }
    }

    /// Switches to another source with the present values `fact`.
    pub fn turn_to(&mut self, fact: &ThrottleFact) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.turn_to(value);
        }
    }

    /// Changes each of its meters.
    pub fn each(&mut self, change: impl FnMut(&mut Meter)) {
        self.0.iter_mut().for_each(change);
    }

    /// The totals.
    pub fn show(&self) -> Throttle {
        let [wall, throttles, sum, counts @ ..] = self.0.map(|meter| meter.total());
        Throttle {
            wall_ns: wall,
            throttles,
            unthrottles: Durations {
                counts,
                sum_ns: sum,
            },
            unthrottled_ns: sum,
        }
    }
}

impl From<Throttle> for ThrottleFact {
    fn from(shown: Throttle) -> Self {
        Self {
            throttles: shown.throttles,
            wall_ns: shown.wall_ns,
            durations: shown.unthrottles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ThrottleMeter;
    use crate::account::meter::Meter;
    use crate::facts::ThrottleFact;
    use crate::vocab::{DURATIONS, Durations};

    fn fact(of: u64) -> ThrottleFact {
        ThrottleFact {
            throttles: of,
            wall_ns: of * 10,
            durations: Durations {
                counts: [of; DURATIONS],
                sum_ns: of * 20,
            },
        }
    }

    #[test]
    fn read_throttling_is_shown() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        let shown = meter.show();
        assert_eq!((shown.wall_ns, shown.throttles), (30, 3));
        assert_eq!(shown.unthrottles, fact(3).durations);
        assert_eq!(shown.unthrottles.count(), 3 * DURATIONS as u64);
    }

    #[test]
    fn changed_cgroup_continues_counters() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        meter.turn_to(&fact(100));
        meter.read(&fact(101));
        assert_eq!(meter.show().wall_ns, 40);
        meter.each(Meter::renew);
        meter.read(&fact(1));
        assert_eq!(meter.show().wall_ns, 50);
    }
}
