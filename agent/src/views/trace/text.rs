//! Lines, tables and numbers of a trace summary.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::term::{Paint, printable};

/// Lines of text.
pub(super) struct Page {
    pub(super) paint: Paint,
    pub(super) out: String,
}

impl Page {
    pub(super) fn head(&mut self, text: &str) {
        self.line(&self.paint.head(text));
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.line(&self.paint.warning(text));
    }

    pub(super) fn line(&mut self, text: &str) {
        writeln!(self.out, "{}", text.trim_end()).expect("writing to a String cannot fail");
    }

    pub(super) fn chapter(&mut self, title: &str) {
        self.line("");
        self.head(title);
    }

    pub(super) fn table(&mut self, table: &Table<'_>) {
        if table.rows.is_empty() {
            return;
        }
        let widths = table.widths();
        let line = |title: &str, cells: &[&str]| {
            let mut line = format!("{title:<first$}", first = widths[0]);
            for (at, cell) in cells
                .iter()
                .enumerate()
                .filter(|(at, _)| table.is_shown(*at))
            {
                let width = widths[at + 1];
                write!(line, "  {cell:>width$}").expect("writing to a String cannot fail");
            }
            line.trim_end().to_owned()
        };
        self.line("");
        self.head(&line(table.title, table.names));
        for (title, cells) in &table.rows {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            self.line(&line(title, &cells));
        }
    }
}

/// Rows with a title and cells.
pub(super) struct Table<'a> {
    title: &'a str,
    names: &'a [&'a str],
    rows: Vec<(String, Vec<String>)>,
}

impl<'a> Table<'a> {
    pub(super) fn new(title: &'a str, names: &'a [&'a str]) -> Self {
        Self {
            title,
            names,
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, title: &str, cells: Vec<String>) {
        self.rows.push((format!("  {}", printable(title)), cells));
    }

    /// Whether a column is shown: "unknown" only if it has a value.
    fn is_shown(&self, at: usize) -> bool {
        self.names[at] != "unknown" || self.rows.iter().any(|(_, cells)| cells[at] != "0.0")
    }

    /// Widths of the title column and of each cell column.
    fn widths(&self) -> Vec<usize> {
        let titles = self.rows.iter().map(|(title, _)| title.as_str());
        let first = titles
            .chain([self.title])
            .map(|text| text.chars().count())
            .max();
        let of_cells = self.names.iter().enumerate().map(|(at, name)| {
            let cells = self.rows.iter().map(|(_, cells)| cells[at].len());
            cells.chain([name.len()]).max().unwrap_or(0)
        });
        first.into_iter().chain(of_cells).collect()
    }
}

/// Formats parts as percentages with one decimal that add up to 100.0. The rounding error
/// goes to the parts that lost most by rounding.
pub(super) fn shares(parts: &[u64], whole: u64) -> Vec<String> {
    if whole == 0 {
        return parts.iter().map(|_| "-".to_owned()).collect();
    }
    let scaled: Vec<u128> = parts.iter().map(|part| u128::from(*part) * 1000).collect();
    let whole = u128::from(whole);
    let mut tenths: Vec<u128> = scaled.iter().map(|part| part / whole).collect();
    let mut by_rest: Vec<usize> = (0..parts.len()).collect();
    by_rest.sort_by_key(|at| Reverse(scaled[*at] % whole));
    let rest = 1000_u128.saturating_sub(tenths.iter().sum());
    for at in by_rest.into_iter().take(usize::try_from(rest).unwrap_or(0)) {
        tenths[at] += 1;
    }
    tenths
        .into_iter()
        .map(|part| format!("{}.{}", part / 10, part % 10))
        .collect()
}

/// A part divided by the whole; 0 if the whole is 0.
#[allow(
    clippy::cast_precision_loss,
    reason = "a displayed number has few digits"
)]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

pub(super) fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// Formats a time with a suitable unit.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", seconds(ns) * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds(ns) * 1e3),
        _ => format!("{:.2} s", seconds(ns)),
    }
}

/// Formats a size with a suitable unit.
pub(super) fn bytes(bytes: u64) -> String {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a displayed number has few digits"
    )]
    let float = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", float / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", float / 1_048_576.0),
        _ => format!("{:.2} GiB", float / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, shares, time};

    #[test]
    fn shares_add_up_to_100_percent() {
        assert_eq!(shares(&[1, 1, 1], 3), ["33.4", "33.3", "33.3"]);
        assert_eq!(shares(&[0, 7, 0], 7), ["0.0", "100.0", "0.0"]);
        assert_eq!(shares(&[2, 2, 2, 2, 2, 2, 1], 13)[6], "7.7");
        assert_eq!(shares(&[0], 0), ["-"]);
    }

    #[test]
    fn values_are_shown_in_suitable_units() {
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_500), "1.5 us");
        assert_eq!(time(2_500_000_000), "2.50 s");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 20), "3.0 MiB");
    }
}
