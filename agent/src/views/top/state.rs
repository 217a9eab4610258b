//! State of the screens, and the effect of each key. Nothing here draws or reads.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use virtlens_model::snapshot::Snapshot;

use super::history::History;
use super::lists::{Listed, Lists};
use super::nodes::{Mode, Node};
use super::rows::{Row, Sort, VmId, sort};
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
    /// One VM.
    Vm(VmId),
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
    /// The nodes; at least one.
    pub nodes: Vec<Node>,
    /// The screen.
    pub view: View,
    /// Number of lines scrolled off the top, in the view of one VM.
    pub scroll: usize,
    /// The VM under the cursor.
    pub cursor: Option<VmId>,
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
    /// Whether the display changes with new readings.
    pub mode: Mode,
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
            nodes: vec![Node::default()],
            view,
            scroll: 0,
            cursor: None,
            sort: Sort::default(),
            is_reversed: false,
            filter: String::new(),
            is_filtering: false,
            timeline: None,
            mode: Mode::Live,
            interval,
            shows_help: false,
            message: String::new(),
            page: 10,
        }
    }

    /// Returns the state of a cluster with these nodes before the first reading.
    pub fn of_cluster(interval: Duration, names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().collect();
        let count = names.len();
        let nodes = names.into_iter().map(|name| Node {
            name: name.into(),
            lists: Lists::one_of(count),
            ..Node::default()
        });
        Self {
            nodes: nodes.collect(),
            ..Self::new(interval, View::Fleet)
        }
    }

    /// Whether there are several nodes.
    pub fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Adds a new reading of the only node. A paused display does not change.
    pub fn add(&mut self, reading: Arc<Snapshot>) {
        self.add_of(0, reading);
    }

    /// Adds a new reading of a node, by number. A paused display does not change.
    pub fn add_of(&mut self, node: usize, reading: Arc<Snapshot>) {
        let is_cluster = self.is_cluster();
        if let Some(node) = self.nodes.get_mut(node)
            && node.add(reading, self.mode)
            && !is_cluster
        {
            self.cursor = None;
        }
    }

    /// Adds the VMs of a new reading of a cluster's node, by number.
    pub fn list_of(&mut self, node: usize, listed: Listed) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.list(listed, self.mode);
        }
    }

    /// The node of a cluster whose readings are needed, because the screen shows one of its VMs.
    pub fn opened(&self) -> Option<usize> {
        match &self.view {
            View::Vm(id) if self.is_cluster() => Some(id.node),
            _ => None,
        }
    }

    /// The node of the selected VM.
    pub fn node(&self) -> &Node {
        let selected = match &self.view {
            View::Vm(id) => Some(id),
            View::Fleet => self.cursor.as_ref(),
        };
        let number = selected.map_or(0, |id| id.node);
        self.nodes.get(number).unwrap_or(&self.nodes[0])
    }

    /// The last readings of the selected VM's node.
    pub fn history(&self) -> &History {
        &self.node().history
    }

    /// The displayed reading of the selected VM's node, as the number of readings back.
    pub fn back(&self) -> usize {
        if self.is_cluster() && self.view == View::Fleet {
            return self.node().list_back;
        }
        self.node().back
    }

    /// The displayed reading of the selected VM's node.
    pub fn shown(&self) -> Option<&Arc<Snapshot>> {
        self.node().shown()
    }

    /// The displayed list.
    pub fn rows(&self) -> Vec<Cow<'_, Row>> {
        let filter = self.filter.to_lowercase();
        let nodes = self.nodes.iter().enumerate();
        let rows = nodes.flat_map(|(number, node)| node.rows(number));
        let mut all: Vec<_> = rows.filter(|row| row.contains(&filter)).collect();
        sort(&mut all, self.sort, self.is_reversed);
        all
    }

    /// The selected VM: the one in the VM view, or the one under the cursor.
    pub fn looked_at(&self) -> Option<VmId> {
        if let View::Vm(id) = &self.view {
            return Some(id.clone());
        }
        let rows = self.rows();
        rows.get(self.row_of_cursor(&rows)).map(|row| row.id())
    }

    /// Row of the cursor: it follows its VM when the order changes.
    pub fn row_of_cursor(&self, rows: &[Cow<'_, Row>]) -> usize {
        let cursor = self.cursor.as_ref();
        rows.iter().position(|row| row.is(cursor)).unwrap_or(0)
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
                if self.view != View::Fleet {
                    self.leave();
                }
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
        self.mode = match self.mode {
            Mode::Live => Mode::Paused,
            Mode::Paused => Mode::Live,
        };
        self.go_live();
    }

    fn go_live(&mut self) {
        self.nodes.iter_mut().for_each(Node::go_live);
    }

    /// Moves to the previous or next reading of each node, and pauses.
    fn step(&mut self, is_back: bool) {
        self.mode = Mode::Paused;
        let is_list = self.is_cluster() && self.view == View::Fleet;
        for node in &mut self.nodes {
            let (back, last) = if is_list {
                let last = node.lists.len().saturating_sub(1);
                (&mut node.list_back, last)
            } else {
                (&mut node.back, node.history.len().saturating_sub(1))
            };
            *back = if is_back {
                (*back + 1).min(last)
            } else {
                back.saturating_sub(1)
            };
        }
    }

    fn change_interval(&mut self, is_longer: bool) {
        let longer = INTERVALS.iter().find(|one| **one > self.interval);
        let shorter = INTERVALS.iter().rev().find(|one| **one < self.interval);
        let next = if is_longer { longer } else { shorter };
        self.interval = next.copied().unwrap_or(self.interval);
    }

    fn leave(&mut self) {
        let opened = self.opened();
        match self.view {
            View::Vm(_) => self.show(View::Fleet),
            View::Fleet => self.filter.clear(),
        }
        if let Some(node) = opened.and_then(|node| self.nodes.get_mut(node)) {
            node.history.clear();
        }
        self.scroll = 0;
    }

    /// Selects a screen. The readings of one VM of a cluster begin when it is opened, so both
    /// screens are live then.
    fn show(&mut self, view: View) {
        self.view = view;
        if self.is_cluster() {
            self.mode = Mode::Live;
            self.go_live();
        }
    }

    fn enter(&mut self) {
        if let (View::Fleet, Some(id)) = (&self.view, self.looked_at()) {
            self.cursor = Some(id.clone());
            self.show(View::Vm(id));
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
        self.cursor = rows.get(to).map(|row| row.id());
    }
}
