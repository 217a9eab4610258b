//! Formatting of numbers for evidence.

use std::fmt::Display;
use std::time::Duration;

/// A share, 0 to 1, as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A time with a readable unit.
pub(super) fn time(ns: u64) -> String {
    let secs = Duration::from_nanos(ns).as_secs_f64();
    if secs < 1.0 {
        format!("{:.0} ms", secs * 1e3)
    } else {
        format!("{secs:.1} s")
    }
}

/// A time that may be far below a millisecond, with a readable unit.
pub(super) fn short_time(ns: u64) -> String {
    let secs = Duration::from_nanos(ns).as_secs_f64();
    if secs < 1e-4 {
        format!("{:.0} us", secs * 1e6)
    } else if secs < 0.01 {
        format!("{:.1} ms", secs * 1e3)
    } else {
        time(ns)
    }
}

/// A size with a readable unit.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(super) fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 {
        format!("{mib:.0} MiB")
    } else {
        format!("{:.1} GiB", mib / 1024.0)
    }
}

/// "a, b and c".
pub(super) fn listed<T: Display>(parts: impl IntoIterator<Item = T>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "thousandths of the cores of a host"
)]
pub(super) fn thousandths(millis: u64) -> f64 {
    millis as f64 / 1000.0
}
