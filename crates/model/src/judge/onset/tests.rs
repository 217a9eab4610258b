use std::sync::Arc;

use super::{Onsets, Skip};
use crate::snapshot::{API_VERSION, Check, Finding, Node, Snapshot, Vm};

const SECOND_NS: u64 = 1_000_000_000;
/// Time of the first reading.
const START_NS: u64 = 1_800_000_000 * SECOND_NS;
const CAPPED: Check = Check::QuotaCapped;
const STARVED: Check = Check::VcpuStarved;

/// A VM with these findings.
fn vm(pid: u32, found: &[(Check, f64)]) -> Vm {
    let findings = found.iter();
    let findings =
        findings.map(|(check, excess)| Finding::new(*check, format!("{excess}"), *excess));
    Vm {
        pid,
        vm: Arc::from("vm"),
        running: true,
        findings: Some(findings.collect()),
        ..Vm::default()
    }
}

fn reading(vms: Vec<Vm>) -> Snapshot {
    Snapshot {
        api_version: API_VERSION,
        kind: "Snapshot",
        time: String::new(),
        clock_ns: 0,
        reading_age_ns: Some(0),
        node: Node {
            name: "node".to_owned(),
            kernel: "6.12".to_owned(),
            cpus: 4,
            cgroup: "v2",
        },
        host: Arc::default(),
        sources: Vec::new(),
        dropped: Vec::new(),
        maps: Vec::new(),
        programs: Vec::new(),
        vms,
    }
}

/// The onsets in a reading `seconds` after the start: pid, checks, and why there is no incident.
fn onsets(
    of: &mut Onsets,
    seconds: u64,
    vms: Vec<Vm>,
) -> Vec<(u32, Vec<&'static str>, Option<Skip>)> {
    let snapshot = reading(vms);
    let found = of.add(&snapshot, START_NS + seconds * SECOND_NS);
    let shown = found.iter().map(|onset| {
        let checks = onset.findings.iter().map(|finding| finding.check.name());
        (onset.vm.pid, checks.collect(), onset.skip)
    });
    shown.collect()
}

#[test]
fn warnings_that_begin_together_are_one_onset() {
    let mut of = Onsets::default();
    assert_eq!(onsets(&mut of, 0, vec![vm(7, &[]), vm(8, &[])]), []);
    let found = onsets(
        &mut of,
        10,
        vec![vm(7, &[(CAPPED, 2.0), (STARVED, 1.0)]), vm(8, &[])],
    );
    assert_eq!(found, [(7, vec!["quota_capped", "vcpu_starved"], None)]);
    assert_eq!(onsets(&mut of, 20, vec![vm(7, &[(CAPPED, 2.0)])]), []);
}

#[test]
fn new_vm_with_warning_has_onset_and_info_finding_has_none() {
    let mut of = Onsets::default();
    let vms = vec![vm(7, &[(CAPPED, 2.0)]), vm(8, &[(Check::MemoryKept, 9.0)])];
    assert_eq!(onsets(&mut of, 0, vms), [(7, vec!["quota_capped"], None)]);
}

#[test]
fn warning_that_pauses_begins_again_only_after_five_minutes() {
    for (pause_s, begins) in [(10, false), (299, false), (600, true)] {
        let mut of = Onsets::default();
        onsets(&mut of, 0, vec![vm(7, &[(CAPPED, 2.0)])]);
        onsets(&mut of, 5, vec![vm(7, &[])]);
        let found = onsets(&mut of, pause_s, vec![vm(7, &[(CAPPED, 2.0)])]);
        let expected = if begins {
            vec![(7, vec!["quota_capped"], None)]
        } else {
            vec![]
        };
        assert_eq!(found, expected, "{pause_s} s");
    }
}

#[test]
fn warning_that_lasts_begins_once_although_readings_fail() {
    let mut of = Onsets::default();
    for seconds in (0..7200).step_by(10) {
        // Some readings have no VMs, and some are before the first judgement.
        let vms = match seconds % 60 {
            10 => vec![],
            20 => vec![Vm {
                findings: None,
                ..vm(7, &[])
            }],
            _ => vec![vm(7, &[(CAPPED, 2.0)])],
        };
        let found = onsets(&mut of, seconds, vms);
        assert_eq!(found.len(), usize::from(seconds == 0), "{seconds} s");
    }
}

