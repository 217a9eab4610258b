//! The table of VMs: one line each, the busiest first.
//!
//! A [`Row`] holds the usage of one VM in numbers; [`render`] lays the rows out. Columns
//! without a value are omitted, and columns are abbreviated if the width does not
//! suffice.

mod columns;
mod row;

use std::fmt::Write as _;
use std::time::Duration;

use unicode_width::UnicodeWidthStr;
use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::Snapshot;

pub(crate) use self::columns::shorten;
use self::columns::{Column, GAP, fit, lines_width};
use self::row::Row;
use crate::term::{Paint, Style, printable};
use crate::views::shortfall::{running_vms, shortfalls};

/// Formats `snapshot` as a table: rates since the reading `before`, or without one the
/// totals of each VM's threads.
pub fn render(snapshot: &Snapshot, before: Option<&Snapshot>, style: Style) -> String {
    let reading = Reading::new(snapshot, before);
    let rows = sorted(reading.rows(""));

    let mut out = String::new();
    let paint = Paint(style.color);
    writeln!(out, "{}", caption(snapshot, reading.elapsed_ns)).expect(INFALLIBLE);
    if rows.is_empty() {
        out.push_str(if snapshot.knows_vms() {
            NO_VM
        } else {
            "The host cannot be read: virtual machines are unknown.\n"
        });
    } else {
        write_rows(&mut out, &rows, reading.before.is_some(), style);
    }
    for lack in shortfalls(snapshot) {
        writeln!(out, "{}", paint.warning(&lack.line())).expect(INFALLIBLE);
    }
    out
}

/// A reading of a node, and an earlier one.
pub type NodeReading = (String, Snapshot, Option<Snapshot>);

/// Formats the readings of several nodes as one table, as [`render`] does for one.
pub fn render_nodes(nodes: &[NodeReading], style: Style) -> String {
    let readings: Vec<(&str, Reading)> = nodes
        .iter()
        .map(|(name, now, before)| (&**name, Reading::new(now, before.as_ref())))
        .collect();
    let rows = sorted(
        readings
            .iter()
            .flat_map(|(name, reading)| reading.rows(name)),
    );
    let longest_ns = readings.iter().filter_map(|(_, one)| one.elapsed_ns).max();
    let vms = rows.iter().filter(|row| row.running).count();
    let cpus: u32 = nodes.iter().map(|(_, now, _)| now.node.cpus).sum();
    let (count, meaning) = (nodes.len(), meaning(longest_ns));
    let mut out = format!("{count} nodes: {vms} VMs on {cpus} CPUs, {meaning}\n");
    if rows.is_empty() {
        out.push_str(NO_VM);
    } else {
        write_rows(&mut out, &rows, longest_ns.is_some(), style);
    }
    let paint = Paint(style.color);
    for (name, now, _) in nodes {
        for lack in shortfalls(now) {
            let line = format!("{}: {}", printable(name), lack.line());
            writeln!(out, "{}", paint.warning(&line)).expect(INFALLIBLE);
        }
    }
    out
}

const NO_VM: &str = "No KVM virtual machine found.\n";

/// A reading, and an earlier one for rates.
struct Reading<'s> {
    now: &'s Snapshot,
    before: Option<&'s Snapshot>,
    elapsed_ns: Option<u64>,
}

impl<'s> Reading<'s> {
    fn new(now: &'s Snapshot, before: Option<&'s Snapshot>) -> Self {
        // After a failed reading both have the same time, so no rate is known.
        let before = before.filter(|before| now.clock_ns > before.clock_ns);
        let elapsed_ns = before.map(|before| now.clock_ns - before.clock_ns);
        Self {
            now,
            before,
            elapsed_ns,
        }
    }

    fn rows(&self, node: &str) -> impl Iterator<Item = Row> {
        self.now.vms.iter().map(move |vm| {
            let mut row = match self.before.zip(self.elapsed_ns) {
                Some((before, elapsed_ns)) => Row::since(vm, before, elapsed_ns),
                None => Row::of(&Interval::since_began(vm)),
            };
            row.node = printable(node);
            row
        })
    }
}

/// The busiest VM first.
fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| {
        let by_name = a.name.cmp(&b.name).then_with(|| a.node.cmp(&b.node));
        b.total().total_cmp(&a.total()).then(by_name)
    });
    rows
}

const INFALLIBLE: &str = "writing to a String cannot fail";

fn caption(snapshot: &Snapshot, elapsed_ns: Option<u64>) -> String {
    let node = &snapshot.node;
    let meaning = meaning(elapsed_ns);
    let vms = match running_vms(snapshot) {
        None => "unknown VMs".to_owned(),
        Some(1) => "1 VM".to_owned(),
        Some(vms) => format!("{vms} VMs"),
    };
    let (name, cpus) = (printable(&node.name), node.cpus);
    format!("{name}: {vms} on {cpus} CPUs, {meaning}")
}

fn meaning(elapsed_ns: Option<u64>) -> String {
    elapsed_ns.map_or("CPU seconds of all living threads".to_owned(), |ns| {
        let secs = Duration::from_nanos(ns).as_secs_f64();
        format!("cores used in the last {secs:.1} s")
    })
}

/// Minimum width of the name column.
const MIN_NAME_WIDTH: usize = 12;

fn write_rows(out: &mut String, rows: &[Row], rates: bool, style: Style) {
    let paint = Paint(style.color);
    let widest = rows.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let columns = fit(
        rows,
        rates,
        style.width.map(|width| width.saturating_sub(widest)),
    );
    let available = style
        .width
        .map_or(widest, |width| width.saturating_sub(lines_width(&columns)));
    let name_width = widest.min(available.max(MIN_NAME_WIDTH));

    let heads = line("VM", name_width, &columns, |column| column.head);
    writeln!(out, "{}", paint.head(&heads)).expect(INFALLIBLE);
    for (index, row) in rows.iter().enumerate() {
        let name = shorten(&row.name, name_width);
        let text = line(&name, name_width, &columns, |column| &column.cells[index]);
        let text = if row.running {
            text
        } else {
            paint.faint(&text)
        };
        writeln!(out, "{text}").expect(INFALLIBLE);
    }
}

/// Formats a line: `name` left-aligned, then one right-aligned cell for each column.
fn line<'c>(
    name: &str,
    name_width: usize,
    columns: &'c [Column],
    cell: impl Fn(&'c Column) -> &'c str,
) -> String {
    let mut line = name.to_owned();
    let mut end = name_width;
    for column in columns {
        end += GAP + column.width();
        let text = cell(column);
        let missing = end.saturating_sub(line.width() + text.width());
        line.extend(std::iter::repeat_n(' ', missing));
        line.push_str(text);
    }
    line
}
