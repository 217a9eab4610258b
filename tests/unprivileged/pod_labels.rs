//! Rules for both names of the labels of pods, each in a real Prometheus that scrapes that way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::SystemTime;

use serde_json::Value;
use virtlens_deploy::rules;
use virtlens_deploy::tokens::PodLabels;
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{eventually, need};

/// Gauges and counters of a capped pod with a busy vhost worker and a bad placement: name, own
/// labels, and the value or its growth per second.
const GAUGES: [(&str, &str, f64); 2] = [
    ("virtlens_cfs_quota_cores", r#"scope="pod""#, 1.25),
    ("virtlens_misplaced_vcpus", r#"kind="smt_split""#, 2.0),
];
const COUNTERS: [(&str, &str, f64); 6] = [
    (
        "virtlens_cfs_quota_used_seconds_total",
        r#"scope="pod",role="vcpu""#,
        0.5625,
    ),
    (
        "virtlens_cfs_quota_used_seconds_total",
        r#"scope="pod",role="vhost""#,
        0.6875,
    ),
    (
        "virtlens_throttled_wall_seconds_total",
        r#"scope="pod""#,
        0.5,
    ),
    (
        "virtlens_cfs_throttled_seconds_total",
        r#"scope="pod""#,
        0.75,
    ),
    ("virtlens_cpu_wait_seconds_total", r#"role="vhost""#, 0.25),
    (
        "virtlens_worker_cpu_seconds_total",
        r#"role="vhost",worker="0""#,
        0.875,
    ),
];

/// Alerts that this pod must raise.
const ALERTS: [&str; 5] = [
    "VirtlensCPUQuotaSaturated",
    "VirtlensIOHelperThrottled",
    "VirtlensQuotaConsumedByHelpers",
    "VirtlensTopologyMismatch",
    "VirtlensVhostWorkerSaturated",
];

/// The series now. They carry the time of their values, so that rates are exact.
fn exposition() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_ms = now.expect("it is after 1970").as_millis();
    // Counters have counted for long: Prometheus does not extrapolate below 0.
    let since_s =
        f64::from(u32::try_from(now_ms % 1_000_000_000).expect("it is small")) / 1e3 + 1e4;
    let mut text = String::new();
    let gauges = GAUGES.map(|(name, labels, value)| (name, labels, value));
    let counters = COUNTERS.map(|(name, labels, per_s)| (name, labels, per_s * since_s));
    for (name, labels, value) in gauges.into_iter().chain(counters) {
        writeln!(
            text,
            "{name}{{namespace=\"shop\",pod=\"web-0\",vm=\"w\",{labels}}} {value} {now_ms}"
        )
        .expect("writing to a String cannot fail");
    }
    text
}

fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _ = client.read(&mut request)?;
    let body = exposition();
    write!(
        client,
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n{body}"
    )
}

/// Serves the series until the test program ends; returns the address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that has gone needs no answer.
            drop(answer(client));
        }
    });
    address
}

/// Labels and annotations of alerts, by name.
type Alerts = BTreeMap<String, (Value, Value)>;

/// The alerts that fire.
fn firing(prometheus: &Prometheus) -> Alerts {
    let answer = prometheus.api("alerts", &[]);
    let alerts = answer["alerts"].as_array().into_iter().flatten();
    alerts
        .filter(|alert| alert["state"] == "firing")
        .map(|alert| {
            let name = alert["labels"]["alertname"]
                .as_str()
                .expect("it has a name");
            (
                name.to_owned(),
                (alert["labels"].clone(), alert["annotations"].clone()),
            )
        })
        .collect()
}

/// A Prometheus with such labels and the rules for them.
fn prometheus(labels: PodLabels, agent: &str, folder: &Path) -> Prometheus {
    let texts = [rules::recording_yaml(labels), rules::alerting_yaml(labels)];
    let files = ["recording", "alerting"].map(|name| folder.join(format!("{labels:?}-{name}")));
    for (file, text) in files.iter().zip(texts) {
        // Rules about minutes would take minutes.
        let text = text.expect("they can be made").replace("[5m]", "[10s]");
        let lines = text.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with("for: "));
        let lines: Vec<&str> = lines.collect();
        fs::write(file, lines.join("\n")).expect("it can be written");
    }
    Prometheus::scrape_as(labels, agent, &files.each_ref().map(|file| &**file))
}

/// The texts of the alerts.
fn texts(alerts: &Alerts) -> BTreeMap<&str, &Value> {
    let texts = alerts.iter();
    texts
        .map(|(name, (_, text))| (name.as_str(), text))
        .collect()
}

#[test]
fn alerts_have_the_same_text_with_both_labels() {
    if !need::all(
        "alerts_have_the_same_text_with_both_labels",
        [need::prometheus()],
    ) {
        return;
    }
    let agent = serve();
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let both = PodLabels::ALL.map(|labels| prometheus(labels, &agent, folder.path()));
    let mut last = [Alerts::new(), Alerts::new()];
    eventually("the same alerts in both", || {
        let now = both.each_ref().map(firing);
        if now != last {
            println!("{now:#?}");
            last = now;
        }
        let [kept, exported] = last.each_ref().map(texts);
        let has_all = ALERTS.iter().all(|name| kept.contains_key(name));
        (has_all && kept == exported).then_some(())
    });
    let [kept, exported] = &last;
    for name in ALERTS {
        let description = kept[name].1["description"].as_str().expect("a text");
        assert!(
            description.contains("VM w (pod shop/web-0)"),
            "{description}"
        );
        let of = |alerts: &Alerts, namespace: &str, pod: &str| {
            let labels = &alerts[name].0;
            [namespace, pod, "vm"].map(|label| labels[label].clone())
        };
        let expected = ["shop", "web-0", "w"].map(Value::from);
        assert_eq!(of(kept, "namespace", "pod"), expected, "{name}");
        let found = of(exported, "exported_namespace", "exported_pod");
        assert_eq!(found, expected, "{name}");
    }
}
