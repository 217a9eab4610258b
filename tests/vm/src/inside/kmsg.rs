//! Errors in the kernel's log that do not stop the machine.
//!
//! The console shows only critical messages (`loglevel=3`). "BUG: scheduling while
//! atomic" and "BUG: sleeping function called from invalid context" have the level of an
//! error (`pr_err`, kernel/sched/core.c), so they are read here.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use virtlens_vmtest::report::{Line, MARK, Outcome};

/// Prefix of the kernel's messages about its own errors, lockdep's included.
const ERROR: &str = "BUG: ";

/// Upper bound of a record of /dev/kmsg (`PRINTK_MESSAGE_MAX`, kernel/printk/internal.h).
const RECORD_BYTES: usize = 8192;

/// Number of lines shown from an error on: its call trace.
const LINES_SHOWN: usize = 60;

/// The unread part of the kernel's log.
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// Opens the log at its begin.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/kmsg");
        Ok(Self(file.context("cannot open /dev/kmsg")?))
    }

    /// Fails `suite` if the kernel has logged an error since the call before.
    pub(crate) fn report(&mut self, suite: &str) {
        let (lines, lost) = self.read();
        println!(
            "kernel log of {suite}: {} records, {lost} gaps",
            lines.len()
        );
        let Some(why) = show_error(&lines) else {
            return;
        };
        let name = format!("{suite}::kernel_log");
        let outcome = Outcome::Fail(why);
        println!("{}", Line::Test { name, outcome });
    }

    /// The messages since the last call, and how often some were overwritten before they
    /// were read.
    fn read(&mut self) -> (Vec<String>, usize) {
        let (mut lines, mut lost) = (Vec::new(), 0);
        let mut record = [0; RECORD_BYTES];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(size) => {
                    let text = String::from_utf8_lossy(&record[..size]);
                    lines.extend(message(&text).map(str::to_owned));
                }
                // EPIPE: the next read continues with the oldest record.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => lost += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        (lines, lost)
    }
}

/// The text of a record, `LEVEL,SEQUENCE,MICROSECONDS,FLAGS;TEXT`
/// (Documentation/ABI/testing/dev-kmsg).
fn message(record: &str) -> Option<&str> {
    let (_, text) = record.split_once(';')?;
    text.lines().next()
}

fn is_error(line: &str) -> bool {
    let mut found = line.match_indices(ERROR);
    // A driver's "DEBUG: " does not count.
    found.any(|(at, _)| !line[..at].ends_with(char::is_alphanumeric))
}

/// Returns the first line with an error. Prints it and the following lines to the
/// console, with a mark so that the runner does not take them for the end of the machine.
fn show_error(lines: &[String]) -> Option<String> {
    let at = lines.iter().position(|line| is_error(line))?;
    for line in lines.iter().skip(at).take(LINES_SHOWN) {
        println!("{MARK} kmsg {line}");
    }
    let count = lines.iter().filter(|line| is_error(line)).count();
    Some(format!("{}; {count} such lines", lines[at].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kmsg_text_follows_semicolon() {
        let record = "3,339,5140900,-;BUG: scheduling while atomic: a;b/1/0x2\n SUBSYSTEM=acpi\n";
        let text = message(record);
        assert_eq!(text, Some("BUG: scheduling while atomic: a;b/1/0x2"));
        assert_eq!(message("no record"), None);
    }

    #[test]
    fn kernel_errors_are_found_among_other_messages() {
        let quiet = ["kvm: Nested Virtualization enabled", "DEBUG: nothing"];
        assert_eq!(show_error(&quiet.map(str::to_owned)), None);
        let text = "BUG: sleeping function called from invalid context at x.c:1";
        let lines = [quiet[0], text, "Call Trace:", text].map(str::to_owned);
        let why = show_error(&lines).expect("an error");
        assert_eq!(why, format!("{text}; 2 such lines"));
    }
}