#[test]
fn vm_has_one_incident_in_ten_minutes() {
    let mut of = Onsets::default();
    onsets(&mut of, 0, vec![vm(7, &[(CAPPED, 2.0)])]);
    let both = &[(CAPPED, 2.0), (STARVED, 1.0)];
    let found = onsets(&mut of, 599, vec![vm(7, both)]);
    // The first warning paused for long enough, but the VM had an incident.
    let checks = vec!["quota_capped", "vcpu_starved"];
    assert_eq!(found, [(7, checks.clone(), Some(Skip::VmRate))]);
    onsets(&mut of, 600, vec![vm(7, &[])]);
    assert_eq!(
        onsets(&mut of, 1200, vec![vm(7, both)]),
        [(7, checks, None)]
    );
}

#[test]
fn node_has_six_incidents_in_an_hour_and_the_worst_vms_get_them() {
    let mut of = Onsets::default();
    let vms = (1..=9).map(|pid| vm(pid, &[(CAPPED, f64::from(pid))]));
    let found = onsets(&mut of, 0, vms.collect());
    let kept: Vec<u32> = found
        .iter()
        .filter(|(_, _, skip)| skip.is_none())
        .map(|(pid, ..)| *pid)
        .collect();
    assert_eq!(kept, [9, 8, 7, 6, 5, 4]);
    let skipped = found.iter().filter(|one| one.2 == Some(Skip::NodeRate));
    assert_eq!(skipped.count(), 3);
    let later = |of: &mut Onsets, seconds| {
        let found = onsets(of, seconds, vec![vm(20, &[(CAPPED, 1.0)])]);
        found.first().and_then(|(_, _, skip)| *skip)
    };
    assert_eq!(later(&mut of, 3000), Some(Skip::NodeRate));
    assert_eq!(later(&mut of, 3600), None);
}

#[test]
fn state_of_earlier_agent_is_continued() {
    let mut of = Onsets::default();
    of.resume(&reading(vec![vm(7, &[(CAPPED, 2.0)])]), START_NS);
    of.add_incident(8, &Arc::from("vm"), [STARVED], START_NS);
    let vms = || {
        vec![
            vm(7, &[(CAPPED, 2.0)]),
            vm(8, &[(STARVED, 1.0)]),
            vm(9, &[(STARVED, 1.0)]),
        ]
    };
    assert_eq!(
        onsets(&mut of, 30, vms()),
        [(9, vec!["vcpu_starved"], None)]
    );
    let mut again = Onsets::default();
    again.resume(&reading(vec![vm(7, &[(CAPPED, 2.0)])]), START_NS);
    assert_eq!(onsets(&mut again, 3000, vms()).len(), 3);
}

#[test]
fn clock_that_is_set_back_suppresses_nothing_for_long() {
    let mut of = Onsets::default();
    let year_s = 365 * 86_400;
    for pid in 1..=6 {
        onsets(&mut of, year_s, vec![vm(pid, &[(CAPPED, 2.0)])]);
    }
    let found = onsets(&mut of, 0, vec![vm(1, &[(CAPPED, 2.0)])]);
    assert_eq!(found, [(1, vec!["quota_capped"], None)]);
}

#[test]
fn reused_pid_and_ended_vms_are_forgotten() {
    let mut of = Onsets::default();
    onsets(&mut of, 0, vec![vm(7, &[(CAPPED, 2.0)])]);
    let other = Vm {
        vm: Arc::from("other"),
        ..vm(7, &[(CAPPED, 2.0)])
    };
    assert_eq!(onsets(&mut of, 10, vec![other]).len(), 1);
    assert_eq!(of.vms.len(), 2);
    onsets(&mut of, 1000, vec![]);
    assert_eq!(of.vms.len(), 0);
}
