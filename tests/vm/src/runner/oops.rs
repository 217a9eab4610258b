//! Fatal kernel messages in the console log of a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::Context;
use virtlens_vmtest::report::MARK;

/// Substrings of the console that mean that the kernel has failed.
const FATAL: [&str; 3] = ["Kernel panic", "Oops:", "BUG: "];

/// Lines kept before the message, which may show its cause.
const LINES_BEFORE: usize = 5;

/// Lines kept after it: a panic in an oops with all registers and the stack has 120.
const LINES_BEHIND: usize = 200;

/// Number of lines printed.
const LINES_SHOWN: usize = 40;

/// Whether this line means that the kernel has failed.
pub(crate) fn is_fatal(line: &str) -> bool {
    !line.contains(MARK) && FATAL.iter().any(|word| line.contains(word))
}

/// A fatal message, while its lines come.
#[derive(Debug)]
pub(crate) struct Oops {
    message: String,
    function: Option<String>,
    pub(crate) began: Instant,
}

impl Oops {
    pub(crate) fn new(message: String) -> Self {
        Self {
            message,
            function: None,
            began: Instant::now(),
        }
    }

    /// Reads the function in which the kernel was from the first line that shows the
    /// instruction pointer (`RIP: 0010:function+0x1f/0x90`; 0010 is the kernel's segment).
    pub(crate) fn follow(&mut self, line: &str) {
        if self.function.is_none()
            && let Some((_, behind)) = line.split_once("RIP: 0010:")
        {
            self.function = behind.split('+').next().map(str::to_owned);
        }
    }

    /// The message and the function.
    pub(crate) fn into_reason(self) -> String {
        match self.function {
            Some(function) => format!("{} in {function}", self.message),
            None => self.message,
        }
    }
}

/// Prints the oops in a machine's log, if there is one, and keeps it next to the log
/// under another name: the next run overwrites the log.
pub(crate) fn keep(log: &Path) -> anyhow::Result<Option<PathBuf>> {
    let text = fs::read(log).with_context(|| log.display().to_string())?;
    let Some(oops) = extract(&String::from_utf8_lossy(&text)) else {
        return Ok(None);
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let kept = log.with_file_name(format!("oops-{}.log", now.as_secs()));
    fs::write(&kept, &oops)?;
    for line in oops.lines().take(LINES_SHOWN) {
        println!("  {line}");
    }
    println!("  the whole is kept in {}", kept.display());
    Ok(Some(kept))
}

/// The lines around the first fatal line.
fn extract(console: &str) -> Option<String> {
    let lines: Vec<&str> = console.lines().collect();
    let at = lines.iter().position(|line| is_fatal(line))?;
    let (from, to) = (at.saturating_sub(LINES_BEFORE), at + LINES_BEHIND);
    let about = lines.get(from..to.min(lines.len()))?;
    Some(about.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_has_function_of_first_instruction_pointer_in_kernel() {
        let mut oops = Oops::new("BUG: soft lockup - CPU#1".to_owned());
        oops.follow("Call Trace:");
        oops.follow("RIP: 0033:0x7f12");
        oops.follow("RIP: 0010:smp_call_function_many_cond+0x12c/0x500");
        oops.follow("RIP: 0010:panic+0x1/0x2");
        let reason = "BUG: soft lockup - CPU#1 in smp_call_function_many_cond";
        assert_eq!(oops.into_reason(), reason);
        assert_eq!(Oops::new("Oops: 2".to_owned()).into_reason(), "Oops: 2");
    }

    #[test]
    fn console_without_oops_has_none() {
        let console = "1.0 VMTEST FAIL a::b said BUG: in a test\n2.0 all is well\n";
        assert_eq!(extract(console), None);
    }

    #[test]
    fn oops_is_extracted_with_surrounding_lines() {
        let before = "it boots\n".repeat(9);
        let panic = "Kernel panic - not syncing: corrupted stack end detected inside scheduler\n";
        let console = format!("{before}{panic}CPU: 1\nCall Trace:\n");
        let oops = extract(&console).expect("it panicked");
        assert_eq!(oops.matches("it boots").count(), LINES_BEFORE, "{oops}");
        assert!(oops.ends_with("CPU: 1\nCall Trace:\n"), "{oops}");
        assert!(oops.contains(panic));
    }
}
