//! Converts nanoseconds to seconds, only when a sample is encoded.
//!
//! The encoder and Prometheus itself hold a sample as an f64, whose spacing exceeds a
//! nanosecond from 2^23 s (97 CPU-days) on, however it is printed. The best possible
//! result is the f64 nearest to the true value. Its error is at most half the spacing
//! (0.93 ns from 97 CPU-days on, 7.5 ns from 2.1 CPU-years on).

const NS_PER_S: u64 = 1_000_000_000;

/// Counts of ns below this value are exact as f64.
const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The f64 nearest to `ns` / 10^9.
#[expect(
    clippy::cast_precision_loss,
    reason = "each operand is below 2^53, so no cast loses anything"
)]
pub(crate) fn seconds(ns: u64) -> f64 {
    if ns < EXACT {
        // One correctly rounded division: 5.3 s prints as 5.3.
        ns as f64 / NS_PER_S as f64
    } else {
        // Casting `ns` itself would round before the division does.
        (ns / NS_PER_S) as f64 + (ns % NS_PER_S) as f64 / NS_PER_S as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{EXACT, NS_PER_S, seconds};

    fn nearest(ns: u64) -> f64 {
        let decimal = format!("{}.{:09}", ns / NS_PER_S, ns % NS_PER_S);
        decimal.parse().expect("a decimal number")
    }

    /// A fixed sequence over all magnitudes (64-bit LCG, Knuth's constants).
    fn walk() -> impl Iterator<Item = u64> {
        let mut state: u64 = 1;
        (0..200_000u32).map(move |step| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> (step % 64)
        })
    }

    #[test]
    fn seconds_are_the_nearest_f64_at_every_magnitude() {
        for ns in walk() {
            assert_eq!(seconds(ns).to_bits(), nearest(ns).to_bits(), "{ns} ns");
        }
    }

    #[test]
    fn seconds_below_97_days_keep_every_nanosecond() {
        for ns in [1, 999_999_999, NS_PER_S + 1, (1 << 23) * NS_PER_S - 1] {
            assert!(seconds(ns + 1) > seconds(ns), "{ns} ns");
        }
    }

    #[test]
    fn seconds_are_monotonic_in_ns() {
        for ns in walk().filter(|ns| *ns < u64::MAX) {
            assert!(seconds(ns + 1) >= seconds(ns), "{ns} ns");
        }
        assert!(seconds(EXACT) >= seconds(EXACT - 1));
    }
}
