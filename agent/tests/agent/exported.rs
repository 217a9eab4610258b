//! `virtlens record export` of recordings whose content is known.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::golden::assert_golden;

use crate::errors::assert_fails;
use crate::golden;
use crate::program::{output, virtlens};
use crate::recorded::{self, SECOND};

/// The fixture with counters that rise, at a time, seconds after the start.
fn reading(seconds: u64) -> Snapshot {
    let mut snapshot = recorded::reading(seconds);
    for vm in &mut snapshot.vms {
        for role in &mut vm.roles {
            role.cpu_ns += seconds * SECOND / 4;
        }
    }
    snapshot
}

/// A recording with readings at these times, seconds after the start.
fn recording(times: &[u64]) -> TempDir {
    recorded::recording(times.iter().map(|seconds| (*seconds, reading(*seconds))))
}

/// The exit code, stdout and stderr of an export.
fn export(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let folder = folder.to_str().expect("UTF-8");
    let output = output(&[&["record", "export", "--from", folder], more].concat());
    let [out, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    (output.status.code(), out, error)
}

#[test]
fn export_as_openmetrics_equals_golden() {
    let folder = recording(&[0, 10]);
    let labels = ["--label", "instance=node-a:9877", "--label", "job=virtlens"];
    let more = [&["--metrics", "minimal"], &labels[..]].concat();
    let (code, out, error) = export(folder.path(), &more);
    assert_eq!((code, &*error), (Some(0), ""));
    assert_golden(golden("export.openmetrics.txt"), &out);
}

#[test]
fn export_as_csv_equals_golden() {
    let folder = recording(&[0, 10]);
    let (code, out, error) = export(folder.path(), &["-o", "csv"]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert_golden(golden("export.csv"), &out);
}

#[test]
fn export_as_jsonl_has_the_json_of_each_reading() {
    let folder = recording(&[0, 10, 20]);
    let since = ["--since", "2026-01-01T00:00:10Z"];
    let (code, out, error) = export(folder.path(), &[&["-o", "jsonl"], &since[..]].concat());
    assert_eq!((code, &*error), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    let expected = [10, 20].map(|seconds| serde_json::to_string(&reading(seconds)).expect("JSON"));
    assert_eq!(lines, expected);
}

#[test]
fn export_of_one_vm_has_nothing_of_others() {
    let folder = recording(&[0, 10]);
    let (_, all, _) = export(folder.path(), &["-o", "csv"]);
    let (code, out, _) = export(folder.path(), &["shop/web-0", "-o", "csv"]);
    assert_eq!(code, Some(0));
    let of_vm: Vec<&str> = all
        .lines()
        .filter(|line| line.starts_with("time,") || line.contains("sandbox-7c41e0"))
        .collect();
    assert_eq!(out.lines().collect::<Vec<_>>(), of_vm);

    let (_, out, _) = export(folder.path(), &["shop/web-0"]);
    assert!(out.ends_with("# EOF\n"), "{out}");
    let samples = out.lines().filter(|line| !line.starts_with('#'));
    for line in samples {
        assert!(line.contains("vm=\"sandbox-7c41e0\""), "{line}");
    }

    let folder = folder.path().to_str().expect("UTF-8");
    let unknown = output(&["record", "export", "--from", folder, "shop/web-9"]);
    assert_fails(&unknown, 1, &["shop/web-9", "shop/web-0"]);
}

#[test]
fn damaged_part_is_reported_and_the_rest_exported() {
    let folder = recording(&[0, 10]);
    let entries = std::fs::read_dir(folder.path()).expect("it is there");
    let mut files = entries.map(|entry| entry.expect("it can be read").path());
    let segment = files.find(|path| path.extension().is_some());
    let segment = segment.expect("there is a segment");
    let file = std::fs::OpenOptions::new().append(true).open(&segment);
    let torn = file.and_then(|mut file| file.write_all(b"torn"));
    torn.expect("there is room");
    std::fs::write(folder.path().join("0000000000000009.vlrec"), "text").expect("there is room");
    let (code, out, error) = export(folder.path(), &["-o", "jsonl"]);
    assert_eq!((code, out.lines().count()), (Some(1), 2), "{error}");
    for words in ["last 4 bytes", "is not a recording"] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn reading_after_a_clock_was_set_back_is_not_in_openmetrics() {
    let folder = recording(&[10, 20, 15, 25]);
    let (code, out, error) = export(folder.path(), &["--metrics", "minimal"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("was set back\" readings=1"), "{error}");
    let vms = out.lines().filter(|line| line.starts_with("virtlens_vms"));
    let times: Vec<&str> = vms
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(_, time)| time)
        .collect();
    assert_eq!(
        times,
        ["1767225610.000", "1767225620.000", "1767225625.000"]
    );
    let (code, out, _) = export(folder.path(), &["-o", "jsonl"]);
    assert_eq!((code, out.lines().count()), (Some(0), 4));
}

#[test]
fn export_without_readings_or_with_wrong_labels_is_an_error() {
    assert_fails(&output(&["record", "export"]), 2, &["--from"]);
    let folder = recording(&[0]);
    let folder = folder.path().to_str().expect("UTF-8");
    let from = ["record", "export", "--from", folder];
    let fails = |more: &[&str], code, words: &[&str]| {
        assert_fails(&output(&[&from, more].concat()), code, words);
    };
    fails(&["-o", "csv", "--label", "a=b"], 2, &["openmetrics"]);
    fails(&["--label", "a=b", "--label", "a=c"], 2, &["twice"]);
    fails(&["--label", "vm=a"], 2, &["vm"]);
    fails(&["--since", "2026-01-02T00:00:00Z"], 1, &["2026-01-01"]);
    fails(&["-o", "xml"], 2, &["openmetrics", "jsonl", "csv"]);
}

#[test]
fn closed_stdout_of_an_export_is_not_an_error() {
    let folder = recording(&[0, 10, 20]);
    let mut child = virtlens()
        .args(["record", "export", "-o", "jsonl", "--from"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn each_line_of_jsonl_is_a_snapshot() {
    let folder = recording(&[0]);
    let (_, out, _) = export(folder.path(), &["-o", "jsonl", "shop/web-0"]);
    let value: Value = serde_json::from_str(&out).expect("one line of JSON");
    assert_eq!(value["kind"], "Snapshot");
    assert_eq!(value["vms"].as_array().map(Vec::len), Some(1));
}
