//! `virtlens metrics`: the table of all metric families, as text, JSON or Markdown.

use serde::Serialize;
use virtlens_export::{Family, Profile, families, markdown};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A paragraph for each family.
    Text,
    /// An array of objects.
    Json,
    /// A table for the documentation.
    Markdown,
}

/// Returns the whole catalogue.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn text(output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Text => families().map(paragraph).collect::<Vec<_>>().join("\n"),
        Output::Json => {
            let entries: Vec<_> = families().map(Entry::from).collect();
            serde_json::to_string_pretty(&entries)? + "\n"
        }
        Output::Markdown => markdown(),
    })
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    unit: Option<&'static str>,
    profile: Option<&'static str>,
    labels: Vec<&'static str>,
    help: &'static str,
}

impl From<&'static Family> for Entry {
    fn from(family: &'static Family) -> Self {
        Self {
            name: family.name,
            kind: family.kind.name(),
            unit: family.unit,
            profile: family.profile.map(Profile::name),
            labels: family.labels(),
            help: family.help,
        }
    }
}

fn paragraph(family: &'static Family) -> String {
    let labels = match family.labels().join(", ") {
        labels if labels.is_empty() => String::new(),
        labels => format!("{{{labels}}}"),
    };
    let unit = family
        .unit
        .map_or(String::new(), |unit| format!(", {unit}"));
    let profile = family.profile.map_or_else(
        || "only if it is named".to_owned(),
        |profile| format!("profile {}", profile.name()),
    );
    format!(
        "{}{labels}\n    {}{unit}; {profile}\n    {}\n",
        family.name,
        family.kind.name(),
        family.help
    )
}
