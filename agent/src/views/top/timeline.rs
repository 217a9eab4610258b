//! The time line of a recording: its readings, the position among them, and its two lines on
//! the screen. Nothing here reads.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;
use ratatui::text::{Line, Span};
use virtlens_record::Mark;

use super::theme::Theme;
use crate::term::shown;

/// The selectable speeds, as multiples of the recorded one.
const SPEEDS: [u32; 7] = [1, 2, 5, 10, 20, 50, 100];

/// Longest time that a reading is shown while playing: a longer gap of the recording is cut.
const LONGEST: Duration = Duration::from_mins(1);

/// Shortest width, columns, with the times of both ends.
const WITH_TIMES: usize = 50;

/// The readings of a recording and the position among them.
#[derive(Debug)]
pub struct Timeline {
    marks: Vec<Mark>,
    at: usize,
    is_playing: bool,
    speed: u32,
}

/// A part of the time line; a later one hides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Without a reading.
    Empty,
    /// Without a finding of severity warning.
    Quiet,
    /// With a finding of severity warning.
    Warning,
}

impl Timeline {
    /// The time line of these readings, at the last one of `unix_ns` or before; `None` if
    /// there is none.
    pub fn new(marks: Vec<Mark>, unix_ns: u64) -> Option<Self> {
        let at = marks.iter().rposition(|mark| mark.unix_ns <= unix_ns)?;
        Some(Self {
            marks,
            at,
            is_playing: false,
            speed: 1,
        })
    }

    /// All readings, in the order in which they were recorded.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Number of the present reading, from 0.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Time of the present reading, ns since 1970.
    pub fn unix_ns(&self) -> u64 {
        self.marks.get(self.at).map_or(0, |mark| mark.unix_ns)
    }

    /// Time for which the present reading is shown while playing; `None` if the time line is
    /// paused.
    pub fn shown_for(&self) -> Option<Duration> {
        let next = self.marks.get(self.at + 1).filter(|_| self.is_playing)?;
        let recorded = Duration::from_nanos(next.unix_ns.saturating_sub(self.unix_ns()));
        Some(recorded.min(LONGEST) / self.speed)
    }

    /// Goes to the next reading while playing, and pauses at the last one.
    pub fn advance(&mut self) {
        self.step(true);
        self.is_playing &= self.at < self.last();
    }

