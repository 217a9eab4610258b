//! Statistics of repeated measurements.

use std::fmt;

/// Median and quartiles of repeated measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    /// Lower quartile.
    pub(crate) low: f64,
    /// Median.
    pub(crate) median: f64,
    /// Upper quartile.
    pub(crate) high: f64,
}

impl Spread {
    /// Needs at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Self {
            low: at(1),
            median: at(2),
            high: at(3),
        }
    }
}

impl fmt::Display for Spread {
    /// Prints the median and the quartiles with the requested number of decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { low, median, high } = self;
        write!(f, "{median:.digits$} ({low:.digits$} … {high:.digits$})")
    }
}

/// Cost with the agent and without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared {
    /// Cost without the agent.
    pub(crate) without: Spread,
    /// Cost that the agent adds.
    pub(crate) added: Spread,
    /// Cost with the agent / without it.
    pub(crate) ratio: Spread,
}

/// Pairs of measurements per comparison.
const PAIRS: usize = 15;

/// Measures with (`true`) and without the agent alternately. The order changes from pair
/// to pair, so that a machine that slowly gets faster favours neither.
pub(crate) fn compare(measure: impl FnMut(bool) -> f64) -> Compared {
    compare_pairs(PAIRS, measure)
}

/// The same with another number of pairs.
pub(crate) fn compare_pairs(pairs: usize, mut measure: impl FnMut(bool) -> f64) -> Compared {
    let pairs: Vec<(f64, f64)> = (0..pairs)
        .map(|pair| {
            if pair % 2 == 0 {
                let without = measure(false);
                (without, measure(true))
            } else {
                let with = measure(true);
                (measure(false), with)
            }
        })
        .collect();
    let over = |value: fn(&(f64, f64)) -> f64| Spread::of(pairs.iter().map(value));
    Compared {
        without: over(|(without, _)| *without),
        added: over(|(without, with)| with - without),
        ratio: over(|(without, with)| with / without),
    }
}

/// A count or a time in ns as a real number.
#[allow(
    clippy::cast_precision_loss,
    reason = "what is measured here is far below 2^53"
)]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}
