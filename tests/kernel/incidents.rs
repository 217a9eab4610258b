//! Incidents of the real agent, on a VM that a limit caps at a known time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use virtlens_tests::perfetto::{self, Trace, took_ns};
use virtlens_tests::scraped::samples;
use virtlens_tests::{Agent, binary, eventually, need, reader};

use crate::recording::{Busy, past, readings, recording_agent_with, throttled};

/// Without these findings, which the busy vCPU raises before it is capped, or on a busy host.
const THRESHOLDS: &str = "thresholds: {vcpus_busy: 100, vcpu_wait: 100}\n";

/// The directories of a test.
struct Folders {
    folder: TempDir,
    records: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let records = folder.path().join("records");
        fs::write(folder.path().join("config.yaml"), THRESHOLDS).expect("there is room");
        Self { folder, records }
    }

    fn agent(&self) -> Agent {
        let config = self.folder.path().join("config.yaml");
        recording_agent_with(&self.records, &["--config", config.to_str().expect("text")])
    }

    /// The only incident of a process so far.
    fn incident(&self, pid: u32) -> Option<Value> {
        let listed = past("incidents", &self.records, &[]);
        let all = listed["incidents"].as_array().expect("a list");
        let mut of_vm = all.iter().filter(|one| one["vm"]["pid"] == pid);
        let incident = of_vm.next().cloned();
        assert!(
            of_vm.next().is_none(),
            "one onset is one incident: {all:#?}"
        );
        incident
    }

    fn path(&self, incident: &Value) -> PathBuf {
        let id = incident["id"].as_str().expect("an id");
        self.records.join("incidents").join(id)
    }
}

/// Output of `virtlens incidents show`.
fn show(records: &Path, incident: &Value, format: &str) -> String {
    let id = incident["id"].as_str().expect("an id");
    let mut command = Command::new(binary("virtlens"));
    command.args(["incidents", "show", id, "-o", format, "--from"]);
    let output = command.arg(records).output().expect("virtlens starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Checks the complete incident of a VM that was capped at `onset_ns`.
fn check(folders: &Folders, incident: &Value, guest: &Busy, onset_ns: u64) {
    println!("{incident:#}");
    let pid = guest.pid();
    let findings = incident["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0]["check"], "quota_capped");
    assert!(incident["unix_ns"].as_u64().expect("a time") > onset_ns);
    assert_eq!(incident["trace_missing"], Value::Null);

    let path = folders.path(incident);
    let kept = readings(&path, pid);
    let (before, after): (Vec<_>, Vec<_>) = kept.iter().partition(|(time, _)| *time < onset_ns);
    assert!(before.len() >= 5, "{} readings before", before.len());
    assert!(before.iter().all(|(_, vm)| throttled(vm) == 0));
    assert!(after.iter().any(|(_, vm)| throttled(vm) > 0));
    let until_ns = incident["until_ns"].as_u64().expect("a time");
    let last_ns = kept.last().expect("there are readings").0;
    assert!(
        last_ns + 5_000_000_000 > until_ns,
        "the last reading is of {last_ns}"
    );

    let trace = path.join("trace.pftrace");
    let decoded = Trace::decode(&trace);
    let slices = decoded.of_thread(guest.vcpu_tid());
    let ran_ns = took_ns(&slices, "running");
    println!("{} slices, running for {ran_ns} ns", slices.len());
    // It is capped at half a core while it is traced.
    assert!(ran_ns > 0, "{slices:?}");

    let text = show(&folders.records, incident, "text");
    println!("{text}");
    for part in ["warning: quota_capped", "before", "during", "throttled"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(text.contains(&format!("trace: {}", trace.display())));
    let shown = show(&folders.records, incident, "json");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let cores = |when: &str| shown[when]["cpu_cores"].as_f64().expect("it is known");
    assert!(cores("before") > cores("during"));
    assert_eq!(shown["before"]["limit_cores"], Value::Null);
    assert_eq!(shown["during"]["limit_cores"], 0.5);
    assert!(
        shown["during"]["limit_used_ratio"]
            .as_f64()
            .expect("it is known")
            > 0.8
    );
}

/// Waits until the VM has run for long enough without a limit to be compared: the finding comes
/// at most 20 s after the limit, and the time that is compared ends 20 s before the finding.
fn run_uncapped(folders: &Folders, pid: u32) {
    eventually("readings of the VM", || {
        (readings(&folders.records, pid).len() >= 18).then_some(())
    });
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup(), perfetto::there()])
}

/// The incident once `is_over` accepts it.
fn once(what: &str, folders: &Folders, pid: u32, is_over: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || folders.incident(pid).filter(&is_over))
}

fn has_trace(incident: &Value) -> bool {
    incident["trace"].is_string()
}

fn is_complete(incident: &Value) -> bool {
    incident["is_complete"] == true
}

/// Checks that the agent serves the incident as the command shows it, and that none failed.
fn check_served(agent: &Agent, folders: &Folders, incident: &Value) {
    let id = incident["id"].as_str().expect("an id");
    let answer = agent.get(&format!("/api/v1/incidents/{id}"));
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    let served: Value = serde_json::from_str(body).expect("JSON");
    let shown: Value =
        serde_json::from_str(&show(&folders.records, incident, "json")).expect("JSON");
    assert_eq!(served, shown);
    let failed = "virtlens_incidents_skipped_total{reason=\"failed\"}";
    assert_eq!(value(agent, failed), Some(0.0));
}

/// Number in a metric of the agent, if it has the series.
fn value(agent: &Agent, series: &str) -> Option<f64> {
    samples(agent, |name| name.starts_with("virtlens_incidents_"))
        .get(series)
        .copied()
}

#[test]
fn incident_of_capped_vm_survives_kills_with_recording_and_trace() {
    let test = "incident_of_capped_vm_survives_kills_with_recording_and_trace";
    if !ready(test) {
        return;
    }
    let folders = Folders::new();
    let guest = Busy::start();
    let pid = guest.pid();
    let agent = folders.agent();
    run_uncapped(&folders, pid);
    let onset_ns = guest.cap();
    eventually("the onset in the recording", || {
        let last = readings(&folders.records, pid).pop()?;
        (throttled(&last.1) > 0).then_some(())
    });
    // SIGKILL, before the agent has judged.
    drop(agent);
    assert_eq!(folders.incident(pid), None);
    let agent = folders.agent();
    let begun = once("the incident", &folders, pid, |_| true);
    let capped = "virtlens_incidents_total{check=\"quota_capped\"}";
    eventually("its count", || {
        (value(&agent, capped) == Some(1.0)).then_some(())
    });
    // While it is traced.
    drop(agent);
    assert!(!is_complete(&begun));
    let agent = folders.agent();
    once("the trace by the next agent", &folders, pid, has_trace);
    let incident = once("the end of the incident", &folders, pid, is_complete);
    assert_eq!(incident["id"], begun["id"]);
    check(&folders, &incident, &guest, onset_ns);
    check_served(&agent, &folders, &incident);
}
