//! Points in time on the command line and in requests.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, Timestamp};
use virtlens_model::snapshot::Snapshot;

/// A point in time: an instant, or a time before the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(SignedDuration),
}

impl Moment {
    /// The instant, at the present time `now`.
    pub(crate) fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::Ago(ago) => now.saturating_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

/// Time before its end for which a past time is judged or returned, if its start is not given.
pub(crate) const PAST_WINDOW: Duration = Duration::from_mins(15);

/// An instant in ns since 1970; 0 before.
pub(crate) fn unix_ns(instant: Timestamp) -> u64 {
    u64::try_from(instant.as_nanosecond()).unwrap_or(0)
}

/// Time of a reading, ns since 1970; 0 before, and if it is not a time.
pub(crate) fn unix_ns_of(snapshot: &Snapshot) -> u64 {
    snapshot.time.parse().map_or(0, unix_ns)
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "invalid time {text:?} (expected a form like now, '10 min ago', -15m or \
                 2026-01-31T03:10:00Z)"
            )
        };
        if text == "now" {
            return Ok(Self::Ago(SignedDuration::ZERO));
        }
        if let Ok(instant) = text.parse() {
            return Ok(Self::At(instant));
        }
        let span: Span = text.parse().map_err(|_| bad())?;
        let before = SignedDuration::try_from(span).map_err(|_| bad())?;
        // A span without sign could be meant both ways.
        before
            .is_negative()
            .then(|| Self::Ago(-before))
            .ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::Moment;

    #[test]
    fn times_have_several_forms() {
        let now: Timestamp = "2026-01-31T03:20:00Z".parse().expect("a time");
        for (text, expected) in [
            ("now", "2026-01-31T03:20:00Z"),
            ("10 min ago", "2026-01-31T03:10:00Z"),
            ("10 minutes ago", "2026-01-31T03:10:00Z"),
            ("-15m", "2026-01-31T03:05:00Z"),
            ("-1h30m", "2026-01-31T01:50:00Z"),
            ("-90s", "2026-01-31T03:18:30Z"),
            ("2026-01-31T03:10:00Z", "2026-01-31T03:10:00Z"),
            ("2026-01-31T04:10:00+01:00", "2026-01-31T03:10:00Z"),
        ] {
            let moment: Moment = text.parse().expect(text);
            assert_eq!(moment.instant(now).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn time_without_direction_or_unit_is_refused() {
        for text in ["", "15m", "in 3h", "-15", "03:10", "yesterday", "-1 month"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
