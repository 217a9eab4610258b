//! Results of one line each on the VM's console.
//!
//! A serial console is the only channel that survives a kernel crash. Each result is one
//! line of it, with a mark that distinguishes it from kernel messages:
//!
//! ```text
//! VMTEST ok kernel::migration_is_charged
//! VMTEST FAIL kernel::quota_is_read reason to the end of the line
//! VMTEST SKIP kernel::balloon_report reason to the end of the line
//! VMTEST FEATURE task_storage
//! VMTEST DONE kernel
//! VMTEST ALIVE 1
//! VMTEST END
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The word that starts every line of the report.
pub const MARK: &str = "VMTEST";

/// Name of the suite of a control run, a boot without an agent after a machine broke.
pub const CONTROL: &str = "control";

/// Interval at which a machine reports each CPU that is [alive](Line::Alive).
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A test's outcome.
    Test {
        /// `suite::test`, without blanks.
        name: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// This kernel has this feature.
    Feature(String),
    /// All tests of this suite have been reported.
    Done(String),
    /// A thread has run on this CPU.
    Alive(u32),
    /// The whole plan is done; without this line the VM died early.
    End,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Ok,
    /// It failed, and why.
    Fail(String),
    /// It did not run, and why; `kernels.toml` must allow it.
    Skip(String),
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test {
                name,
                outcome: Outcome::Ok,
            } => write!(out, "{MARK} ok {name}"),
            Self::Test {
                name,
                outcome: Outcome::Fail(why),
            } => {
                write!(out, "{MARK} FAIL {name} {}", one_line(why))
            }
            Self::Test {
                name,
                outcome: Outcome::Skip(why),
            } => {
                write!(out, "{MARK} SKIP {name} {}", one_line(why))
            }
            Self::Feature(name) => write!(out, "{MARK} FEATURE {name}"),
            Self::Done(suite) => write!(out, "{MARK} DONE {suite}"),
            Self::Alive(cpu) => write!(out, "{MARK} ALIVE {cpu}"),
            Self::End => write!(out, "{MARK} END"),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses a line of console output; `None` if it is not part of the report.
///
/// The mark may be anywhere in the line: a kernel message without a newline may precede
/// it on a serial console.
pub fn parse_line(text: &str) -> Option<Line> {
    let (_, rest) = text.split_once(MARK)?;
    let mut words = rest.trim().splitn(3, ' ');
    let (verb, name, why) = (words.next()?, words.next(), words.next());
    let test = |outcome| {
        Some(Line::Test {
            name: name?.to_owned(),
            outcome,
        })
    };
    let why = || why.unwrap_or("no reason given").trim().to_owned();
    match verb {
        "ok" => test(Outcome::Ok),
        "FAIL" => test(Outcome::Fail(why())),
        "SKIP" => test(Outcome::Skip(why())),
        "FEATURE" => Some(Line::Feature(name?.to_owned())),
        "DONE" => Some(Line::Done(name?.to_owned())),
        "ALIVE" => Some(Line::Alive(name?.parse().ok()?)),
        "END" => Some(Line::End),
        _ => None,
    }
}

/// Parses the output of a libtest program under `--show-output` into one outcome per
/// test, by name.
///
/// libtest cannot skip a running test. So a test that cannot run prints `VMTEST SKIP <its
/// name> <reason>` and returns; that line overrides the `ok`. An ignored test is a skip,
/// too. The reason of a failed test is its panic message.
pub fn parse_libtest(output: &str) -> BTreeMap<String, Outcome> {
    let panics = panics(output);
    let mut outcomes = BTreeMap::new();
    // A test whose line has the output of a process instead of a verdict.
    let mut open: Option<&str> = None;
    for line in output.lines() {
        if let Some(Line::Test { name, outcome }) = parse_line(line) {
            outcomes.insert(name, outcome);
            continue;
        }
        let begun = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "));
        let (name, verdict) = match (begun, open) {
            // "should panic" tests have a suffix: "name - should panic".
            (Some((name, verdict)), _) => (name.split(' ').next().unwrap_or(name), verdict),
            (None, Some(name)) if ["ok", "FAILED"].contains(&line) => (name, line),
            _ => continue,
        };
        open = None;
        let outcome = match verdict.split(',').next().unwrap_or_default().trim() {
            "ok" => Outcome::Ok,
            "ignored" => Outcome::Skip(format!("ignored: {verdict}")),
            _ => {
                open = (verdict != "FAILED").then_some(name);
                let why = panics.get(name).cloned();
                Outcome::Fail(why.unwrap_or_else(|| verdict.to_owned()))
            }
        };
        outcomes.insert(name.to_owned(), outcome);
    }
    outcomes
}

/// Panic messages by test name: libtest runs a test in a thread with the test's name, and
/// std prints `thread 'NAME' (TID) panicked at PLACE:`, then the message, then a note.
fn panics(output: &str) -> BTreeMap<&str, String> {
    let mut panics: BTreeMap<&str, String> = BTreeMap::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        let Some((name, place)) = line
            .strip_prefix("thread '")
            .and_then(|rest| rest.split_once('\''))
            .and_then(|(name, rest)| Some((name, rest.split_once("panicked at ")?.1)))
        else {
            continue;
        };
        let message: Vec<&str> = lines
            .by_ref()
            .take_while(|line| !line.starts_with("note: ") && *line != "stack backtrace:")
            .collect();
        let why = format!("{} ({})", message.join(" "), place.trim_end_matches(':'));
        // A second panic, of a destructor, is a consequence of the first.
        panics.entry(name).or_insert(why);
    }
    panics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lines_round_trip_through_console() {
        let test = |outcome| Line::Test {
            name: "kernel::x".into(),
            outcome,
        };
        let lines = [
            test(Outcome::Ok),
            test(Outcome::Fail("left 1 right 2".into())),
            test(Outcome::Skip("no fentry".into())),
            Line::Feature("task_storage".into()),
            Line::Done("kernel".into()),
            Line::Alive(1),
            Line::End,
        ];
        for line in lines {
            let console = format!("[   12.3] clocksource: {line}\r");
            assert_eq!(parse_line(&console), Some(line));
        }
    }

    #[test]
    fn other_console_output_is_ignored() {
        assert_eq!(parse_line("[    0.1] Linux version 6.1"), None);
        assert_eq!(parse_line("VMTEST whatever this is"), None);
        assert_eq!(parse_line("VMTEST ok"), None);
    }

    #[test]
    fn multi_line_reason_becomes_one_line() {
        let line = Line::Test {
            name: "a".into(),
            outcome: Outcome::Fail("x\n  y".into()),
        };
        assert_eq!(line.to_string(), "VMTEST FAIL a x y");
    }

    #[test]
    fn verdict_behind_output_of_a_process_counts() {
        let output = "test a ... qemu: cancelled\nqemu: again\nok\ntest b ... qemu: gone\nFAILED\n\
            test c ... qemu: no verdict\ntest d ... ok\nok\n";
        let outcomes = parse_libtest(output);
        assert_eq!(outcomes["a"], Outcome::Ok);
        assert_eq!(outcomes["b"], Outcome::Fail("FAILED".into()));
        assert_eq!(outcomes["c"], Outcome::Fail("qemu: no verdict".into()));
        assert_eq!(outcomes["d"], Outcome::Ok);
    }

    #[test]
    fn failure_has_panic_message() {
        let output = "test a ... FAILED\ntest b ... FAILED\n\nfailures:\n\n---- a stdout ----\n\n\
            thread 'a' (311) panicked at tests/x.rs:7:9:\n\
            assertion failed\n  left: 1\n right: 2\nstack backtrace:\n   0: rust_begin_unwind\n\
            ---- b stdout ----\nno panic here\n";
        let outcomes = parse_libtest(output);
        assert_eq!(
            outcomes["a"],
            Outcome::Fail("assertion failed   left: 1  right: 2 (tests/x.rs:7:9)".into())
        );
        assert_eq!(outcomes["b"], Outcome::Fail("FAILED".into()));
    }

    #[test]
    fn a_skip_printed_by_a_passing_test_overrides_its_ok() {
        let output = "running 4 tests\n\
            test a ... ok\n\
            test b ... ok\n\
            test c ... ignored, needs a disk\n\
            test d - should panic ... FAILED\n\
            \nsuccesses:\n\n---- b stdout ----\nVMTEST SKIP b no module BTF\n";
        let outcomes = parse_libtest(output);
        assert_eq!(outcomes["a"], Outcome::Ok);
        assert_eq!(outcomes["b"], Outcome::Skip("no module BTF".into()));
        assert_eq!(
            outcomes["c"],
            Outcome::Skip("ignored: ignored, needs a disk".into())
        );
        assert_eq!(outcomes["d"], Outcome::Fail("FAILED".into()));
    }
}
