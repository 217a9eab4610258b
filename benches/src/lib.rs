//! Parts that several benchmarks share.

#![forbid(unsafe_code)]

pub mod machine;

use std::fs;
use std::path::Path;

/// Marks the begin of the saved table in a page.
const BEGIN: &str = "<!-- table: written by `--save` -->";
const END: &str = "<!-- end of table -->";

/// Replaces the saved table of a page.
///
/// # Panics
///
/// If the page cannot be read or written, or lacks the markers of a table.
pub fn save(page: &Path, table: &str) {
    let text = fs::read_to_string(page).expect("the page can be read");
    let (before, rest) = text.split_once(BEGIN).expect("it has the first marker");
    let (_, after) = rest.split_once(END).expect("it has the second marker");
    let text = format!("{before}{BEGIN}\n\n{table}\n{END}{after}");
    fs::write(page, text).expect("the page can be written");
}
