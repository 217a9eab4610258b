//! Counters of observed throttling.

use serde::{Deserialize, Serialize};

use crate::account::meter::Meter;
use crate::vocab::{DURATIONS, Durations, Throttle};

/// Monotonic counters of [`Throttle`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ThrottleMeter([Meter; DURATIONS + 3]);

impl ThrottleMeter {
    /// Reads the source's present values.
    pub fn read(&mut self, fact: &Throttle) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.read(value);
        }
    }

    /// Switches to another source with the present values `fact`.
    pub fn switch_to(&mut self, fact: &Throttle) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.switch_to(value);
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ThrottleMeter;
    use crate::account::meter::Meter;
    use crate::vocab::{DURATIONS, Durations, Throttle};

    fn fact(of: u64) -> Throttle {
        Throttle {
            throttles: of,
            wall_ns: of * 10,
            unthrottles: Durations {
                counts: [of; DURATIONS],
                sum_ns: of * 20,
            },
        }
    }

    #[test]
    fn read_throttling_is_shown() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        assert_eq!(meter.show(), fact(3));
        assert_eq!(meter.show().unthrottles.count(), 3 * DURATIONS as u64);
    }

    #[test]
    fn changed_cgroup_continues_counters() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        meter.switch_to(&fact(100));
        meter.read(&fact(101));
        assert_eq!(meter.show().wall_ns, 40);
        meter.each(Meter::renew);
        meter.read(&fact(1));
        assert_eq!(meter.show().wall_ns, 50);
    }
}
