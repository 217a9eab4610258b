//! An exported recording in a real Prometheus, by way of the real promtool.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_record::{Limits, Recorder};
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{binary, fixture, need, promtool};

const SECOND: u64 = 1_000_000_000;

/// 2026-01-01T00:58:20.5Z, s since 1970. Prometheus begins a block every 2 h since 1970: reading
/// 370 is the first one of the second block.
const START: f64 = 1_767_229_100.5;
const START_NS: u64 = 1_767_229_100 * SECOND + SECOND / 2;

/// Readings, which are 10 s apart.
const READINGS: u64 = 400;

/// The series that is compared in detail.
const CPU: &str = "virtlens_cpu_seconds_total{instance=\"node-a:9877\",job=\"virtlens\",\
                   namespace=\"shop\",pod=\"web-0\",role=\"vhost\"}";

/// The fixture with counters that rise by a quarter of the time.
fn reading(number: u64) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    snapshot.clock_ns = number * 10 * SECOND;
    for vm in &mut snapshot.vms {
        for role in &mut vm.roles {
            role.cpu_ns += number * 10 * SECOND / 4;
        }
    }
    snapshot
}

/// CPU time of vhost in a reading, seconds.
fn vhost_seconds(number: u64) -> f64 {
    let snapshot = reading(number);
    let roles = &snapshot.vms[0].roles;
    let vhost = roles.iter().find(|one| one.role == Role::Vhost);
    let ns = vhost.expect("it has vhost").cpu_ns;
    Duration::from_nanos(ns).as_secs_f64()
}

fn record(folder: &Path) {
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(24),
    };
    let mut recorder =
        Recorder::open(folder, limits, "node-a", "0.1.0", None).expect("the folder is new");
    for number in 0..READINGS {
        let unix_ns = START_NS + number * 10 * SECOND;
        let recorded = recorder.record(&reading(number), unix_ns);
        recorded.expect("there is room");
    }
}

/// Time of a reading, seconds since 1970.
fn time(number: u32) -> f64 {
    START + f64::from(number) * 10.0
}

/// The values of a query at a time.
fn values(prometheus: &Prometheus, query: &str, time: f64) -> Vec<f64> {
    let time = format!("{time:.3}");
    let answer = prometheus.api("query", &[("query", query), ("time", &time)]);
    let series = answer["result"].as_array().expect("a vector");
    let value = |one: &Value| one["value"][1].as_str()?.parse().ok();
    series.iter().filter_map(value).collect()
}

#[test]
fn exported_recording_can_be_queried_in_prometheus() {
    let test = "exported_recording_can_be_queried_in_prometheus";
    if !need::all(test, [need::prometheus(), need::promtool()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let [recording, file, blocks] =
        ["recording", "readings.txt", "blocks"].map(|name| folder.path().join(name));
    record(&recording);
    let mut command = Command::new(binary("virtlens"));
    command.args(["record", "export", "--metrics", "default,+*"]);
    command.args(["--label", "instance=node-a:9877", "--label", "job=virtlens"]);
    let exported = command.arg("--from").arg(&recording).output();
    let exported = exported.expect("virtlens starts");
    assert!(exported.status.success(), "{exported:?}");
    std::fs::write(&file, &exported.stdout).expect("there is room");

    let [file, blocks_path] = [&file, &blocks].map(|path| path.to_str().expect("UTF-8"));
    let create = [
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        file,
        blocks_path,
    ];
    let said = promtool::run(test, &create).expect("it is there");
    println!("{said}");
    let prometheus = Prometheus::on_blocks(&blocks);
    let last = u32::try_from(READINGS - 1).expect("a small number");
    for number in [0, 7, last] {
        let found = values(&prometheus, CPU, time(number));
        assert_eq!(found, [vhost_seconds(number.into())], "reading {number}");
    }
    // Also over the border of two blocks.
    for number in [6, 300, 369, 370, 373, last] {
        let rate = values(&prometheus, &format!("rate({CPU}[1m])"), time(number));
        let [rate] = rate[..] else {
            panic!("reading {number}: {rate:?}");
        };
        assert!((rate - 0.25).abs() < 1e-6, "reading {number}: {rate}");
    }
    // Each sample of a reading is there.
    let end = format!(" {:.3}", time(last));
    let text = String::from_utf8(exported.stdout).expect("UTF-8");
    let samples = text.lines().filter(|line| line.ends_with(&end)).count();
    let samples = u32::try_from(samples).expect("a small number");
    let all = "count({instance=\"node-a:9877\"})";
    let counted = values(&prometheus, all, time(last));
    assert!(samples > 200, "{samples}");
    assert_eq!(counted, [f64::from(samples)]);
}
