//! How long to leave a server alone.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest: names may be a minute late after an outage, and a thousand nodes
/// then ask once a minute each.
const LONGEST: Duration = Duration::from_mins(1);
/// Who stayed connected that long was served: the next pause is short again.
const SERVED: Duration = Duration::from_secs(30);

/// The pause before the next try.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// How long to wait after a try that lasted `lasted`: from half to all of a span
    /// that doubles, so that nodes do not come all at once after an outage.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= SERVED {
            self.next = FIRST;
        }
        let span = self.next;
        self.next = (span * 2).min(LONGEST);
        // Its keys are random; good enough to spread by.
        let random = RandomState::new().hash_one(0u8) % 1000;
        span / 2 + span / 2 * u32::try_from(random).unwrap_or(0) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration, LONGEST, SERVED};

    #[test]
    fn pauses_grow_to_a_minute_and_no_further() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.after(Duration::ZERO)).collect();
        assert!(pauses[0] <= Duration::from_secs(1), "{pauses:?}");
        let spans = pauses
            .iter()
            .zip((0..12).map(|n| Duration::from_secs(1 << n)));
        for (pause, span) in spans {
            let span = span.min(LONGEST);
            assert!((span / 2..=span).contains(pause), "{pause:?} of {span:?}");
        }
    }

    #[test]
    fn who_was_served_may_come_again_soon() {
        let mut backoff = Backoff::default();
        for _ in 0..12 {
            backoff.after(Duration::ZERO);
        }
        assert!(backoff.after(SERVED) <= Duration::from_secs(1));
    }

    #[test]
    fn two_nodes_do_not_come_at_once() {
        let first = || Backoff::default().after(Duration::ZERO);
        let pauses: std::collections::BTreeSet<Duration> = (0..20).map(|_| first()).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
