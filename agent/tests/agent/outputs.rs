//! Compares whole outputs with golden files.

use virtlens::collect::CheckRow;
use virtlens::http::page;
use virtlens::term::Style;
use virtlens::views::catalogue;
use virtlens::views::check;
use virtlens::views::table::render;
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::CpuSet;
use virtlens_probe::loader::Loader;
use virtlens_tests::fixture;
use virtlens_tests::golden::assert_golden;

use crate::golden;
use crate::program::output;

const MS: u64 = 1_000_000;
const PLAIN: Style = Style {
    width: Some(80),
    color: false,
};

/// The fixture, and the same host two seconds earlier.
fn two_readings() -> (Snapshot, Snapshot) {
    let mut now = fixture::snapshot();
    let mut before = now.clone();
    now.clock_ns = 2000 * MS;
    let kata = &mut before.vms[0];
    for role in &mut kata.roles {
        role.cpu_ns -= 240 * MS / (1 + role.role as u64);
        role.wait_ns = role.wait_ns.map(|ns| ns.saturating_sub(50 * MS));
    }
    for quota in kata.quota.iter_mut().chain(&mut kata.limits) {
        quota.periods = quota.periods.saturating_sub(20);
        quota.throttled_periods = quota.throttled_periods.saturating_sub(5);
    }
    // The second VM started between the two readings.
    before.vms.remove(1);
    (before, now)
}

#[test]
fn table_of_totals_equals_golden() {
    assert_golden(
        golden("table-totals-80.txt"),
        &render(&fixture::snapshot(), None, PLAIN),
    );
    let wide = Style {
        width: None,
        ..PLAIN
    };
    assert_golden(
        golden("table-totals-wide.txt"),
        &render(&fixture::snapshot(), None, wide),
    );
}

#[test]
fn table_of_rates_equals_golden() {
    let (before, now) = two_readings();
    let since = Some(&before);
    assert_golden(golden("table-rates-80.txt"), &render(&now, since, PLAIN));
    let wide = Style {
        width: None,
        ..PLAIN
    };
    assert_golden(golden("table-rates-wide.txt"), &render(&now, since, wide));
    let color = Style {
        color: true,
        ..PLAIN
    };
    let colored = render(&now, since, color);
    let bare = without_style(&colored);
    assert_eq!(
        bare,
        render(&now, since, PLAIN),
        "colours change no character"
    );
}

/// Removes `ESC [ … m`.
fn without_style(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |bare, part| {
        bare + part.split_once('m').expect("a style ends").1
    })
}

#[test]
fn table_lines_fit_terminal() {
    let (before, now) = two_readings();
    let since = Some(&before);
    for table in [render(&now, since, PLAIN), render(&now, None, PLAIN)] {
        for line in table.lines().filter(|line| !line.starts_with("off: ")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn table_without_vms_equals_golden() {
    let empty = Snapshot {
        vms: Vec::new(),
        ..fixture::snapshot()
    };
    assert_golden(golden("table-empty.txt"), &render(&empty, None, PLAIN));
}

#[test]
fn snapshot_json_equals_golden() {
    let json = serde_json::to_string_pretty(&fixture::snapshot()).expect("JSON") + "\n";
    assert_golden(golden("snapshot.json"), &json);
}

#[test]
fn metrics_catalogue_equals_golden() {
    for (output, name) in [
        (catalogue::Output::Text, "metrics.txt"),
        (catalogue::Output::Json, "metrics.json"),
        (catalogue::Output::Markdown, "metrics.md"),
    ] {
        assert_golden(golden(name), &catalogue::text(output).expect("a catalogue"));
    }
}

#[test]
fn check_report_equals_golden() {
    let row = |feature, state, detail: &str| CheckRow {
        feature,
        state,
        detail: detail.to_owned(),
    };
    let rows = [
        row("btf", "on", ""),
        row(
            "task_storage",
            "degraded",
            "requires Linux 5.13; a hash map is used instead",
        ),
        row("throttle", "off", "fentry programs are not allowed"),
    ];
    assert_golden(
        golden("check.txt"),
        &check::report(&fixture::snapshot().node, Loader::default(), &rows),
    );
    assert!(check::all_on(&rows[..1]) && !check::all_on(&rows[..2]));
}

#[test]
fn check_report_names_nohz_full_cpus() {
    let note = check::note_of_ticks(&"2-5".parse().expect("a list"));
    assert!(note.contains("nohz_full CPUs 2-5: "), "{note}");
    assert_eq!(check::note_of_ticks(&CpuSet::default()), "");
}

#[test]
fn page_of_sources_equals_golden() {
    let html = page::html(&fixture::snapshot());
    let version = format!("Version {}", virtlens::process::VERSION);
    let html = html.replace(&version, "Version X");
    assert_golden(golden("page.html"), &html);
}

#[test]
fn help_of_each_command_equals_golden() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["snapshot", "--help"],
        &["top", "--help"],
        &["doctor", "--help"],
        &["trace", "--help"],
        &["incidents", "--help"],
        &["incidents", "show", "--help"],
        &["check", "--help"],
        &["metrics", "--help"],
        &["topology", "--help"],
        &["completion", "--help"],
        &["ui", "--help"],
        &["record", "--help"],
        &["record", "export", "--help"],
    ] {
        let help = output(args);
        assert!(help.status.success());
        let commands = &args[..args.len() - 1];
        let name = [&["help"], commands].concat().join("-");
        assert_golden(
            golden(&format!("{name}.txt")),
            std::str::from_utf8(&help.stdout).expect("text"),
        );
    }
}

#[test]
fn every_help_has_valid_example() {
    let list = output(&["--help"]);
    let list = String::from_utf8(list.stdout).expect("text");
    let commands = list.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        // Continuation lines of a text are skipped.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let help = output(&[command, "--help"]);
        let help = String::from_utf8(help.stdout).expect("text");
        let example = help.split("Example: ").nth(1);
        assert!(
            example.is_some_and(|text| text.contains(&format!("virtlens {command}"))),
            "{help}"
        );
    }
}

#[test]
fn completion_is_generated_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completion", shell]);
        assert!(script.status.success());
        let script = String::from_utf8(script.stdout).expect("text");
        assert!(
            script.contains("doctor") && script.contains("interval"),
            "{shell}"
        );
    }
}

#[test]
fn closed_stdout_is_not_an_error() {
    use std::process::Stdio;
    let mut child = crate::program::virtlens()
        .arg("metrics")
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
