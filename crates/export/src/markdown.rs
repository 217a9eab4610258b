//! The table of all families for the documentation.

use std::fmt::Write as _;

use crate::families::families;
use crate::profile::Profile;

/// All families as a Markdown table.
pub fn markdown() -> String {
    let mut out = String::from(
        "| Metric | Type | Unit | Profile | Labels | Meaning |\n|---|---|---|---|---|---|\n",
    );
    for family in families() {
        let labels: Vec<_> = family
            .labels()
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            family.name,
            family.kind.name(),
            family.unit.unwrap_or("-"),
            family.profile.map_or("-", Profile::name),
            if labels.is_empty() {
                "-".to_owned()
            } else {
                labels.join(", ")
            },
            family.help,
        )
        .expect("writing to a String cannot fail");
    }
    out
}
