//! Columns of the table and their widths.

use unicode_width::UnicodeWidthStr;
use virtlens_model::vocab::Role;

use super::row::Row;

/// Level of detail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Every role by its full name.
    Full,
    /// Every role, some with abbreviated names.
    Short,
    /// Emulator, helper and unattributed time in one column; whole seconds.
    Folded,
}

/// A right-aligned column of numbers.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) cells: Vec<String>,
}

impl Column {
    pub(super) fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.width());
        cells.max().unwrap_or(0).max(self.head.width())
    }
}

/// Returns the columns of the most detailed level whose lines fit `available`
/// ([`lines_width`]), else those of the least detailed level.
pub(super) fn fit(rows: &[Row], rates: bool, available: Option<usize>) -> Vec<Column> {
    let all = |detail| columns(rows, rates, detail);
    let fits =
        |columns: &Vec<Column>| available.is_none_or(|available| lines_width(columns) <= available);
    let details = [Detail::Full, Detail::Short];
    let fitting = details.into_iter().map(all).find(fits);
    fitting.unwrap_or_else(|| all(Detail::Folded))
}

/// Spaces before each column.
pub(super) const GAP: usize = 2;

/// Total width of the columns.
pub(super) fn lines_width(columns: &[Column]) -> usize {
    columns.iter().map(|column| GAP + column.width()).sum()
}

fn columns(rows: &[Row], rates: bool, detail: Detail) -> Vec<Column> {
    let decimals = match (rates, detail) {
        (true, _) => 2,
        (false, Detail::Folded) => 0,
        (false, _) => 1,
    };
    let column = |head, decimals: usize, value: &dyn Fn(&Row) -> Option<f64>| {
        let cell = |row| value(row).map_or("-".to_owned(), |value| format!("{value:.decimals$}"));
        Column {
            head,
            cells: rows.iter().map(cell).collect(),
        }
    };
    let any = |value: &dyn Fn(&Row) -> Option<f64>| rows.iter().any(|row| value(row).is_some());
    let rest = |row: &Row| {
        let parts = [
            row.role(Role::Emulator),
            row.role(Role::Helper),
            row.unattributed,
        ];
        parts.into_iter().flatten().reduce(|sum, part| sum + part)
    };
    let unattributed = |row: &Row| row.unattributed.filter(|used| *used > 0.0);

    let mut columns = Vec::new();
    if rows.iter().any(|row| !row.node.is_empty()) {
        columns.push(Column {
            head: "NODE",
            cells: rows.iter().map(|row| row.node.clone()).collect(),
        });
    }
    columns.extend([
        Column {
            head: "vCPUs",
            cells: rows.iter().map(vcpus).collect(),
        },
        column(if rates { "CORES" } else { "CPU s" }, decimals, &|row| {
            row.unattributed.map(|_| row.total())
        }),
    ]);
    for role in Role::ALL {
        let folded = detail == Detail::Folded && [Role::Emulator, Role::Helper].contains(&role);
        if !folded && any(&|row| row.role(role)) {
            columns.push(column(head(role, detail), decimals, &|row| row.role(role)));
        }
    }
    if detail == Detail::Folded {
        columns.push(column("rest", decimals, &rest));
    } else if any(&unattributed) {
        columns.push(column("other", decimals, &unattributed));
    }
    if any(&|row| row.wait) {
        let head = if rates { "WAIT" } else { "WAIT s" };
        columns.push(column(head, decimals, &|row| row.wait));
    }
    if any(&|row| row.quota_cores) {
        columns.push(column("QUOTA", 2, &|row| row.quota_cores));
        columns.push(column("THR%", 1, &|row| row.throttled_percent));
    }
    columns
}

/// Number of vCPUs; a marker for a VM that has ended.
fn vcpus(row: &Row) -> String {
    if row.running {
        row.vcpus.to_string()
    } else {
        "gone".to_owned()
    }
}

fn head(role: Role, detail: Detail) -> &'static str {
    match (role, detail) {
        (_, Detail::Full) | (Role::Vcpu | Role::Vhost, _) => role.name(),
        (Role::Virtiofsd, _) => "vfsd",
        (Role::Iothread, _) => "iothr",
        (Role::Emulator, _) => "emul",
        (Role::Helper, _) => "help",
    }
}

/// Cuts the middle out of a text that is wider than `width`: the ends of a pod's name
/// carry most information.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let available = width.saturating_sub(1);
    let end = take_width(text.chars().rev(), available / 2);
    let start = take_width(text.chars(), available - available / 2);
    let end: String = end.chars().rev().collect();
    format!("{start}…{end}")
}

/// The first `chars` that fit `width`.
fn take_width(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = String::new();
    for next in chars {
        taken.push(next);
        if taken.width() > width {
            taken.pop();
            break;
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn too_wide_name_is_shortened_in_the_middle() {
        for (text, width, short) in [
            ("shop/web-0", 10, "shop/web-0"),
            ("shop/checkout-7d9f8b6c5d-x2x4z", 12, "shop/c…x2x4z"),
            ("深い名前の仮想機械", 8, "深い…械"),
        ] {
            assert_eq!(shorten(text, width), short);
        }
    }
}
