//! `top` on a recording: its readings around the position of the time line.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use virtlens::views::top::replay::Replay;
use virtlens::views::top::state::{Top, View};
use virtlens::views::top::theme::Theme;
use virtlens::views::top::timeline::Timeline;
use virtlens_model::snapshot::{Check, Finding, Snapshot, Vm};
use virtlens_record::{Limits, Recorder, Recording};
use virtlens_tests::golden::assert_golden;
use virtlens_tests::{blank, fixture};

use crate::golden;
use crate::program::output;
use crate::top::{PLAIN, screen};

const SECOND: u64 = 1_000_000_000;

/// 2026-11-27T03:10:00Z.
const START_NS: u64 = 1_795_749_000 * SECOND;

fn recorder(folder: &Path) -> Recorder {
    let limits = Limits {
        max_bytes: 64 << 20,
        max_age: Duration::from_hours(24),
    };
    Recorder::open(folder, limits, "node-a", "0.1.0", None).expect("there is room")
}

/// The reading at a second, of an agent that started at second `started`. From second 1500 on
/// its first VM is capped.
fn reading(second: u64, started: u64) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    snapshot.clock_ns = (second - started) * SECOND;
    let finding = Finding::new(Check::QuotaCapped, "it is capped".to_owned(), 1.5);
    let found = if second < 1500 { vec![] } else { vec![finding] };
    for vm in &mut snapshot.vms {
        vm.findings = None;
    }
    snapshot.vms[0].findings = Some(found.into());
    snapshot
}

/// Records a reading every 10 s; the agent restarts at second 1000.
fn recorded(folder: &Path, count: u64) {
    let mut recorder = recorder(folder);
    for second in (0..count).map(|number| number * 10) {
        let started = if second < 1000 { 0 } else { 995 };
        let reading = reading(second, started);
        recorder
            .record(&reading, START_NS + second * SECOND)
            .expect("there is room");
    }
}

struct Shown {
    top: Top,
    replay: Replay,
}

impl Shown {
    fn open(folder: &Path) -> Self {
        let (recording, refused) = Recording::open(folder).expect("it is there");
        assert!(refused.is_empty());
        let (marks, lost) = recording.marks();
        assert!(lost.is_empty());
        let mut top = Top::new(Duration::ZERO, View::Fleet);
        top.timeline = Timeline::new(marks, u64::MAX);
        let mut shown = Self {
            top,
            replay: Replay::new(recording),
        };
        shown.replay.follow(&mut shown.top);
        shown
    }

    /// Presses a key; returns the number of the shown reading.
    fn press(&mut self, key: KeyCode) -> usize {
        self.top.press(KeyEvent::new(key, KeyModifiers::NONE));
        self.replay.follow(&mut self.top);
        self.top.timeline.as_ref().expect("a recording").at()
    }

    /// Time of the shown reading on the clock of its agent, s.
    fn clock(&self) -> Option<u64> {
        Some(self.top.shown()?.clock_ns / SECOND)
    }
}

#[test]
fn steps_show_each_reading_of_a_recording() {
    let folder = tempfile::tempdir().expect("there is room");
    recorded(folder.path(), 200);
    let mut shown = Shown::open(folder.path());
    let clock = |number: usize| {
        let second = number as u64 * 10;
        Some(if second < 1000 { second } else { second - 995 })
    };
    assert_eq!(shown.clock(), clock(199));
    for number in (0..199).rev() {
        assert_eq!(shown.press(KeyCode::Char('[')), number);
        assert_eq!(shown.clock(), clock(number), "back to {number}");
    }
    assert_eq!(shown.press(KeyCode::Left), 0);
    for number in 1..200 {
        assert_eq!(shown.press(KeyCode::Char(']')), number);
        assert_eq!(shown.clock(), clock(number), "forward to {number}");
    }
    assert_eq!(shown.press(KeyCode::Char('{')), 150);
    assert_eq!(shown.clock(), clock(150));
    let vm = &shown.top.shown().expect("a reading").vms[0];
    let found = vm.findings.as_ref().expect("it was judged");
    assert_eq!(found[0].check, Check::QuotaCapped);
    assert_eq!(shown.press(KeyCode::Home), 0);
    assert_eq!(shown.clock(), clock(0));
    assert_eq!(shown.top.history().len(), 0, "the first one has no rates");
    assert_eq!(shown.press(KeyCode::End), 199);
    assert_eq!(shown.top.history().len(), 60, "a row of bars");
}

