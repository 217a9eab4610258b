//! Output of the doctor.

use std::time::Duration;

use virtlens::term::Style;
use virtlens::views::doctor::{Diagnosis, catalogue};
use virtlens_model::judge::findings::Bounds;
use virtlens_model::snapshot::{Check, Finding, Snapshot, Vm};
use virtlens_model::vocab::MismatchKind;
use virtlens_tests::fixture;
use virtlens_tests::golden::assert_golden;

use crate::golden;
use crate::program::output;

const TEN_SECONDS: Duration = Duration::from_secs(10);
const PLAIN: Style = Style {
    width: Some(80),
    color: false,
};

/// The fixture, with one VM at its limit, one without findings, and one that has ended.
fn snapshot() -> Snapshot {
    let mut snapshot = fixture::snapshot();
    let capped = "the pod used 1.23 of 1.25 cores (98 %): vcpu 0.71, vhost 0.42 and virtiofsd \
                  0.10; throttled for 4.1 s of 10.0 s, in 98 of 100 periods";
    snapshot.vms[0].findings = Some(
        [
            Finding::new(Check::QuotaCapped, capped.to_owned(), 1.6),
            Finding::new(
                Check::Place(MismatchKind::SmtSplit),
                "vCPUs 0 and 1 are threads of one guest core, and are pinned to pCPUs 0,2 of host \
                 cores 0 and 2"
                    .to_owned(),
                1.0,
            ),
            Finding::new(
                Check::VcpusExceedQuota,
                "2 vCPUs under a limit of 1.25 cores: 1.6 vCPUs per core".to_owned(),
                1.1,
            ),
        ]
        .into(),
    );
    snapshot.vms[1].findings = Some([].into());
    snapshot
}

fn text(snapshot: &Snapshot, style: Style) -> String {
    let vms: Vec<&Vm> = snapshot.vms.iter().collect();
    Diagnosis::new(snapshot, &vms, TEN_SECONDS, &Bounds::default()).text(snapshot, style)
}

#[test]
fn doctor_text_equals_golden() {
    assert_golden(golden("doctor-80.txt"), &text(&snapshot(), PLAIN));
}

#[test]
fn doctor_json_equals_golden() {
    let snapshot = snapshot();
    let vms: Vec<&Vm> = snapshot.vms.iter().collect();
    let diagnosis = Diagnosis::new(&snapshot, &vms, TEN_SECONDS, &Bounds::default());
    assert!(diagnosis.has_findings());
    let json = serde_json::to_string_pretty(&diagnosis).expect("JSON") + "\n";
    assert_golden(golden("doctor.json"), &json);
}

#[test]
fn doctor_without_findings_prints_summary() {
    let snapshot = snapshot();
    let healthy = [&snapshot.vms[1]];
    let diagnosis = Diagnosis::new(&snapshot, &healthy, TEN_SECONDS, &Bounds::default());
    assert!(!diagnosis.has_findings());
    let text = diagnosis.text(&snapshot, PLAIN);
    assert!(
        text.starts_with("node-a: no findings: 1 VM, 24 checks, 10.0 s\n"),
        "{text}"
    );
}

#[test]
fn doctor_lines_fit_terminal_with_and_without_colour() {
    for width in [60, 80, 200] {
        let style = Style {
            width: Some(width),
            ..PLAIN
        };
        let plain = text(&snapshot(), style);
        for line in plain.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let colored = text(
            &snapshot(),
            Style {
                color: true,
                ..style
            },
        );
        assert!(colored.contains("\u{1b}[33m"));
        let bare = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[33m"]
            .iter()
            .fold(colored, |text, code| text.replace(code, ""));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&bare), words(&text(&snapshot(), style)));
    }
}

#[test]
fn next_step_names_existing_runbooks() {
    let runbooks = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");
    let mut named = 0;
    for check in Check::ALL {
        let words = check.about().next.split_whitespace();
        for name in words.filter(|word| word.starts_with("Virtlens")) {
            let file = format!("{runbooks}/{name}.md");
            assert!(std::path::Path::new(&file).exists(), "{check:?}: {file}");
            named += 1;
        }
    }
    assert!(named > 10, "{named} runbooks are named");
}

#[test]
fn next_step_has_commands_with_the_name_of_the_vm() {
    for check in Check::ALL {
        let mut snapshot = fixture::snapshot();
        snapshot.vms[0].findings = Some([Finding::new(check, String::new(), 1.0)].into());
        let vms: Vec<&Vm> = snapshot.vms.iter().collect();
        let diagnosis = Diagnosis::new(&snapshot, &vms, TEN_SECONDS, &Bounds::default());
        let json = serde_json::to_value(&diagnosis).expect("JSON");
        let next = json["findings"][0]["next"].as_str().expect("a text");
        assert!(!next.contains(" VM:") && !next.contains(" VM --"), "{next}");
        let has_command = [" top ", " trace ", " topology "]
            .iter()
            .any(|command| check.about().next.contains(&format!("virtlens{command}")));
        assert_eq!(next.contains(" shop/web-0"), has_command, "{next}");
    }
}

#[test]
fn doctor_checks_equal_golden() {
    assert_golden(
        golden("doctor-checks.txt"),
        &catalogue(&Bounds::default(), PLAIN),
    );
    let out = output(&["doctor", "--checks"]);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).expect("text");
    assert_eq!(
        text,
        catalogue(
            &Bounds::default(),
            Style {
                width: None,
                color: false
            }
        )
    );
}