    /// Handles a key: the message for the last line, which is mostly empty; `None` if the key
    /// has another meaning.
    pub fn press(&mut self, key: KeyCode) -> Option<&'static str> {
        match key {
            KeyCode::Char('[') | KeyCode::Left => self.step(false),
            KeyCode::Char(']') | KeyCode::Right => self.step(true),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = self.last(),
            KeyCode::Char(' ' | 'p') => {
                self.is_playing ^= true;
                if self.is_playing && self.at == self.last() {
                    self.is_playing = false;
                    return Some("this is the last reading");
                }
                return Some("");
            }
            KeyCode::Char('+') => self.change_speed(true),
            KeyCode::Char('-') => self.change_speed(false),
            KeyCode::Char('{') => {
                let before = (0..self.at).rev().find(|at| self.begins(*at));
                return Some(self.go(before, "no warning began before"));
            }
            KeyCode::Char('}') => {
                let after = (self.at + 1..self.marks.len()).find(|at| self.begins(*at));
                return Some(self.go(after, "no warning began after"));
            }
            _ => return None,
        }
        // Keys that choose a reading also stop there.
        self.is_playing &= matches!(key, KeyCode::Char('+' | '-'));
        Some("")
    }

    /// Whether a finding of severity warning begins with the reading.
    fn begins(&self, at: usize) -> bool {
        self.marks.get(at).is_some_and(|mark| mark.begun > 0)
    }

    fn go(&mut self, to: Option<usize>, otherwise: &'static str) -> &'static str {
        self.is_playing = false;
        self.at = to.unwrap_or(self.at);
        if to.is_some() { "" } else { otherwise }
    }

    fn step(&mut self, is_forward: bool) {
        self.at = if is_forward {
            (self.at + 1).min(self.last())
        } else {
            self.at.saturating_sub(1)
        };
    }

    fn change_speed(&mut self, is_faster: bool) {
        let faster = SPEEDS.iter().find(|one| **one > self.speed);
        let slower = SPEEDS.iter().rev().find(|one| **one < self.speed);
        let next = if is_faster { faster } else { slower };
        self.speed = next.copied().unwrap_or(self.speed);
    }

    fn last(&self) -> usize {
        self.marks.len().saturating_sub(1)
    }

    /// Time of the reading, and whether it plays, for the first line of the screen.
    pub fn state(&self) -> String {
        let speed = match self.speed {
            1 => String::new(),
            speed => format!(" x{speed}"),
        };
        let state = if self.is_playing { "playing" } else { "paused" };
        format!("{}  {state}{speed}", shown(self.unix_ns()))
    }

    /// The two lines: the span with its findings, and the position below it.
    pub fn lines<'a>(&self, width: usize, theme: Theme) -> [Line<'a>; 2] {
        let (first_ns, last_ns) = self.ends();
        let [first, last] = if width < WITH_TIMES {
            [String::new(), String::new()]
        } else {
            labels(first_ns, last_ns)
        };
        let used = first.len() + last.len() + 4;
        let parts = self.parts(width.saturating_sub(used).max(1));
        let position = part_of(self.unix_ns(), (first_ns, last_ns), parts.len());
        let mut spans = vec![Span::raw(format!(" {first} "))];
        for run in parts.chunk_by(|one, next| one == next) {
            let (symbol, style) = match (run.first(), theme.ascii) {
                (Some(Part::Warning), false) => ("█", theme.warning()),
                (Some(Part::Warning), true) => ("#", theme.warning()),
                (Some(Part::Quiet), false) => ("─", theme.faint()),
                (Some(Part::Quiet), true) => ("-", theme.faint()),
                (Some(Part::Empty) | None, _) => (" ", theme.faint()),
            };
            spans.push(Span::styled(symbol.repeat(run.len()), style));
        }
        spans.push(Span::raw(format!(" {last}")));
        let marker = if theme.ascii { "^" } else { "▲" };
        let before = first.len() + 2 + position;
        let number = format!("{} of {}", self.at + 1, self.marks.len());
        let below = if before + number.len() + 3 <= width {
            format!("{}{marker} {number}", " ".repeat(before))
        } else {
            // The number is on the other side of the marker.
            let gap = before.saturating_sub(number.len() + 1);
            format!("{}{number} {marker}", " ".repeat(gap))
        };
        [Line::from(spans), Line::styled(below, theme.head())]
    }

    /// Times of the earliest and the latest reading. A clock that was set back leaves them in
    /// another order than they were recorded.
    fn ends(&self) -> (u64, u64) {
        let times = || self.marks.iter().map(|mark| mark.unix_ns);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }

    /// The span in `count` parts of equal length.
    fn parts(&self, count: usize) -> Vec<Part> {
        let (ends, gap_ns) = (self.ends(), self.gap_ns());
        let mut parts = vec![Part::Empty; count];
        let number_of = |unix_ns| part_of(unix_ns, ends, count);
        for (index, mark) in self.marks.iter().enumerate() {
            let part = if mark.warnings > 0 {
                Part::Warning
            } else {
                Part::Quiet
            };
            // A reading holds until the next one, unless there is a gap.
            let next = self.marks.get(index + 1).map(|next| next.unix_ns);
            let until = next.filter(|next| next.saturating_sub(mark.unix_ns) <= gap_ns);
            let first = number_of(mark.unix_ns);
            let end = until.map_or(first, number_of).max(first + 1);
            for known in parts.iter_mut().take(end).skip(first) {
                *known = part.max(*known);
            }
        }
        parts
    }

    /// Time without a reading that is a gap, ns: more than between most readings.
    fn gap_ns(&self) -> u64 {
        let (first_ns, last_ns) = self.ends();
        let mean_ns = last_ns.saturating_sub(first_ns) / (self.last() as u64).max(1);
        let shortest_ns = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        mean_ns.saturating_mul(3).max(shortest_ns)
    }
}

/// Number of the part that has a time.
fn part_of(unix_ns: u64, (first_ns, last_ns): (u64, u64), count: usize) -> usize {
    let span = u128::from(last_ns.saturating_sub(first_ns)) + 1;
    let since = u128::from(unix_ns.saturating_sub(first_ns));
    let part = usize::try_from(since * count as u128 / span).unwrap_or(0);
    part.min(count.saturating_sub(1))
}

/// The times of both ends, as short as they differ.
fn labels(first_ns: u64, last_ns: u64) -> [String; 2] {
    let (first, last) = (shown(first_ns), shown(last_ns));
    let part = |text: &str, from: usize, to: usize| text.get(from..to).unwrap_or(text).to_owned();
    if first.get(..10) == last.get(..10) {
        [part(&first, 11, 19), part(&last, 11, 19)]
    } else {
        // Month, day, hour and minute.
        [part(&first, 5, 16), part(&last, 5, 16)].map(|text| text.replace('T', " "))
    }
}

#[cfg(test)]
mod tests;
