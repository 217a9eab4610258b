//! What many measurements of one thing say together.

use std::fmt;

/// The middle of many measurements, and how far they scatter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    /// A quarter of them is below.
    pub(crate) low: f64,
    /// Half of them is below.
    pub(crate) median: f64,
    /// A quarter of them is above.
    pub(crate) high: f64,
}

impl Spread {
    /// Of at least one measurement.
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
    /// The median and the quartiles, with as many decimals as asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { low, median, high } = self;
        write!(f, "{median:.digits$} ({low:.digits$} … {high:.digits$})")
    }
}

/// What something costs with the agent and without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared {
    /// Without.
    pub(crate) without: Spread,
    /// What the agent adds.
    pub(crate) added: Spread,
    /// With it / without it.
    pub(crate) ratio: Spread,
}

/// Pairs of measurements a comparison has.
const PAIRS: usize = 15;

/// Measures with (`true`) and without in turn; who is first changes from pair
/// to pair, so that a machine that slowly gets faster favours neither.
pub(crate) fn compare(mut measure: impl FnMut(bool) -> f64) -> Compared {
    let pairs: Vec<(f64, f64)> = (0..PAIRS)
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
