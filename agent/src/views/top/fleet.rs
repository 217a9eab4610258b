//! The screen of all VMs: one line each.

use std::fmt::Write as _;

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::nodes::Node;
use super::rows::{Row, Sort, float};
use super::state::Top;
use super::theme::Theme;
use crate::term::printable;
use crate::views::table::shorten;

/// Minimum width of the name column.
const MIN_NAME: usize = 12;

/// Maximum width of the name column.
const MAX_NAME: usize = 48;

/// A right-aligned column after the name.
struct Column {
    head: &'static str,
    width: usize,
    sort: Option<Sort>,
    cell: fn(&Row) -> String,
    /// Load of the value, 0 to 1, which determines its colour.
    load: fn(&Row) -> Option<f64>,
}

/// Head of the column of a cluster's nodes.
const NODE: &str = "NODE";

/// In display order. If the width does not suffice, the first columns of [`LEAVING`] are
/// dropped first.
const COLUMNS: [Column; 10] = [
    Column {
        head: NODE,
        width: 14,
        sort: None,
        cell: |row| shorten(&printable(&row.node_name), 14),
        load: |_| None,
    },
    Column {
        head: "vCPU",
        width: 4,
        sort: None,
        cell: vcpus,
        load: |_| None,
    },
    Column {
        head: "CORES",
        width: 6,
        sort: Some(Sort::Cores),
        cell: |row| decimals(row.cores),
        load: |_| None,
    },
    Column {
        head: "QUOTA",
        width: 6,
        sort: None,
        cell: |row| decimals(row.quota_cores),
        load: |_| None,
    },
    Column {
        head: "USED%",
        width: 5,
        sort: Some(Sort::Used),
        cell: |row| percent(row.used),
        load: |row| row.used,
    },
    Column {
        head: "THR%",
        width: 4,
        sort: Some(Sort::Throttled),
        cell: |row| percent(row.throttled),
        load: |row| row.throttled.map(|share| share * 2.0),
    },
    Column {
        head: "WORKER",
        width: 11,
        sort: Some(Sort::Worker),
        cell: worker,
        load: |row| row.worker.map(|(_, _, busy)| busy),
    },
    Column {
        head: "WAIT%",
        width: 5,
        sort: Some(Sort::Wait),
        cell: |row| percent(row.wait),
        load: |row| row.wait.map(|share| share * 5.0),
    },
    Column {
        head: "RES/RAM",
        width: 10,
        sort: Some(Sort::Resident),
        cell: memory,
        load: |_| None,
    },
    Column {
        head: "FLAGS",
        width: 5,
        sort: None,
        cell: |row| row.flags.clone(),
        load: |row| {
            let is_warned = row.flags.contains(char::is_uppercase);
            is_warned.then_some(1.0)
        },
    },
];

/// Columns in the order in which they are dropped.
const LEAVING: [&str; 9] = [
    "vCPU", "QUOTA", "RES/RAM", "WAIT%", "WORKER", "THR%", "USED%", "FLAGS", NODE,
];

/// The lines: the header, then as many rows around the cursor as fit `height`.
pub fn lines<'a>(top: &Top, width: usize, height: usize, theme: Theme) -> Vec<Line<'a>> {
    let rows = top.rows();
    let widest = rows.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let columns = fitting(width, widest.clamp(MIN_NAME, MAX_NAME), top.is_cluster());
    let taken: usize = columns.iter().map(|column| column.width + 1).sum();
    let name_width = width.saturating_sub(taken + 1).max(MIN_NAME);
    let name_width = name_width.min(widest.clamp(MIN_NAME, MAX_NAME));
    let cursor = top.row_of_cursor(&rows);
    let page = height.saturating_sub(1).max(1);
    let first = (cursor + 1).saturating_sub(page);
    let mut lines = vec![heads(top, &columns, name_width, theme)];
    for (index, row) in rows.iter().enumerate().skip(first).take(page) {
        let mut line = line(row, &columns, name_width, theme);
        line.spans.insert(0, theme.marker(index == cursor));
        if index == cursor {
            line = line.style(theme.cursor());
        } else if !row.is_running {
            line = line.style(theme.faint());
        }
        lines.push(line);
    }
    if rows.is_empty() {
        let first = top.nodes.iter().find_map(Node::is_read);
        lines.push(Line::raw(match (first, top.filter.is_empty()) {
            (None, _) if top.timeline.is_some() => " This reading is unreadable.",
            (None, _) => " reading ...",
            (Some(false), true) => " The host cannot be read: see virtlens check.",
            (Some(true), true) => " No KVM virtual machine found.",
            (Some(_), false) => " No VM matches the filter; Esc clears it.",
        }));
    }
    lines
}

