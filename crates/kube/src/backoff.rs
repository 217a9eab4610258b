//! Pause between attempts to reach a server.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: after an outage names may be a minute late, and each of a thousand
/// nodes sends one request a minute.
const LONGEST: Duration = Duration::from_mins(1);
/// A connection that lasted this long was successful: the next pause is short again.
const SERVED: Duration = Duration::from_secs(30);

/// The pause before the next attempt.
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
    /// Returns the pause after an attempt that lasted `lasted`. The pause is between half
    /// of a span and all of it, so that the nodes do not reconnect all at once after an
    /// outage. The span doubles with each attempt.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= SERVED {
            self.next = FIRST;
        }
        let span = self.next;
        self.next = (span * 2).min(LONGEST);
        // Its keys are random, which is good enough for jitter.
        let random = RandomState::new().hash_one(0u8) % 1000;
        span / 2 + span / 2 * u32::try_from(random).unwrap_or(0) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration, LONGEST, SERVED};

    #[test]
    fn pauses_grow_up_to_one_minute() {
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
    fn pause_after_successful_connection_is_short() {
        let mut backoff = Backoff::default();
        for _ in 0..12 {
            backoff.after(Duration::ZERO);
        }
        assert!(backoff.after(SERVED) <= Duration::from_secs(1));
    }

    #[test]
    fn pauses_of_two_nodes_differ() {
        let first = || Backoff::default().after(Duration::ZERO);
        let pauses: std::collections::BTreeSet<Duration> = (0..20).map(|_| first()).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
