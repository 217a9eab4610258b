//! Parses an exposition the way Prometheus does.

use std::collections::BTreeMap;
use std::sync::Arc;

use virtlens_export::Format;
use virtlens_model::snapshot::Vm;
use virtlens_tests::blank;
use virtlens_tests::exposed::exposition;

/// Counter samples by series, as spelled in the exposition.
pub(crate) type Counters = BTreeMap<String, f64>;

/// The counters of `vms`.
pub(crate) fn counters(vms: Vec<Vm>) -> Counters {
    let text = exposition(Arc::new(blank::snapshot(vms)), Format::Text);
    parse(&text)
}

/// Samples of the families of type counter and histogram.
fn parse(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut is_counter = false;
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            is_counter = family.ends_with(" counter") || family.ends_with(" histogram");
        } else if is_counter && !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let value = value.parse().expect("it is a number");
            let is_twice = counters.insert(series.to_owned(), value).is_some();
            assert!(!is_twice, "{series} is there twice");
        }
    }
    counters
}

/// The value of a label of a series.
pub(crate) fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = series.split_once('{')?;
    let parts = labels.split(['{', ',', '}']);
    let mut values = parts.filter_map(|part| part.strip_prefix(name)?.strip_prefix("=\""));
    values.next()?.strip_suffix('"')
}

/// The sum of a family's samples of one VM, ns.
pub(crate) fn sum_ns(counters: &Counters, family: &str, vm: &str) -> u64 {
    let is_meant =
        |series: &str| series.split('{').next() == Some(family) && label(series, "vm") == Some(vm);
    let samples = counters.iter().filter(|(series, _)| is_meant(series));
    samples.map(|(_, seconds)| to_ns(*seconds)).sum()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some seconds, and no counter is below 0"
)]
pub(crate) fn to_ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