fn fitting(width: usize, name_width: usize, has_nodes: bool) -> Vec<&'static Column> {
    let columns = COLUMNS.iter();
    let mut columns: Vec<&Column> = columns
        .filter(|column| has_nodes || column.head != NODE)
        .collect();
    for leaving in LEAVING {
        let taken: usize = columns.iter().map(|column| column.width + 1).sum();
        if taken + name_width.min(MIN_NAME + 4) < width {
            break;
        }
        columns.retain(|column| column.head != leaving);
    }
    columns
}

fn heads<'a>(top: &Top, columns: &[&Column], name_width: usize, theme: Theme) -> Line<'a> {
    let arrow = match (theme.ascii, top.is_reversed) {
        (true, false) => "v",
        (true, true) => "^",
        (false, false) => "▾",
        (false, true) => "▴",
    };
    let meant = |sort: Option<Sort>| sort == Some(top.sort);
    let name = if top.sort == Sort::Name {
        format!("NAME{arrow}")
    } else {
        "NAME".to_owned()
    };
    let mut text = format!(" {name:<name_width$}");
    for column in columns {
        let arrow = if meant(column.sort) { arrow } else { "" };
        // The arrow uses the gap before the column, so that the column does not become
        // wider.
        let head = format!("{arrow}{}", column.head);
        let width = column.width + 1;
        write!(text, "{head:>width$}").expect("writing to a String cannot fail");
    }
    Line::styled(text, theme.head())
}

fn line<'a>(row: &Row, columns: &[&Column], name_width: usize, theme: Theme) -> Line<'a> {
    let name = shorten(&row.name, name_width);
    let missing = name_width.saturating_sub(name.width());
    let mut spans = vec![Span::raw(name + &" ".repeat(missing))];
    for column in columns {
        let cell = (column.cell)(row);
        let width = column.width + 1;
        let style = theme.load((column.load)(row));
        spans.push(Span::styled(format!("{cell:>width$}"), style));
    }
    Line::from(spans)
}

fn vcpus(row: &Row) -> String {
    if row.is_running {
        row.vcpus.to_string()
    } else {
        "gone".to_owned()
    }
}

fn decimals(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0))
}

fn worker(row: &Row) -> String {
    row.worker.map_or("-".to_owned(), |(role, number, busy)| {
        let role = match role.name() {
            "virtiofsd" => "vfsd",
            "iothread" => "io",
            name => name,
        };
        format!("{role}{number} {:.0}%", busy * 100.0)
    })
}

fn memory(row: &Row) -> String {
    match (row.resident_bytes, row.guest_bytes) {
        (None, None) => "-".to_owned(),
        (resident, guest) => format!("{}/{}", size(resident), size(guest)),
    }
}

/// Formats bytes in four characters.
pub fn size(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let mut value = float(bytes) / 1024.0;
    let mut unit = "K";
    for next in ["M", "G", "T"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 9.95 && unit != "K" {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_at_most_four_characters() {
        for (bytes, text) in [
            (0, "0K"),
            (999 << 10, "999K"),
            (1 << 20, "1.0M"),
            (300 << 20, "300M"),
            (1 << 30, "1.0G"),
            (60 << 30, "60G"),
            (2 << 40, "2.0T"),
        ] {
            assert_eq!(size(Some(bytes)), text);
        }
        assert_eq!(size(None), "-");
    }
}
