//! Text on stdout.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::term::Style;

/// Style of tables on stdout: coloured only on a terminal, and only if `NO_COLOR` is
/// unset or empty (no-color.org).
pub(crate) fn table_style() -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let stdout = std::io::stdout();
    Style {
        width: terminal_size::terminal_size_of(&stdout).map(|(width, _)| width.0.into()),
        color: stdout.is_terminal() && !no_color,
    }
}

/// Prints to stdout. A reader that closes the pipe early (`| head`) does not cause an
/// error.
///
/// # Errors
///
/// If stdout fails for another reason, such as a full disk.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    print_while_read(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints to stdout; returns false once nobody reads it any more.
///
/// # Errors
///
/// As for [`print()`].
pub(crate) fn print_while_read(text: &str) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
