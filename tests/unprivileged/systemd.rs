//! The systemd unit, which has to agree with the chart.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use virtlens_tests::need;

use crate::chart::{deploy, parse};

fn capabilities_of_the_chart() -> BTreeSet<String> {
    let values = parse(&fs::read_to_string(deploy("chart/virtlens/values.yaml")).expect("values"));
    let added = values["securityContext"]["capabilities"]["add"].clone();
    serde_json::from_value(added).expect("a list of names")
}

/// The systemd service has the same capabilities as the pod.
#[test]
fn systemd_unit_has_chart_capabilities() {
    let unit = fs::read_to_string(deploy("systemd/virtlens.service")).expect("a unit");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.expect("it bounds them").split(' ');
    let names: BTreeSet<String> = names
        .map(|name| name.strip_prefix("CAP_").expect("a capability").to_owned())
        .collect();
    assert_eq!(names, capabilities_of_the_chart());
}

/// systemd accepts every line, and rates the exposure as OK.
#[test]
fn systemd_analyze_accepts_unit() {
    if !need::all("systemd_analyze_accepts_unit", [need::systemd_analyze()]) {
        return;
    }
    let unit = fs::read_to_string(deploy("systemd/virtlens.service")).expect("a unit");
    let dir = tempfile::tempdir().expect("there is room for a folder");
    let path = dir.path().join("virtlens.service");
    // systemd-analyze checks that the program exists.
    let unit = unit.replace("/usr/local/bin/virtlens", "/bin/true");
    fs::write(&path, unit).expect("a file can be written");
    // systemd-analyze calls an exposure of 3.0 of 10 and less OK.
    let security = ["security", "--offline=true", "--threshold=30", "--no-pager"];
    for verb in [&["verify"][..], &security] {
        let mut analyze = Command::new("systemd-analyze");
        let output = analyze.args(verb).arg(&path).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{said}{output:?}"
        );
    }
}
