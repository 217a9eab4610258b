//! Executable, command line and name of a process.

use std::fs;

use virtlens_model::facts::ProcessFact;
use virtlens_model::vocab::Comm;

use crate::error::Error;
use crate::root::{HostRoot, SMALL_FILE, read_as, read_start};

/// Reads a process's executable path, arguments and name.
///
/// A command line longer than 64 KiB is cut after the last whole argument.
///
/// # Errors
/// If the process is gone, or its arguments cannot be read.
pub fn process(root: &HostRoot, pid: u32) -> Result<ProcessFact, Error> {
    let comm = comm(root, pid)?;
    let (cmdline, cut) = read_start(&root.proc_of(pid, "cmdline"), SMALL_FILE)?;
    let mut args = parse_cmdline(&cmdline);
    if cut && cmdline.last() != Some(&0) {
        args.pop();
    }
    // Kernel threads have no executable, and the link requires CAP_SYS_PTRACE.
    let exe = fs::read_link(root.proc_of(pid, "exe")).ok().map(|file| {
        let file = file.to_string_lossy();
        // The VMM was upgraded while it runs.
        file.strip_suffix(" (deleted)").unwrap_or(&file).to_owned()
    });
    Ok(ProcessFact { exe, args, comm })
}

/// The name of a process's main thread.
pub(crate) fn comm(root: &HostRoot, pid: u32) -> Result<Comm, Error> {
    read_as(&root.proc_of(pid, "comm"), "a name", |bytes| {
        bytes.strip_suffix(b"\n").map(Comm::new)
    })
}

/// Parses a `cmdline` file, whose arguments each end with a NUL. Bytes that are not UTF-8
/// become U+FFFD.
pub fn parse_cmdline(bytes: &[u8]) -> Vec<String> {
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .strip_suffix(b"\0")
        .unwrap_or(bytes)
        .split(|byte| *byte == 0)
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse_cmdline;

    #[test]
    fn empty_arguments_are_kept() {
        assert_eq!(
            parse_cmdline(b"qemu\0-name\0\0x\0"),
            ["qemu", "-name", "", "x"]
        );
        assert_eq!(parse_cmdline(b"a\0\0"), ["a", ""]);
        assert_eq!(parse_cmdline(b"title set by hand"), ["title set by hand"]);
        assert_eq!(parse_cmdline(b"\xff\0"), ["\u{fffd}"]);
        assert!(parse_cmdline(b"").is_empty());
    }

    proptest! {
        #[test]
        fn arguments_round_trip(args in proptest::collection::vec("[^\0]{0,8}", 1..6)) {
            let mut bytes = args.join("\0").into_bytes();
            bytes.push(0);
            prop_assert_eq!(parse_cmdline(&bytes), args);
        }
    }
}
