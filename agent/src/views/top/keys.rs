//! The keys: those of a screen in its last line, and all of them in the help.

use ratatui::text::Line;

use super::nodes::Mode;
use super::rows::FLAGS;
use super::state::{Top, View};
use super::theme::Theme;

/// The last line: the message, the filter that is typed, or the keys.
pub(super) fn footer<'a>(top: &Top, theme: Theme) -> Line<'a> {
    if !top.message.is_empty() {
        return Line::styled(format!(" {}", top.message), theme.head());
    }
    if top.is_filtering {
        return Line::styled(
            format!(" /{}_  Enter applies, Esc clears", top.filter),
            theme.head(),
        );
    }
    let filter = if top.filter.is_empty() {
        String::new()
    } else {
        format!("  filter: {}", top.filter)
    };
    let keys = match (&top.view, &top.timeline, top.mode) {
        (View::Fleet, Some(_), _) => {
            " Enter VM  [ ] step  { } warning  Space play  / filter  s sort  ? help  q quit"
        }
        (View::Vm(_), Some(_), _) => {
            " Esc list  j k scroll  [ ] step  { } warning  Space play  o save  ? help  q quit"
        }
        (_, None, Mode::Paused) => " Left/Right step  Space live  o save  ? help  q quit",
        (View::Fleet, None, Mode::Live) => {
            " Enter VM  / filter  s sort  Space pause  +- interval  ? help  q quit"
        }
        (View::Vm(_), None, Mode::Live) => {
            " Esc list  j k scroll  Space pause  o save  t trace  +- interval  ? help  q quit"
        }
    };
    Line::styled(format!("{keys}{filter}"), theme.faint())
}

/// A key and its effect.
type Key = (&'static str, &'static str);

/// Keys of every screen.
const KEYS: [Key; 6] = [
    (
        "j k Up Down",
        "move; scroll within a VM (also PgUp PgDn, g G)",
    ),
    ("Enter", "show the VM's details"),
    ("Esc", "return; in the list clear the filter"),
    ("/ F4", "show VMs whose name contains a text"),
    ("s < > F6", "sort by another column"),
    ("S", "reverse the order"),
];

/// Keys of a live view.
const LIVE_KEYS: [Key; 4] = [
    ("Space p", "pause or resume"),
    ("Left Right", "previous or next reading"),
    ("+ -", "longer or shorter interval (100 ms to 10 s)"),
    (
        "t",
        "trace the VM for 10 s into a file in the working directory",
    ),
];

/// Keys of a recording.
const RECORDED_KEYS: [Key; 5] = [
    ("[ ] Left Right", "previous or next reading"),
    ("{ }", "previous or next reading in which a warning begins"),
    ("Home End", "first or last reading"),
    ("Space p", "play or pause"),
    ("+ -", "play faster or slower, up to 100 times as fast"),
];

/// Keys of the program.
const LAST_KEYS: [Key; 3] = [
    (
        "o",
        "save the displayed reading as JSON in the working directory",
    ),
    ("? h F1", "show or hide this help"),
    ("q F10 Ctrl-C", "quit"),
];

/// The help.
pub(super) fn help<'a>(top: &Top, theme: Theme) -> Vec<Line<'a>> {
    let of_feed = match top.timeline {
        None => &LIVE_KEYS[..],
        Some(_) => &RECORDED_KEYS[..],
    };
    let mut lines = vec![Line::styled(" Keys", theme.head())];
    let keys = KEYS.iter().chain(of_feed).chain(&LAST_KEYS);
    lines.extend(keys.map(|(key, text)| Line::raw(format!("   {key:<14} {text}"))));
    lines.push(Line::raw(""));
    let text = " Flags: upper case is a warning, lower case is information";
    lines.push(Line::styled(text, theme.head()));
    lines.extend(FLAGS.chunks(2).map(|pair| {
        let parts = pair
            .iter()
            .map(|(flag, text)| format!("   {flag}  {text:<24}"));
        Line::raw(parts.collect::<String>())
    }));
    lines
}
