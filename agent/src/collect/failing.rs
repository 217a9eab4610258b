//! What fails now and then: why, how often, and how often in a row.

/// After a failed reading the VMs are shown as they were, for this many failures in a
/// row. A reading that fails by chance leaves no gap in the series; one that goes on
/// failing must not show rates of 0, by which alerts resolve.
const SHOWN: u32 = 2;

/// Something that is done again and again.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// Why it failed the last time; empty if it did not.
    reason: String,
    in_row: u32,
    total: u64,
}

impl Failing {
    pub(super) fn worked(&mut self) {
        self.reason.clear();
        self.in_row = 0;
    }

    /// Notes a failure; the reason, unless it is that of the one before.
    pub(super) fn failed(&mut self, error: &anyhow::Error) -> Option<&str> {
        self.total += 1;
        self.in_row = self.in_row.saturating_add(1);
        let reason = format!("{error:#}");
        let is_new = self.reason != reason;
        self.reason = reason;
        is_new.then_some(&*self.reason)
    }

    /// Why it failed the last time; empty if it did not.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn is_failing(&self) -> bool {
        self.in_row > 0
    }

    /// How often it failed.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether what was read before still stands for what is.
    pub(super) fn shows_last(&self) -> bool {
        self.in_row <= SHOWN
    }
}

#[cfg(test)]
mod tests {
    use super::{Failing, SHOWN};

    #[test]
    fn repeated_failure_is_reported_once_and_counted_each_time() {
        let mut failing = Failing::default();
        let full = || anyhow::anyhow!("no room");
        assert_eq!(failing.failed(&full()), Some("no room"));
        assert_eq!(failing.failed(&full()), None);
        assert_eq!(failing.failed(&anyhow::anyhow!("gone")), Some("gone"));
        failing.worked();
        assert_eq!((failing.reason(), failing.total()), ("", 3));
        assert_eq!(failing.failed(&full()), Some("no room"));
    }

    #[test]
    fn last_values_are_shown_for_some_failures_in_a_row() {
        let mut failing = Failing::default();
        let mut shown = || {
            failing.failed(&anyhow::anyhow!("no room"));
            failing.shows_last()
        };
        assert!((0..SHOWN).all(|_| shown()));
        assert!(!shown() && !shown());
        failing.worked();
        assert!(failing.shows_last() && !failing.is_failing());
    }
}
