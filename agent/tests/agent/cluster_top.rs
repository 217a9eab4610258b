//! `top` on a cluster: lists of all nodes, and the readings of the node with the opened VM.

use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use virtlens::views::top::lists::Lister;
use virtlens::views::top::nodes::Mode;
use virtlens::views::top::rows::{Row, rows};
use virtlens::views::top::state::{Top, View};
use virtlens_model::snapshot::Snapshot;

use crate::top::{PLAIN, reading, screen};

/// A cluster of two nodes, and what reduces their readings.
struct Nodes {
    top: Top,
    listers: [Lister; 2],
}

impl Nodes {
    fn new() -> Self {
        let names = ["node-a", "node-b"];
        Self {
            top: Top::of_cluster(Duration::from_secs(1), names.map(str::to_owned)),
            listers: [0, 1].map(|number| Lister::new(number, names[number])),
        }
    }

    /// Adds the reading of a node.
    fn add(&mut self, node: usize, reading: &Snapshot) {
        let listed = self.listers[node].list(reading);
        self.top.list_of(node, listed.expect("it is new"));
    }

    fn press(&mut self, key: KeyCode) {
        self.top.press(KeyEvent::new(key, KeyModifiers::NONE));
    }

    /// Usage of the first VM of node-a, cores.
    fn cores(&self) -> Option<f64> {
        let rows = self.top.rows();
        let mut first = rows.iter().filter(|row| row.node == 0);
        first.find(|row| row.name == "shop/web-0")?.cores
    }

    fn screen(&mut self) -> String {
        screen(&mut self.top, PLAIN, 100, 24)
    }
}

#[test]
fn rows_are_those_of_whole_readings() {
    let (before, now) = (reading(3), reading(4));
    let mut lister = Lister::new(1, "node-b");
    let first = lister.list(&before).expect("it is new");
    assert!(first.rows.iter().all(|row| row.cores.is_none()));
    let listed = lister.list(&now).expect("it is new");
    let name: Arc<str> = "node-b".into();
    let expected: Vec<Row> = rows((1, &name), Some(&before), &now).collect();
    let is_usage = |row: &Row| row.cores > Some(0.0) && row.used.is_some() && row.worker.is_some();
    assert!(expected.iter().any(is_usage), "{expected:?}");
    assert_eq!(format!("{:?}", listed.rows), format!("{expected:?}"));
    // A failed reading repeats the last one, and the next one has the usage since that.
    assert!(lister.list(&now).is_none());
    let next = lister.list(&reading(5)).expect("it is new");
    assert!(next.rows.iter().any(is_usage));
    // The agent was restarted.
    let restarted = lister.list(&before).expect("its clock is another one");
    assert!(restarted.rows.iter().all(|row| row.cores.is_none()));
}

#[test]
fn readings_are_kept_only_while_a_vm_is_open() {
    let mut nodes = Nodes::new();
    for second in 0..3 {
        nodes.add(0, &reading(second));
        nodes.add(1, &reading(second));
    }
    let all = nodes.screen();
    for expected in ["2 of 2 nodes", "VMs: 4", "node-a", "node-b"] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
    assert_eq!(nodes.top.opened(), None);
    nodes.press(KeyCode::Down);
    nodes.press(KeyCode::Enter);
    let View::Vm(id) = nodes.top.view.clone() else {
        panic!("it is open");
    };
    assert_eq!(nodes.top.opened(), Some(id.node));
    let waiting = nodes.screen();
    assert!(waiting.contains("reading ..."), "{waiting}");
    for second in 3..6 {
        nodes.add(id.node, &reading(second));
        nodes.top.add_of(id.node, reading(second));
    }
    let open = nodes.screen();
    assert!(open.contains("ROLE") && open.contains("live"), "{open}");
    assert_eq!(nodes.top.history().len(), 2);
    // Steps are those of the VM's readings.
    nodes.press(KeyCode::Left);
    assert_eq!(
        nodes.top.shown().expect("a reading").clock_ns,
        4_000_000_000
    );
    nodes.press(KeyCode::Esc);
    assert_eq!((nodes.top.opened(), nodes.top.mode), (None, Mode::Live));
    let kept = nodes.top.nodes.iter().map(|node| node.history.at(0));
    assert!(kept.into_iter().all(|reading| reading.is_none()));
    nodes.press(KeyCode::Char('o'));
    assert!(nodes.screen().contains("2 of 2 nodes"));
}

#[test]
fn paused_list_shows_previous_lists() {
    let mut nodes = Nodes::new();
    for second in 0..6 {
        nodes.add(0, &reading(second));
    }
    let live = nodes.cores();
    nodes.press(KeyCode::Left);
    nodes.press(KeyCode::Left);
    let past = nodes.cores();
    assert!(past < live, "usage rises: {past:?}, {live:?}");
    nodes.add(0, &reading(6));
    assert_eq!(nodes.cores(), past);
    let paused = nodes.screen();
    assert!(paused.contains("paused, 3 back"), "{paused}");
    // A node that answers for the first time has one list.
    nodes.add(1, &reading(6));
    assert!(nodes.screen().contains("2 of 2 nodes"));
    nodes.press(KeyCode::Char(' '));
    assert_eq!(
        nodes.cores(),
        live,
        "the usage of the last seconds is the same"
    );
}
