//! Debian's promtool (package prometheus) as the checker of an exposition.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::need;

/// The program, found in `PATH`.
pub(crate) const PROGRAM: &str = "promtool";

/// Runs promtool, fails unless it succeeds, and returns its output. Without promtool the
/// test is skipped, if that is allowed: `None`.
pub fn run(test: &str, args: &[&str]) -> Option<String> {
    if !need::all(test, [need::promtool()]) {
        return None;
    }
    let output = Command::new(PROGRAM).args(args).output();
    let output = output.expect("promtool is in PATH");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "promtool {args:?}: {said}");
    Some(said)
}

/// Fails the test named `test` if promtool reports a problem in `exposition`, in the text
/// format. Without promtool the test is skipped, if that is allowed.
pub fn assert_accepts(test: &str, exposition: &[u8]) {
    if !need::all(test, [need::promtool()]) {
        return;
    }
    let mut promtool = Command::new(PROGRAM)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is in PATH");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(exposition).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
