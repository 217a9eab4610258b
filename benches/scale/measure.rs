//! One Prometheus with a simulated fleet: its cost, its rules and its dashboards' queries.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use virtlens_deploy::DASHBOARDS;
use virtlens_deploy::tokens::PodLabels;
use virtlens_export::Profile;
use virtlens_tests::grafana::Variables;
use virtlens_tests::mixin;
use virtlens_tests::prometheus::Prometheus;

use crate::fleet::{Fleet, INTERVAL_S, now_s};
use crate::recorded::Recorded;

/// Past readings of the fleet, the range of the dashboards' queries.
const HISTORY_S: u64 = 30 * 60;

/// Time between two scrapes while the history is read.
const FILL_INTERVAL_S: u64 = 2;

/// Scrapes in the present after which the cost is measured.
const SCRAPES: u64 = 4;

/// Grafana's `$__rate_interval` at this scrape interval.
const RATE_INTERVAL: &str = "2m";

/// A fleet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) profile: Profile,
    pub(crate) agents: u32,
    pub(crate) vms: u32,
}

/// Cost of a fleet for Prometheus.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) size: Size,
    /// Series of the agents.
    pub(crate) series: usize,
    /// Series in the head block: with those of rules, and of ended VMs.
    pub(crate) head_series: f64,
    pub(crate) samples_per_s: f64,
    pub(crate) cpu_cores: f64,
    pub(crate) rss_bytes: f64,
    /// Of a block, without the write-ahead log.
    pub(crate) disk_bytes_per_sample: f64,
    /// The rule group with the longest evaluation: name, seconds, share of its interval.
    pub(crate) slowest_group: (String, f64, f64),
    /// The slowest query of each dashboard: dashboard, panel, seconds.
    pub(crate) slowest_queries: Vec<(String, String, f64)>,
}

/// Runs Prometheus with a fleet of this size.
pub(crate) fn measure(size: Size) -> Measured {
    let recorded = Recorded::new(&size.profile.into());
    let fleet = Arc::new(Fleet::new(recorded, size.agents, size.vms, HISTORY_S));
    let address = fleet.serve().to_string();
    let fill = config(&fleet, &address, FILL_INTERVAL_S, &[]);
    let prometheus = Prometheus::start(&fill, &["--web.enable-admin-api"]);
    while !fleet.is_in_the_present() {
        sleep(Duration::from_secs(1));
    }
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    let rules = ["recording-rules.yaml", "alerting-rules.yaml"].map(|name| folder.join(name));
    prometheus.reload(&config(
        &fleet,
        &address,
        INTERVAL_S,
        &rules.each_ref().map(|file| &**file),
    ));
    // The first evaluation creates the series of the rules.
    sleep(Duration::from_secs(INTERVAL_S));

    let begin = Instant::now();
    let appended = "prometheus_tsdb_head_samples_appended_total{type=\"float\"}";
    let counters =
        || [appended, "process_cpu_seconds_total"].map(|name| prometheus.self_metric(name));
    let before = counters();
    let mut rss_bytes: f64 = 0.0;
    let mut slowest_group = (String::new(), 0.0, 0.0);
    for _ in 0..SCRAPES {
        sleep(Duration::from_secs(INTERVAL_S));
        rss_bytes = rss_bytes.max(prometheus.self_metric("process_resident_memory_bytes"));
        for group in groups(&prometheus) {
            if group.2 > slowest_group.2 {
                slowest_group = group;
            }
        }
    }
    let window_s = begin.elapsed().as_secs_f64();
    let after = counters();
    let [samples, cpu_s] = [0, 1].map(|index| after[index] - before[index]);
    assert_scraped(&prometheus, &fleet);
    let slowest_queries = queries(&prometheus);
    let block = prometheus.snapshot();
    let all_samples = prometheus.self_metric(appended);
    Measured {
        size,
        series: fleet.series(),
        head_series: prometheus.self_metric("prometheus_tsdb_head_series"),
        samples_per_s: samples / window_s,
        cpu_cores: cpu_s / window_s,
        rss_bytes,
        disk_bytes_per_sample: kib(&block) * 1024.0 / all_samples,
        slowest_group,
        slowest_queries,
    }
}

