//! The table of budgets.

use std::fmt::Write as _;

use crate::stats::{Compared, Spread};

/// The smallest difference that a comparison of work of about 1 µs can resolve.
const SHARPEST_NS: f64 = 20.0;

/// Measured values and their budgets.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

#[derive(Debug)]
struct Row {
    what: String,
    budget: String,
    measured: String,
    verdict: &'static str,
}

impl Table {
    /// Adds a value with a budget.
    pub(crate) fn judge(&mut self, what: &str, budget: &str, measured: String, is_kept: bool) {
        self.add(what, budget, measured, if is_kept { "ok" } else { "OVER" });
    }

    /// Adds the cost that the agent adds to an operation, with a budget, ns. The result
    /// is undecided if the quartiles are further apart than `limit_ns` and
    /// [`SHARPEST_NS`]: the machine was too busy.
    pub(crate) fn judge_added(&mut self, what: &str, budget: &str, it: &Compared, limit_ns: f64) {
        let measured = describe(it);
        let Spread { low, high, .. } = it.added;
        let verdict = if low > limit_ns.max(SHARPEST_NS) {
            "OVER"
        } else if high - low > limit_ns.max(SHARPEST_NS) {
            "unclear"
        } else {
            "ok"
        };
        self.add(what, budget, measured, verdict);
    }

    /// Adds the cost that the agent adds to an operation without a budget.
    pub(crate) fn row_added(&mut self, what: &str, it: &Compared) {
        self.row(what, describe(it));
    }

    /// Adds a value without a budget.
    pub(crate) fn row(&mut self, what: &str, measured: String) {
        self.add(what, "–", measured, "");
    }

    /// Adds a value that could not be measured.
    pub(crate) fn miss(&mut self, what: &str, cause: &str) {
        self.add(what, "–", format!("not measured: {cause}"), "");
    }

    fn add(&mut self, what: &str, budget: &str, measured: String, verdict: &'static str) {
        // Printed at once, because the whole run takes minutes.
        eprintln!("{what}: {measured} {verdict}");
        self.0.push(Row {
            what: what.to_owned(),
            budget: budget.to_owned(),
            measured,
            verdict,
        });
    }

    /// Renders the table as Markdown, below the description of the machine.
    pub(crate) fn render(&self, machine: &str) -> String {
        let mut text = format!("{machine}\n\n");
        let head = ["what", "budget", "measured", ""];
        let rows: Vec<[&str; 4]> = self
            .0
            .iter()
            .map(|row| [&*row.what, &*row.budget, &*row.measured, row.verdict])
            .collect();
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]);
            cells
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = [0, 1, 2, 3].map(width);
        let rule = widths.map(|width| "-".repeat(width.max(3)));
        let rule = [0, 1, 2, 3].map(|column| &*rule[column]);
        for row in [&head, &rule].into_iter().chain(&rows) {
            for (cell, width) in row.iter().zip(widths) {
                write!(text, "| {cell:width$} ").expect("writing to a String cannot fail");
            }
            text.push_str("|\n");
        }
        text
    }
}

fn describe(it: &Compared) -> String {
    let Compared {
        without,
        added,
        ratio,
    } = it;
    format!(
        "{added:.0}; without it {:.0}, ratio {ratio:.3}",
        without.median
    )
}
