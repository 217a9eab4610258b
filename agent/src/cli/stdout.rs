//! Text on stdout.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::term::Style;

/// How tables are drawn on stdout: coloured only on a terminal, and not where
/// `NO_COLOR` is set to anything (no-color.org).
pub(crate) fn table_style() -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let stdout = std::io::stdout();
    Style {
        width: terminal_size::terminal_size_of(&stdout).map(|(width, _)| width.0.into()),
        color: stdout.is_terminal() && !no_color,
    }
}

/// Prints to stdout. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
///
/// When stdout takes no more for another reason, as a full disk.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    print_while_read(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The same; false once nobody reads stdout any more.
///
/// # Errors
///
/// As of [`print`].
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
