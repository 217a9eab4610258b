//! Checks rules and dashboards with a real agent: every recording rule yields series, and
//! every query of every dashboard returns data.
//!
//! A table lists the series that a host may lack, by their requirement: a source of the
//! agent that is down, or a feature that the caller names as missing. A query may be
//! empty only for such a reason, and each such query is reported.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::{Duration, Instant};

use serde_json::Value;
use virtlens_deploy::promql::{self, Selector};
use virtlens_deploy::tokens::PodLabels;
use virtlens_deploy::{DASHBOARDS, rules};

use crate::grafana::Variables;
use crate::prometheus::Prometheus;

/// Grafana's is at least four times the scrape interval.
const RATE_INTERVAL: &str = "15s";

/// Series that depend on a feature: metric or recording rule, and the feature.
const NEEDS: &[(&str, &str)] = &[
    ("virtlens_throttled_wall_seconds_total", "throttle"),
    ("virtlens_throttle_duration_seconds_bucket", "throttle"),
    ("virtlens_throttle_hits_total", "throttle"),
    ("virtlens_vcpu_migrations_total", "placement"),
    ("virtlens_vcpu_pcpu_seconds_total", "placement"),
    ("virtlens_balloon_bytes_total", "memory"),
    ("virtlens_balloon_events_total", "memory"),
    ("virtlens_free_page_reported_bytes_total", "memory"),
    ("virtlens_free_page_reports_total", "memory"),
    ("virtlens_memory_release_seconds_total", "memory"),
    ("virtlens_memory_refault_bytes_total", "memory"),
    ("vm:virtlens_memory_refault:ratio_rate5m", "memory"),
    ("virtlens_memory_cgroup_bytes", "cgroup_v2"),
    ("virtlens_memory_cgroup_limit_bytes", "cgroup_v2"),
    ("vm:virtlens_memory_headroom_bytes:min", "cgroup_v2"),
    ("virtlens_topology_pairs", "smt"),
];

/// Result of the queries.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Queries that are empty without an excuse, and queries that are wrong.
    pub failures: Vec<String>,
    /// Queries that are empty, by the missing feature and its reason.
    pub excused: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Evaluates the queries for these VMs of an agent in Prometheus. `lacks` lists the
/// features that the host lacks, by the names of [`NEEDS`], each with its reason; sources
/// that are down are read from the agent. Waits up to `patience` in total for data.
pub fn judge(
    prometheus: &Prometheus,
    vms: &[&str],
    lacks: &[(&str, &str)],
    patience: Duration,
) -> Verdict {
    crate::eventually("the agent to be scraped", || {
        (prometheus.series("virtlens_source_up") > 0).then_some(())
    });
    let host: Vec<_> = lacks
        .iter()
        .map(|(need, why)| ((*need).to_owned(), (*why).to_owned()))
        .collect();
    let judge = Judge {
        prometheus,
        vms: format!("({})", vms.join("|")),
        lacks: host.iter().cloned().chain(down(prometheus)).collect(),
        end: Instant::now() + patience,
        have_data: RefCell::default(),
    };
    let mut verdict = Verdict::default();
    for rule in rules::recordings() {
        let of_vms = ("vm".to_owned(), "=~".to_owned(), judge.vms.clone());
        // Sums over VMs have no label of one.
        let is_of_vms = rule.name.starts_with("vm");
        let selector = Selector {
            metric: rule.name.to_owned(),
            conditions: is_of_vms.then_some(of_vms).into_iter().collect(),
        };
        judge.one(
            rule.name,
            &selector.query(),
            slice::from_ref(&selector),
            &mut verdict,
        );
    }
    for dashboard in DASHBOARDS {
        judge.dashboard(&dashboard.json(PodLabels::Kept), &mut verdict);
    }
    for lack in host
        .iter()
        .filter(|lack| !verdict.excused.contains_key(lack))
    {
        let (need, why) = lack;
        let text = format!("{need} is said to be missing ({why}), but nothing lacks it");
        verdict.failures.push(text);
    }
    verdict
}

/// The sources of the agent that are down.
fn down(prometheus: &Prometheus) -> Vec<(String, String)> {
    let answer = prometheus.api("query", &[("query", "virtlens_source_up == 0")]);
    let rows = answer["result"].as_array().cloned().unwrap_or_default();
    rows.iter()
        .filter_map(|row| row["metric"]["source"].as_str())
        .map(|source| (source.to_owned(), "a source that is down".to_owned()))
        .collect()
}

