//! `virtlens doctor --against` on a recording whose content is known.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use virtlens_model::snapshot::{Check, Finding, Snapshot};
use virtlens_tests::golden::assert_golden;

use crate::api::Server;
use crate::errors::assert_fails;
use crate::golden;
use crate::program::output;
use crate::recorded::{self, SECOND};

/// A calm minute, and from 00:10:00 on one in which the first VM is at its limit. The third VM
/// ends between them, and another one starts.
fn reading(seconds: u64) -> Snapshot {
    let mut snapshot = recorded::reading(seconds);
    let is_busy = seconds >= 600;
    let finding = |check, evidence: &str, excess| Finding::new(check, evidence.to_owned(), excess);
    let found = if is_busy {
        vec![
            finding(Check::QuotaCapped, "the pod used 1.24 of 1.25 cores", 1.6),
            finding(Check::VcpusExceedQuota, "2 vCPUs under 1.25 cores", 1.1),
        ]
    } else {
        vec![
            finding(
                Check::VhostSaturated,
                "vhost worker 0 used 0.91 of 1 core",
                1.07,
            ),
            finding(
                Check::VcpusExceedQuota,
                "2 vCPUs under a limit of 1.25 cores",
                1.1,
            ),
        ]
    };
    let kata = &mut snapshot.vms[0];
    kata.findings = Some(found.into());
    // The use per second.
    let (vcpu_ns, vhost_ns) = if is_busy {
        (SECOND * 9 / 10, SECOND * 3 / 10)
    } else {
        (SECOND * 3 / 10, SECOND * 9 / 10)
    };
    kata.roles[0].cpu_ns += seconds * vcpu_ns;
    kata.roles[1].cpu_ns += seconds * vhost_ns;
    for vcpu in &mut kata.vcpus {
        vcpu.cpu_ns += seconds * vcpu_ns / 2;
        vcpu.wait_ns = vcpu.wait_ns.map(|ns| ns + seconds * vcpu_ns / 4);
        vcpu.pcpu = Some(if is_busy { vcpu.id } else { vcpu.id + 4 });
    }
    if is_busy {
        for quota in &mut kata.quota {
            quota.throttled_periods += seconds * 4;
            quota.throttled_ns += seconds * SECOND / 5;
            quota.periods += seconds * 10;
            quota.throttle = None;
        }
        kata.memory.resident_bytes = kata.memory.resident_bytes.map(|bytes| bytes * 2);
    }
    snapshot.vms[1].findings = Some([].into());
    let last = &mut snapshot.vms[2];
    last.running = true;
    if is_busy {
        (last.vm, last.pid) = ("new".into(), 4500);
    }
    snapshot
}

fn recording() -> TempDir {
    let minutes = [0, 600].map(|start| (start..=start + 60).step_by(10));
    let times = minutes.into_iter().flatten();
    recorded::recording(times.map(|seconds| (seconds, reading(seconds))))
}

/// The times of the busy and of the calm minute.
const TIMES: [&str; 6] = [
    "--since",
    "2026-01-01T00:10:00Z",
    "--until",
    "2026-01-01T00:11:00Z",
    "--against",
    "2026-01-01T00:00:00Z",
];

/// The exit code and stdout of a comparison.
fn compare(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = folder.to_str().expect("UTF-8");
    let output = output(&[&["doctor", "--from", folder], &TIMES[..], more].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error, "");
    (
        output.status.code(),
        String::from_utf8(output.stdout).expect("UTF-8"),
    )
}

#[test]
fn comparison_text_equals_golden() {
    let folder = recording();
    let (code, text) = compare(folder.path(), &[]);
    assert_eq!(code, Some(2));
    assert_golden(golden("doctor-against.txt"), &text);
}

#[test]
fn comparison_json_equals_golden() {
    let folder = recording();
    let (code, text) = compare(folder.path(), &["-o", "json"]);
    assert_eq!(code, Some(2));
    assert_golden(golden("doctor-against.json"), &text);
}

#[test]
fn comparison_of_one_vm_has_nothing_of_others() {
    let folder = recording();
    let (code, text) = compare(folder.path(), &["vms_database", "-o", "json"]);
    assert_eq!(code, Some(0), "it has no finding");
    let differences: Value = serde_json::from_str(&text).expect("JSON");
    let vms = differences["vms"].as_array().expect("VMs");
    let names: Vec<_> = vms.iter().map(|vm| &vm["vm"]).collect();
    assert_eq!(names, ["vms_database"]);
    assert_eq!(differences["onlyNow"], Value::Array(Vec::new()));
}

#[test]
fn comparison_of_an_agent_is_that_of_its_recording() {
    let folder = recording();
    let cases = [(&[][..], 2), (&["vms_database"][..], 0)];
    let cases = cases.map(|(vms, code)| {
        let more = [vms, &["-o", "json"]].concat();
        let (_, expected) = compare(folder.path(), &more);
        (more, code, expected)
    });
    let server = Server::with(reading(3000), None, Some(folder.path()));
    let url = format!("http://{}", server.address);
    for (more, code, expected) in cases {
        let output = output(&[&["doctor", "--from", &url], &TIMES[..], &more].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        let texts = [expected.as_bytes(), &output.stdout];
        let [mut expected, mut shown] =
            texts.map(|text| serde_json::from_slice::<Value>(text).expect("JSON"));
        // The recording of the test has another name in its header than in its readings.
        assert_eq!(shown["node"], *reading(0).node.name);
        shown["node"] = expected["node"].take();
        expected["node"].clone_from(&shown["node"]);
        assert_eq!(shown, expected);
    }
    let empty = [
        &["doctor", "--from", &url],
        &TIMES[..5],
        &["2025-01-01T00:00:00Z"],
    ];
    assert_fails(&output(&empty.concat()), 1, &["no reading between"]);
    let overlapping = [
        &["doctor", "--from", &url],
        &TIMES[..5],
        &["2026-01-01T00:09:30Z"],
    ];
    assert_fails(
        &output(&overlapping.concat()),
        2,
        &["--against", "overlaps"],
    );
}

#[test]
fn overlapping_or_empty_times_are_errors() {
    let folder = recording();
    let folder = folder.path().to_str().expect("UTF-8");
    let fails = |against: &str, code, words: &[&str]| {
        let times = [&TIMES[..5], &[against]].concat();
        let args = [&["doctor", "--from", folder], &times[..]].concat();
        assert_fails(&output(&args), code, words);
    };
    fails("2026-01-01T00:09:30Z", 2, &["--against", "overlaps"]);
    fails("2026-01-01T00:10:30Z", 2, &["--against", "overlaps"]);
    fails("2026-01-01T00:05:00Z", 1, &["no reading between"]);
    let unknown = [&["doctor", "--from", folder, "web-9"], &TIMES[..]].concat();
    assert_fails(&output(&unknown), 1, &["web-9"]);
    let no_recording = output(&["doctor", "--against", "-1h"]);
    assert_fails(&no_recording, 2, &["--against", "--from"]);
}
