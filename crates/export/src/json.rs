//! A snapshot as JSON, for programs.

use virtlens_model::snapshot::Snapshot;

/// The JSON of a snapshot, indented, with a final newline.
///
/// # Errors
///
/// If a value has no JSON, which would be a bug.
pub fn json(snapshot: &Snapshot) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(snapshot)? + "\n")
}

/// The JSON of a snapshot as one line, with a final newline.
///
/// # Errors
///
/// If a value has no JSON, which would be a bug.
pub fn json_line(snapshot: &Snapshot) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(snapshot)? + "\n")
}
