//! Whole expositions of a synthetic node.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use virtlens_export::{
    Agent, Format, Incidents, Kind, Process, Profile, Recording, Scrape, Selection, encode,
    families,
};
use virtlens_model::judge::onset::Skip;
use virtlens_model::snapshot::{Check, Snapshot};
use virtlens_tests::golden::assert_golden;
use virtlens_tests::{fixture, fleet};

fn incidents() -> Incidents {
    let mut incidents = Incidents::default();
    incidents.begun(Check::QuotaCapped);
    incidents.begun(Check::IoThrottled);
    incidents.skipped(Skip::NodeRate);
    incidents
}

fn reading(snapshot: Snapshot) -> Arc<Scrape> {
    Arc::new(Scrape {
        snapshot: Arc::new(snapshot),
        agent: Some(Agent {
            version: "1.2.3",
            revision: "",
            rustversion: "1.95.0",
            collection_ns: 1_999_999,
            recording: Some(Recording {
                kept: 8640,
                late: 1,
                failed: 2,
                bytes: 173_000_000,
                incidents: Some(incidents()),
            }),
            process: Process {
                cpu_ns: Some(123_456_789),
                resident_bytes: Some(8_388_608),
                open_fds: Some(23),
                start_unix_ns: Some(1_767_225_600_250_000_000),
            },
        }),
    })
}

fn text_of(reading: &Arc<Scrape>, format: Format) -> String {
    let mut out = String::new();
    encode(reading, &Selection::all(), format, &mut out);
    out
}

fn golden(name: &str) -> String {
    format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn exposition_in_both_formats_equals_golden() {
    let reading = reading(fixture::snapshot());
    assert_golden(golden("metrics.txt"), &text_of(&reading, Format::Text));
    let open_metrics = text_of(&reading, Format::OpenMetrics);
    assert_golden(golden("metrics.openmetrics.txt"), &open_metrics);
}

#[test]
fn both_formats_have_the_same_series() {
    let reading = reading(fixture::snapshot());
    let series = |format| -> Vec<String> {
        let text = text_of(&reading, format);
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(series(Format::Text), series(Format::OpenMetrics));
}

#[test]
fn every_series_is_unique() {
    let text = text_of(&reading(fixture::snapshot()), Format::Text);
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        assert!(seen.insert(series), "{series}");
    }
}

#[test]
fn every_family_has_series_in_the_fixture() {
    let text = text_of(&reading(fixture::snapshot()), Format::Text);
    for family in families() {
        assert!(
            text.contains(&format!("\n{}", family.name)),
            "{}",
            family.name
        );
    }
}

#[test]
fn family_without_series_is_omitted() {
    let node = Snapshot {
        vms: Vec::new(),
        programs: Vec::new(),
        ..fixture::snapshot()
    };
    for format in [Format::Text, Format::OpenMetrics] {
        let text = text_of(&reading(node.clone()), format);
        for absent in ["virtlens_cpu", "virtlens_vm_info", "virtlens_bpf_program"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert!(text.contains("\nvirtlens_vms 0\n"), "{text}");
    }
}

#[test]
fn hostile_names_stay_inside_their_label() {
    let text = text_of(&reading(fixture::snapshot()), Format::Text);
    let escaped = "vm=\"a \\\"quoted\\\" back\\\\slash\\nnew line\"";
    assert!(text.contains(escaped), "{text}");
    for line in text.lines() {
        assert!(
            line.starts_with('#') || line.starts_with("virtlens_") || line.starts_with("process_")
        );
    }
}

#[test]
fn promtool_check_metrics_passes() {
    for reading in [reading(fixture::snapshot()), fleet::reading(3, 2)] {
        let text = text_of(&reading, Format::Text);
        virtlens_tests::promtool::assert_accepts("promtool_check_metrics_passes", text.as_bytes());
    }
}

#[test]
fn series_and_bytes_per_vm_are_within_budget() {
    const VMS: usize = 200;
    const VCPUS: usize = 8;
    let reading = fleet::reading(200, 8);
    for (profile, most) in [(Profile::Minimal, 12), (Profile::Default, 40 + 3 * VCPUS)] {
        let mut text = String::new();
        let selection = Selection::from(profile);
        encode(&reading, &selection, Format::OpenMetrics, &mut text);
        let series = text.lines().filter(|line| line.contains("vm=")).count();
        let name = profile.name();
        println!("{name}: {} series a VM", series / VMS);
        assert!(series <= VMS * most, "{name}: {} a VM", series / VMS);
        if profile == Profile::Default {
            assert!(series > VMS * 2 * VCPUS, "series of each vCPU are missing");
        }
        let packed = packed_bytes(&text);
        assert!(packed <= VMS * 5 * 1024, "{} bytes a VM", packed / VMS);
    }
}

fn packed_bytes(text: &str) -> usize {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes())
        .expect("a Vec takes everything");
    gzip.finish().expect("a Vec takes everything").len()
}

#[test]
fn families_have_kind_and_labels() {
    let cpu = families()
        .find(|family| family.name == "virtlens_cpu_seconds_total")
        .expect("it is there");
    assert_eq!(cpu.kind, Kind::Counter);
    assert_eq!(cpu.labels(), ["namespace", "pod", "vm", "role"]);
}