#[test]
fn screens_of_a_recording_equal_golden() {
    let folder = tempfile::tempdir().expect("there is room");
    recorded(folder.path(), 200);
    let mut shown = Shown::open(folder.path());
    shown.press(KeyCode::Char('{'));
    let mut text = |name: &str, theme| {
        let text = screen(&mut shown.top, theme, 80, 24);
        assert_golden(golden(&format!("top-{name}-80.txt")), &text);
        text
    };
    text("recording", PLAIN);
    let ascii = Theme {
        ascii: true,
        ..PLAIN
    };
    assert!(text("recording-ascii", ascii).is_ascii());
    shown.press(KeyCode::Char('?'));
    let help = screen(&mut shown.top, PLAIN, 80, 24);
    assert_golden(golden("top-recording-help-80.txt"), &help);
    shown.press(KeyCode::Esc);
    for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 100)] {
        let drawn = screen(&mut shown.top, PLAIN, width, height);
        assert_eq!(drawn.lines().count(), usize::from(height));
    }
}

#[test]
fn rates_do_not_span_a_restart_of_the_agent() {
    let folder = tempfile::tempdir().expect("there is room");
    recorded(folder.path(), 110);
    let mut shown = Shown::open(folder.path());
    assert_eq!(shown.top.history().len(), 9);
    for _ in 0..9 {
        shown.press(KeyCode::Left);
    }
    assert_eq!(
        shown.top.history().len(),
        0,
        "the first one of the new agent"
    );
    shown.press(KeyCode::Left);
    assert_eq!(
        shown.top.history().len(),
        60,
        "the last one of the old agent"
    );
}

#[test]
fn readings_of_many_vms_are_read_in_smaller_numbers() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = recorder(folder.path());
    for second in 0..20 {
        let vm = |pid: u32| Vm {
            pid,
            vm: format!("vm-{pid}").into(),
            ..Vm::default()
        };
        let reading = Snapshot {
            clock_ns: second * SECOND,
            ..blank::snapshot((0..1500).map(vm).collect())
        };
        recorder
            .record(&reading, START_NS + second * SECOND)
            .expect("there is room");
    }
    drop(recorder);
    let mut shown = Shown::open(folder.path());
    assert_eq!(shown.top.history().len(), 3, "of 6000 VMs");
    shown.press(KeyCode::Left);
    assert_eq!(shown.clock(), Some(18));
}

#[test]
fn unreadable_reading_is_reported_and_the_next_one_shown() {
    let folder = tempfile::tempdir().expect("there is room");
    recorded(folder.path(), 200);
    let mut shown = Shown::open(folder.path());
    // The agent removes the oldest segment meanwhile.
    let names = std::fs::read_dir(folder.path()).expect("it is there");
    let paths = names.flatten().map(|entry| entry.path());
    let segments = paths.filter(|path| path.extension().is_some_and(|end| end == "vlrec"));
    let oldest = segments.min().expect("there are segments");
    std::fs::remove_file(oldest).expect("it is there");
    assert_eq!(shown.press(KeyCode::Home), 0);
    assert_eq!(shown.clock(), None);
    let message = &shown.top.message;
    assert!(
        message.starts_with("this reading is unreadable"),
        "{message}"
    );
    assert_eq!(shown.press(KeyCode::End), 199);
    assert_eq!(shown.clock(), Some(995));
    assert!(Arc::ptr_eq(
        shown.top.shown().expect("a reading"),
        shown.top.history().at(0).expect("a reading")
    ));
}

#[test]
fn table_without_a_terminal_has_usage_unless_the_agent_was_restarted() {
    let folder = tempfile::tempdir().expect("there is room");
    recorded(folder.path(), 110);
    let from = folder.path().display().to_string();
    // 2026-11-27T03:26:40Z is second 1000.
    for (at, expected) in [
        ("2026-11-27T03:26:30Z", "cores used in the last 10.0 s"),
        ("2026-11-27T03:26:40Z", "CPU seconds of all living threads"),
        ("2026-11-27T03:26:50Z", "cores used in the last 10.0 s"),
    ] {
        let table = output(&["top", "--from", &from, "--at", at]);
        let errors = String::from_utf8_lossy(&table.stderr);
        assert_eq!(table.status.code(), Some(0), "{at}: {errors}");
        let table = String::from_utf8(table.stdout).expect("text");
        let is_whole = table.starts_with(&format!("reading of {at}\n"));
        assert!(is_whole && table.contains(expected), "{at}: {table}");
    }
}
