use std::time::Duration;

use ratatui::crossterm::event::KeyCode;
use virtlens_record::Mark;

use super::{Theme, Timeline, labels};

const SECOND: u64 = 1_000_000_000;

/// 2026-11-27T03:10:00Z.
const START: u64 = 1_795_749_000;

/// Readings at these seconds with these numbers of warnings, at the last one.
fn timeline(readings: &[(u64, u32)]) -> Timeline {
    let mut before = 0;
    let mark = |&(second, warnings): &(u64, u32)| Mark {
        unix_ns: (START + second) * SECOND,
        warnings,
        begun: warnings.saturating_sub(std::mem::replace(&mut before, warnings)),
    };
    let marks = readings.iter().map(mark).collect();
    Timeline::new(marks, u64::MAX).expect("there are readings")
}

/// A reading every 10 s with these numbers of warnings.
fn every_ten(warnings: &[u32]) -> Timeline {
    let readings: Vec<_> = (0..).step_by(10).zip(warnings.iter().copied()).collect();
    timeline(&readings)
}

fn lines(timeline: &Timeline, width: usize, ascii: bool) -> [String; 2] {
    let color = false;
    let lines = timeline.lines(width, Theme { color, ascii });
    lines.map(|line| line.to_string().trim_end().to_owned())
}

/// Presses keys; returns the number of the reading and the last message.
fn press(timeline: &mut Timeline, keys: &str) -> (usize, &'static str) {
    let press = |key| timeline.press(KeyCode::Char(key));
    let message = keys.chars().filter_map(press).last();
    (timeline.at(), message.unwrap_or_default())
}

#[test]
fn time_line_begins_at_last_reading_before_a_time() {
    let marks = every_ten(&[0, 0, 0]).marks().to_vec();
    let at = |second: u64| {
        let unix_ns = (START + second) * SECOND;
        Some(Timeline::new(marks.clone(), unix_ns)?.at())
    };
    assert_eq!([at(0), at(9), at(10), at(99)], [0, 0, 1, 2].map(Some));
    assert!(Timeline::new(marks.clone(), START * SECOND - 1).is_none());
    assert!(Timeline::new(Vec::new(), u64::MAX).is_none());
}

#[test]
fn keys_step_to_readings_and_warnings() {
    let mut line = every_ten(&[0, 0, 1, 1, 0, 2, 3, 0, 0]);
    assert_eq!(press(&mut line, "["), (7, ""));
    assert_eq!(press(&mut line, "]]]"), (8, ""));
    assert_eq!(press(&mut line, "{"), (6, ""), "one more than before");
    assert_eq!(press(&mut line, "{"), (5, ""));
    assert_eq!(press(&mut line, "{"), (2, ""));
    assert_eq!(press(&mut line, "{"), (2, "no warning began before"));
    assert_eq!(press(&mut line, "}}"), (6, ""));
    assert_eq!(press(&mut line, "}"), (6, "no warning began after"));
    assert_eq!(line.press(KeyCode::Home), Some(""));
    assert_eq!(line.at(), 0);
    assert_eq!(line.press(KeyCode::Left), Some(""));
    assert_eq!(line.press(KeyCode::Right), Some(""));
    assert_eq!(line.at(), 1);
    assert_eq!(line.press(KeyCode::End), Some(""));
    assert_eq!(line.at(), 8);
    assert_eq!(
        line.press(KeyCode::Char('j')),
        None,
        "it has another meaning"
    );
    let mut line = every_ten(&[1, 1]);
    assert_eq!(press(&mut line, "{"), (0, ""), "it held from the start");
}

#[test]
fn playing_lasts_as_long_as_recorded_and_skips_gaps() {
    let mut line = timeline(&[(0, 0), (10, 0), (3610, 0), (3615, 0)]);
    assert_eq!(press(&mut line, " "), (3, "this is the last reading"));
    assert_eq!(line.shown_for(), None);
    line.press(KeyCode::Home);
    press(&mut line, " ");
    let seconds = |line: &Timeline| line.shown_for().map(|time| time.as_secs_f64());
    assert_eq!(seconds(&line), Some(10.0));
    assert!(line.state().ends_with("playing"), "{}", line.state());
    press(&mut line, "++");
    assert_eq!(seconds(&line), Some(2.0));
    assert_eq!(line.state(), "2026-11-27T03:10:00Z  playing x5");
    press(&mut line, "--------");
    line.advance();
    assert_eq!(seconds(&line), Some(60.0), "an hour without readings");
    line.advance();
    assert_eq!(line.shown_for(), Some(Duration::from_secs(5)));
    line.advance();
    assert_eq!((line.at(), line.shown_for()), (3, None));
    press(&mut line, "[ [");
    assert_eq!(line.shown_for(), None, "a step pauses");
    assert!(line.state().ends_with("paused"));
}

#[test]
fn line_shows_warnings_gaps_and_position() {
    let warnings = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0,
    ];
    let mut line = every_ten(&warnings);
    let [above, below] = lines(&line, 60, false);
    assert_eq!(
        above,
        " 03:10:00 ───────────────────────████───────────── 03:13:20"
    );
    assert_eq!(below, format!("{}▲ 21 of 21", " ".repeat(49)));
    line.press(KeyCode::Char('{'));
    let [above, below] = lines(&line, 60, true);
    assert_eq!(
        above,
        " 03:10:00 -----------------------####------------- 03:13:20"
    );
    assert_eq!(below, format!("{}^ 13 of 21", " ".repeat(33)));
    // Two days later.
    let mut readings: Vec<_> = (0..400).map(|second| (second * 10, 0)).collect();
    readings.extend((0..400).map(|second| (172_800 + second * 10, 0)));
    let [above, _] = lines(&timeline(&readings), 60, true);
    let gap = " ".repeat(32);
    assert_eq!(above, format!(" 11-27 03:10 -{gap}- 11-29 04:16"));
}

#[test]
fn line_fits_every_width() {
    for warnings in [&[1][..], &[0, 1], &[0; 500]] {
        let mut line = every_ten(warnings);
        for key in [KeyCode::End, KeyCode::Home] {
            line.press(key);
            for width in [20, 30, 49, 50, 80, 300] {
                for text in lines(&line, width, true) {
                    assert!(text.is_ascii() && text.len() <= width, "{width}: {text}");
                }
            }
        }
        for width in 0..20 {
            lines(&line, width, false);
        }
    }
}

#[test]
fn times_of_clock_that_was_set_back_are_shown_in_their_order() {
    let line = timeline(&[(100, 0), (110, 1), (50, 0), (60, 0)]);
    let [above, below] = lines(&line, 60, true);
    assert!(above.starts_with(" 03:10:50 -"), "{above}");
    assert!(above.ends_with("# 03:11:50"), "{above}");
    assert!(below.contains("^ 4 of 4"), "{below}");
}

#[test]
fn labels_have_the_date_if_it_differs() {
    let day = 86_400 * SECOND;
    let at = START * SECOND;
    assert_eq!(labels(at, at), ["03:10:00", "03:10:00"]);
    assert_eq!(labels(at, at + day), ["11-27 03:10", "11-28 03:10"]);
}
