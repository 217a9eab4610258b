//! Text for a terminal: colours, times, and names without control characters.

use jiff::Timestamp;

/// Style of output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Width of the terminal, columns; `None` = unlimited.
    pub width: Option<usize>,
    /// Whether ANSI colours are used.
    pub color: bool,
}

/// ANSI styles, or none.
#[derive(Clone, Copy)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    pub(crate) fn head(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Names come from the owners of guests, so control characters, which could move the
/// cursor, are replaced by U+FFFD.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A time, ns since 1970, in RFC 3339 to the second.
pub(crate) fn shown(unix_ns: u64) -> String {
    let seconds = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds);
    time.map_or_else(|_| "the end of time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_in_names_are_escaped() {
        assert_eq!(
            printable("a\x1b[2Jb\nc\u{9b}1m"),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}1m"
        );
    }
}
