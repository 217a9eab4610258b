//! Compares whole outputs with reviewed files.

use std::fs;
use std::path::Path;

/// Compares `actual` with the file at `path`. `UPDATE_GOLDEN=1` writes the file instead,
/// for review of the diff.
///
/// # Panics
///
/// If they differ or the file cannot be read.
pub fn assert_golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(path, actual).expect("the golden file can be written");
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_else(|error| {
        panic!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display());
    });
    if expected == actual {
        return;
    }
    let line = expected
        .lines()
        .zip(actual.lines())
        .position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
    panic!(
        "{} differs from line {}:\n  file: {:?}\n  now:  {:?}\nUPDATE_GOLDEN=1 rewrites it",
        path.display(),
        line + 1,
        expected.lines().nth(line),
        actual.lines().nth(line),
    );
}