fn config(fleet: &Fleet, address: &str, interval_s: u64, rules: &[&Path]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .map(|file| format!("'{}'", file.display()))
        .collect();
    let targets: Vec<String> = (0..fleet.agents())
        .map(|agent| {
            format!(
                "  - targets: ['{address}']\n    labels: {{ __metrics_path__: /agents/{agent}/metrics, \
                 instance: node-{agent:03}, cluster: c }}\n"
            )
        })
        .collect();
    format!(
        "global: {{ scrape_interval: {interval_s}s, scrape_timeout: {interval_s}s, \
         evaluation_interval: {INTERVAL_S}s }}\nrule_files: [{}]\nscrape_configs:\n\
         - job_name: virtlens\n  honor_labels: true\n  static_configs:\n{}",
        rules.join(", "),
        targets.concat()
    )
}

/// Each target is up, and every series of it was kept.
fn assert_scraped(prometheus: &Prometheus, fleet: &Fleet) {
    let value = |query| {
        let answer = prometheus.api("query", &[("query", query)]);
        let value = answer["result"][0]["value"][1].as_str();
        value.and_then(|value| value.parse::<usize>().ok())
    };
    assert_eq!(value("sum(up)"), Some(fleet.agents()), "agents that are up");
    let kept = value("sum(scrape_samples_post_metric_relabeling)");
    assert_eq!(kept, Some(fleet.series()), "series");
}

/// Rule groups: name, time of the last evaluation, and its share of the interval.
fn groups(prometheus: &Prometheus) -> Vec<(String, f64, f64)> {
    let answer = prometheus.api("rules", &[]);
    let groups = answer["groups"].as_array().cloned().unwrap_or_default();
    let each = groups.iter().map(|group| {
        let rules = group["rules"].as_array().into_iter().flatten();
        let rules = rules.map(|rule| {
            assert_ne!(rule["health"], "err", "{rule}");
            let name = rule["name"].as_str().unwrap_or_default().to_owned();
            (name, rule["evaluationTime"].as_f64().unwrap_or_default())
        });
        slowest_first(rules.collect());
        let name = group["name"].as_str().unwrap_or_default();
        let number = |name: &str| group[name].as_f64().unwrap_or_default();
        let time_s = number("evaluationTime");
        (name.to_owned(), time_s, time_s / number("interval"))
    });
    each.collect()
}

/// Prints the slowest of these, and returns all from the slowest on.
fn slowest_first(mut timed: Vec<(String, f64)>) -> Vec<(String, f64)> {
    timed.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (name, seconds) in timed.iter().take(5) {
        eprintln!("  {name}: {seconds:.3} s");
    }
    timed
}

/// The slowest query of each dashboard over the history, with the values of its variables with
/// which it opens.
fn queries(prometheus: &Prometheus) -> Vec<(String, String, f64)> {
    let mut slowest = Vec::new();
    for dashboard in DASHBOARDS {
        let json = dashboard.json(PodLabels::Kept);
        let variables = Variables::of(prometheus, &json, |name, values, all| {
            match values.first() {
                Some(first) if !has_all(&json, name) => first.clone(),
                _ => all.to_owned(),
            }
        });
        let timed = mixin::queries(&json).into_iter().map(|query| {
            let text = variables.put_into(&query.text, RATE_INTERVAL);
            (query.name, time_s(prometheus, &text, query.is_instant))
        });
        let (name, seconds) = slowest_first(timed.collect()).swap_remove(0);
        slowest.push((dashboard.title.to_owned(), name, seconds));
    }
    slowest
}

/// Whether a dashboard opens with all values of a variable.
fn has_all(dashboard: &Value, variable: &str) -> bool {
    let list = dashboard["templating"]["list"].as_array();
    let mut variables = list.into_iter().flatten();
    variables.any(|one| one["name"] == variable && one["includeAll"] == true)
}

/// Time of a query, over the history unless it is instant; the shortest of two.
fn time_s(prometheus: &Prometheus, query: &str, is_instant: bool) -> f64 {
    let end = now_s();
    let (start, end) = ((end - HISTORY_S).to_string(), end.to_string());
    let step = INTERVAL_S.to_string();
    let range = [
        ("query", query),
        ("start", &start),
        ("end", &end),
        ("step", &step),
    ];
    let (path, parameters) = if is_instant {
        ("query", &range[..1])
    } else {
        ("query_range", &range[..])
    };
    let time = || {
        let begin = Instant::now();
        let answer: Value = prometheus.api(path, parameters);
        assert!(answer["result"].is_array(), "{query}");
        begin.elapsed().as_secs_f64()
    };
    time().min(time())
}

/// Size of all files in a folder.
fn kib(folder: &Path) -> f64 {
    let entries = fs::read_dir(folder)
        .expect("the folder can be read")
        .flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => kib(&entry.path()),
            Ok(metadata) => u32::try_from(metadata.len() / 1024).map_or(0.0, f64::from),
            Err(_) => 0.0,
        })
        .sum()
}
