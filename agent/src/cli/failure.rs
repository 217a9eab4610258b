//! How the program reports errors.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::config::ConfigError;

/// Whether clap's text is for stdout, or has the usage.
pub(super) fn is_usage_error(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// What clap says of an error over several lines, up to the usage.
pub(super) fn usage_error(error: &clap::Error, program: &str) -> anyhow::Error {
    let text = error.render().to_string();
    let words: Vec<_> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "))
        .collect();
    let text = format!("{} (see {program} --help)", words.join("; "));
    ConfigError::Usage(text).into()
}

/// Reports an error; 2 is for what the user has to say differently.
pub(super) fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("virtlens: {error:#}");
    ExitCode::from(if error.is::<ConfigError>() { 2 } else { 1 })
}
