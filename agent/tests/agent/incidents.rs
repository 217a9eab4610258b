//! Incidents on the command line.

use std::path::Path;

use serde_json::Value;
use virtlens_model::snapshot::{Check, Finding, Vm};
use virtlens_record::{Incident, Incidents, Limits, Recorder};
use virtlens_tests::{blank, fixture};

use crate::errors::assert_fails;
use crate::program::output;

const START_NS: u64 = 1_800_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

fn finding() -> Finding {
    Finding::new(
        Check::QuotaCapped,
        "used 0.50 of 0.50 cores".to_owned(),
        2.0,
    )
}

/// An incident of this VM a minute after the start, in a recording of readings of each second:
/// one core is used before it, and half a core during it.
fn recorded(records: &Path, vm: Vm) -> Incident {
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: std::time::Duration::from_hours(1),
    };
    let recorder = Recorder::open(records, limits, "node-a", "0.1.0", None);
    let mut recorder = recorder.expect("the folder is ours");
    let mut now = vm;
    for second in 0..=90 {
        let is_capped = second >= 60;
        if let Some(role) = now.roles.first_mut() {
            role.cpu_ns += if is_capped { SECOND_NS / 2 } else { SECOND_NS };
        }
        let found = is_capped.then(finding);
        now.findings = Some(found.into_iter().collect());
        let mut snapshot = blank::snapshot(vec![now.clone()]);
        snapshot.clock_ns = second * SECOND_NS;
        let recorded = recorder.record(&snapshot, START_NS + second * SECOND_NS);
        recorded.expect("there is room");
    }
    let onset_ns = START_NS + 60 * SECOND_NS;
    let time = "2027-01-15T08:01:00Z";
    let mut incident = Incident::new(&now, vec![finding()], "node-a", time, onset_ns);
    let (mut incidents, _) = Incidents::open(records, 1 << 30).expect("the folder is ours");
    let begun = incidents.begin(&mut incident, &recorder.segments_since(0));
    begun.expect("there is room");
    incident
}

fn text(args: &[&str], records: &Path) -> String {
    let records = records.to_str().expect("text");
    let output = output(&[args, &["--from", records]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn incident_is_listed_and_shows_usage_before_and_during() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let vm = fixture::snapshot().vms.swap_remove(0);
    let incident = recorded(records, vm);
    let listed = text(&["incidents"], records);
    let lines: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["ID", "TIME", "VM", "CHECKS", "TRACE"]);
    assert_eq!(lines[1][0], incident.id);
    assert_eq!(lines[1][1], "2027-01-15T08:01:00Z");
    assert_eq!(lines[1][3..], ["quota_capped", "not", "yet"]);
    let json = text(&["incidents", "-o", "json"], records);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["incidents"][0]["id"], *incident.id);

    let shown = text(&["incidents", "show", &incident.id], records);
    println!("{shown}");
    for part in [
        "warning: quota_capped",
        "used 0.50 of 0.50",
        "do: ",
        "trace: none yet",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let json = text(&["incidents", "show", &incident.id, "-o", "json"], records);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["before"]["cpu_cores"], 1.0);
    assert_eq!(json["before"]["length_ns"], 40 * SECOND_NS);
    assert_eq!(json["during"]["cpu_cores"], 0.5);
    assert_eq!(json["during"]["length_ns"], 30 * SECOND_NS);
}

#[test]
fn control_characters_in_names_of_incidents_are_escaped() {
    let folder = tempfile::tempdir().expect("there is room");
    let hostile = Vm {
        vm: "db\x1b[2J\u{9b}1m\n".into(),
        ..fixture::snapshot().vms.swap_remove(0)
    };
    let hostile = Vm {
        pod: None,
        ..hostile
    };
    let incident = recorded(folder.path(), hostile);
    for args in [&["incidents"][..], &["incidents", "show", &incident.id]] {
        let shown = text(args, folder.path());
        let is_control = |char: char| char.is_control() && char != '\n';
        assert!(!shown.contains(is_control), "{shown:?}");
        assert!(shown.contains("db\u{fffd}[2J\u{fffd}1m\u{fffd}"), "{shown}");
    }
}

#[test]
fn missing_and_damaged_incidents_are_named() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().to_str().expect("text");
    assert_eq!(text(&["incidents"], folder.path()), "No incidents.\n");
    for id in ["20260131T031000Z-000007", "../../etc", ""] {
        let missing = output(&["incidents", "show", id, "--from", path]);
        assert_fails(
            &missing,
            1,
            &["no incident", path, "virtlens incidents lists"],
        );
    }
    assert_fails(
        &output(&["incidents", "--from", "/nowhere/records"]),
        1,
        &["cannot read", "/nowhere/records"],
    );
    let damaged = folder.path().join("incidents/20260131T031000Z-000007");
    std::fs::create_dir_all(&damaged).expect("there is room");
    std::fs::write(damaged.join("incident.json"), "{").expect("there is room");
    let listed = output(&["incidents", "--from", path]);
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{said}");
    assert!(said.contains("incident.json"), "{said}");
}