struct Judge<'a> {
    prometheus: &'a Prometheus,
    /// Names of the VMs as a regular expression.
    vms: String,
    lacks: Vec<(String, String)>,
    /// Deadline until which a query may have no data.
    end: Instant,
    /// Queries with data: panels share queries.
    have_data: RefCell<BTreeSet<String>>,
}

impl Judge<'_> {
    /// Checks all queries of a dashboard, with all VMs chosen and with those of the test.
    fn dashboard(&self, dashboard: &Value, verdict: &mut Verdict) {
        for choice in [Choice::All, Choice::Each] {
            let variables = self.variables(dashboard, choice, verdict);
            for Query { name, text, .. } in queries(dashboard) {
                let query = variables.put_into(&text, RATE_INTERVAL);
                match promql::selectors(&query) {
                    Ok(selectors) => self.one(&name, &query, &selectors, verdict),
                    Err(error) => verdict.failures.push(format!("{name}: {error}")),
                }
            }
        }
    }

    /// Checks one query: each of its selectors and the query itself must have series.
    fn one(&self, name: &str, query: &str, selectors: &[Selector], verdict: &mut Verdict) {
        let mut is_excused = false;
        for selector in selectors {
            let query = selector.query();
            let lack = self.excuse(selector);
            if self.has_data(&query, lack.is_none()) {
                continue;
            }
            let Some(lack) = lack else {
                verdict
                    .failures
                    .push(format!("{name}: no series of {query}"));
                continue;
            };
            is_excused = true;
            let queries = verdict.excused.entry(lack.clone()).or_default();
            queries.insert(name.to_owned());
        }
        if !is_excused && !self.has_data(query, true) {
            verdict.failures.push(format!("{name}: no data of {query}"));
        }
    }

    /// Whether a query has data, or gets some before the deadline if `wait` is set.
    fn has_data(&self, query: &str, wait: bool) -> bool {
        if self.have_data.borrow().contains(query) {
            return true;
        }
        loop {
            if self.prometheus.series(query) > 0 {
                self.have_data.borrow_mut().insert(query.to_owned());
                return true;
            }
            if !wait || Instant::now() > self.end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// The missing feature that these series need.
    fn excuse(&self, selector: &Selector) -> Option<&(String, String)> {
        let mut needs = NEEDS.iter();
        let (_, need) = needs.find(|(metric, _)| *metric == selector.metric)?;
        self.lacks.iter().find(|(lacking, _)| lacking == need)
    }

    /// The variables of a dashboard with the chosen values.
    fn variables(&self, dashboard: &Value, choice: Choice, verdict: &mut Verdict) -> Variables {
        Variables::of(self.prometheus, dashboard, |name, values, all| {
            if values.is_empty() && ["instance", "vm"].contains(&name) {
                verdict.failures.push(format!("${name} has no values"));
            }
            match choice {
                Choice::Each if name == "vm" => self.vms.clone(),
                Choice::Each if !values.is_empty() => format!("({})", values.join("|")),
                Choice::All | Choice::Each => all.to_owned(),
            }
        })
    }
}

/// Choice of values for a dashboard's variables.
#[derive(Clone, Copy)]
enum Choice {
    /// Grafana's "All".
    All,
    /// All values by name, but only the VMs of the test.
    Each,
}

/// A query of a dashboard.
#[derive(Debug)]
pub struct Query {
    /// Dashboard, panel and query.
    pub name: String,
    /// With the dashboard's variables.
    pub text: String,
    /// Whether it is evaluated for the present only.
    pub is_instant: bool,
}

/// The queries of a dashboard.
pub fn queries(dashboard: &Value) -> Vec<Query> {
    let mut found = Vec::new();
    for panel in virtlens_deploy::dashboard::panels(dashboard) {
        let targets = panel["targets"].as_array();
        for target in targets.into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            found.push(Query {
                name: format!(
                    "{} / {} / {}",
                    text(&dashboard["title"]),
                    text(&panel["title"]),
                    text(&target["refId"])
                ),
                text: text(&target["expr"]),
                is_instant: target["instant"] == true,
            });
        }
    }
    found
}
