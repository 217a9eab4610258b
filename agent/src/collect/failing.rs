//! Counts failures of a repeated operation: reason, total, and number in a row.

/// Limit on the failed readings in a row for which the last VMs are still shown. A single
/// failure must not leave a gap in the series. A persistent failure must not show rates
/// of 0, which would resolve alerts.
const SHOWN: u32 = 2;

/// A repeated operation.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// Reason of the last failure; empty if the last attempt succeeded.
    reason: String,
    in_row: u32,
    total: u64,
}

impl Failing {
    pub(super) fn worked(&mut self) {
        self.reason.clear();
        self.in_row = 0;
    }

    /// Records a failure; returns the reason if it differs from the last one.
    pub(super) fn failed(&mut self, error: &anyhow::Error) -> Option<&str> {
        self.total += 1;
        self.in_row = self.in_row.saturating_add(1);
        let reason = format!("{error:#}");
        let is_new = self.reason != reason;
        self.reason = reason;
        is_new.then_some(&*self.reason)
    }

    /// Reason of the last failure; empty if the last attempt succeeded.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn is_failing(&self) -> bool {
        self.in_row > 0
    }

    /// Number of failures.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether the last values are still shown.
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
    fn consecutive_failures_show_last_values_up_to_limit() {
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
