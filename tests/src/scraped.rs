//! Values of an agent over HTTP, as Prometheus scrapes them.

use std::collections::BTreeMap;

use crate::Agent;

/// Counters of VMs and their values, by series.
pub type Counters = BTreeMap<String, f64>;

/// The counters of a scrape.
pub fn counters(agent: &Agent) -> Counters {
    counters_in(&agent.get("/metrics"))
}

/// The counters of VMs in the text of a scrape.
pub fn counters_in(text: &str) -> Counters {
    samples_in(text, |series| {
        series.contains("vm=\"") && is_counter(series)
    })
}

/// Asserts that no counter is lower than before, and records the new values.
pub fn not_fallen(seen: &mut Counters, now: Counters) {
    for (series, value) in now {
        let before = seen.entry(series.clone()).or_insert(value);
        assert!(value >= *before, "{series} fell from {before} to {value}");
        *before = value;
    }
}

/// Number of losses for this reason.
pub fn dropped(agent: &Agent, reason: &str) -> u64 {
    let wanted = format!("virtlens_dropped_total{{reason=\"{reason}\"}}");
    whole(samples(agent, |series| series == wanted)[&wanted])
}

/// CPU time of a VM over all roles and threads without a role, ns.
pub fn cpu_ns(counters: &Counters, vm: &str) -> u64 {
    let of_vm = format!("vm=\"{vm}\"");
    let names = [
        "virtlens_cpu_seconds_total{",
        "virtlens_cpu_unattributed_seconds_total{",
    ];
    let own = counters.iter().filter(|(series, _)| {
        series.contains(&of_vm) && names.iter().any(|name| series.starts_with(name))
    });
    let seconds: f64 = own.map(|(_, value)| value).sum();
    whole(seconds * 1e9)
}

/// The wanted samples of a scrape, unchanged.
pub fn samples(agent: &Agent, wanted: impl Fn(&str) -> bool) -> Counters {
    samples_in(&agent.get("/metrics"), wanted)
}

fn samples_in(text: &str, wanted: impl Fn(&str) -> bool) -> Counters {
    text.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| wanted(series))
        .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
        .collect()
}

fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_count"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Converts a count to an integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, or some minutes in ns"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}
