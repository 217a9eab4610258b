//! State of the screens, and the effect of each key. Nothing here draws or reads.

use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use virtlens_model::snapshot::Snapshot;

use super::history::History;
use super::rows::{Row, Sort, rows};
use super::timeline::Timeline;

/// The selectable reading intervals.
pub const INTERVALS: [Duration; 7] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The selected screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// All VMs.
    Fleet,
    /// One VM, by its name on the node.
    Vm(Arc<str>),
}

/// An action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Exit.
    Quit,
    /// Write the displayed reading to a file.
    Save,
    /// Trace the selected VM.
    Trace,
}

/// State of the screens.
#[derive(Debug)]
pub struct Top {
    /// The last readings.
    pub history: History,
    /// The screen.
    pub view: View,
    /// Number of lines scrolled off the top, in the view of one VM.
    pub scroll: usize,
    /// Name of the VM under the cursor.
    pub cursor: Option<Arc<str>>,
    /// Sort key of the list.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// Text that names must contain.
    pub filter: String,
    /// Whether keys are input for the filter.
    pub is_filtering: bool,
    /// The position in a recording, which ends the history; `None` if the readings are live.
    pub timeline: Option<Timeline>,
    /// If paused, the displayed reading, as the number of readings back; `None` is live.
    pub paused: Option<usize>,
    /// Interval between readings.
    pub interval: Duration,
    /// Whether the help for the keys is shown.
    pub shows_help: bool,
    /// Message in the last line, shown until the next key.
    pub message: String,
    /// Number of list rows that fit, as of the last draw.
    pub page: usize,
}

impl Top {
    /// Returns the state before the first reading.
    pub fn new(interval: Duration, view: View) -> Self {
        Self {
            history: History::default(),
            view,
            scroll: 0,
            cursor: None,
            sort: Sort::default(),
            is_reversed: false,
            filter: String::new(),
            is_filtering: false,
            timeline: None,
            paused: None,
            interval,
            shows_help: false,
            message: String::new(),
            page: 10,
        }
    }

    /// Adds a new reading. A paused display does not change.
    pub fn add(&mut self, reading: Arc<Snapshot>) {
        let before = self.history.len();
        let newest = self.history.at(0).map(|newest| newest.clock_ns);
        let is_new = newest != Some(reading.clock_ns);
        self.history.add(reading);
        if let (Some(back), true) = (&mut self.paused, is_new) {
            *back = (*back + 1).min(self.history.len().saturating_sub(1));
        }
        if before == 0 {
            self.cursor = None;
        }
    }

    /// The displayed reading, as the number of readings back.
    pub fn back(&self) -> usize {
        self.paused.unwrap_or(0)
    }

    /// The displayed reading.
    pub fn shown(&self) -> Option<&Arc<Snapshot>> {
        self.history.at(self.back())
    }

    /// The displayed list.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let Some(now) = self.shown() else {
            return Vec::new();
        };
        let before = self.history.at(self.back() + 1).map(|reading| &**reading);
        rows(before, now, &self.filter, (self.sort, self.is_reversed))
    }

    /// Name of the selected VM: the one in the VM view, or the one under the cursor.
    pub fn looked_at(&self) -> Option<Arc<str>> {
        if let View::Vm(name) = &self.view {
            return Some(Arc::clone(name));
        }
        let rows = self.rows();
        let row = rows.get(self.row_of_cursor(&rows))?;
        Some(Arc::clone(&row.vm.vm))
    }

    /// Row of the cursor: it follows its VM when the order changes.
    pub fn row_of_cursor(&self, rows: &[Row]) -> usize {
        let cursor = self.cursor.as_deref();
        rows.iter()
            .position(|row| cursor == Some(&*row.vm.vm))
            .unwrap_or(0)
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Action> {
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if self.shows_help {
            self.shows_help = false;
            return None;
        }
        if self.is_filtering {
            self.edit_filter(key.code);
            return None;
        }
        let timeline = self.timeline.as_mut();
        if let Some(message) = timeline.and_then(|timeline| timeline.press(key.code)) {
            message.clone_into(&mut self.message);
            return None;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Some(Action::Quit),
            KeyCode::Char('o') => return Some(Action::Save),
            KeyCode::Char('t') => return Some(Action::Trace),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char(' ' | 'p') => self.pause(),
            KeyCode::Left => self.step(true),
            KeyCode::Right => self.step(false),
            KeyCode::Char('+') => self.change_interval(true),
            KeyCode::Char('-') => self.change_interval(false),
            KeyCode::Char('/') | KeyCode::F(4) => {
                self.view = View::Fleet;
                self.is_filtering = true;
            }
            KeyCode::Char('>' | 's') | KeyCode::F(6) => self.sort = self.sort.step(true),
            KeyCode::Char('<') => self.sort = self.sort.step(false),
            KeyCode::Char('S') => self.is_reversed = !self.is_reversed,
            KeyCode::Esc | KeyCode::Backspace => self.leave(),
            KeyCode::Enter => self.enter(),
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::PageDown => self.go(self.page.cast_signed()),
            KeyCode::PageUp => self.go(-self.page.cast_signed()),
            KeyCode::Char('g') | KeyCode::Home => self.go(isize::MIN),
            KeyCode::Char('G') | KeyCode::End => self.go(isize::MAX),
            _ => {}
        }
        None
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Esc => {
                self.filter.clear();
                self.is_filtering = false;
            }
            KeyCode::Enter => self.is_filtering = false,
            _ => {}
        }
    }

    fn pause(&mut self) {
        self.paused = match self.paused {
            None => Some(0),
            Some(_) => None,
        };
    }

    /// Moves to the previous or next reading, while paused.
    fn step(&mut self, is_back: bool) {
        let last = self.history.len().saturating_sub(1);
        let back = self.back();
        self.paused = Some(if is_back {
            (back + 1).min(last)
        } else {
            back.saturating_sub(1)
        });
    }

    fn change_interval(&mut self, is_longer: bool) {
        let longer = INTERVALS.iter().find(|one| **one > self.interval);
        let shorter = INTERVALS.iter().rev().find(|one| **one < self.interval);
        let next = if is_longer { longer } else { shorter };
        self.interval = next.copied().unwrap_or(self.interval);
    }

    fn leave(&mut self) {
        match self.view {
            View::Vm(_) => self.view = View::Fleet,
            View::Fleet => self.filter.clear(),
        }
        self.scroll = 0;
    }

    fn enter(&mut self) {
        if let (View::Fleet, Some(name)) = (&self.view, self.looked_at()) {
            self.cursor = Some(Arc::clone(&name));
            self.view = View::Vm(name);
            self.scroll = 0;
        }
    }

    /// Scrolls or moves the cursor by a number of lines; negative is up.
    fn go(&mut self, by: isize) {
        if let View::Vm(_) = self.view {
            self.scroll = self.scroll.saturating_add_signed(by);
            return;
        }
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let row = self.row_of_cursor(&rows);
        let to = row.saturating_add_signed(by).min(last);
        self.cursor = rows.get(to).map(|row| Arc::clone(&row.vm.vm));
    }
}
