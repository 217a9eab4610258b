//! Runs the planned test programs and converts their output to a report.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use virtlens_vmtest::plan::{Plan, Suite};
use virtlens_vmtest::report::{Line, MARK, Outcome, parse_libtest, parse_line};

use crate::kmsg::KernelLog;

/// Runs a suite and always reports it.
pub(crate) fn run(suite: &Suite, plan: &Plan, log: &mut KernelLog) {
    let (output, end) = match execute(suite, plan) {
        Ok(ran) => ran,
        Err(error) => (String::new(), Err(format!("{error:#}"))),
    };
    for line in output.lines().filter_map(parse_line) {
        if let Line::Feature(_) = line {
            println!("{line}");
        }
    }
    for (name, outcome) in outcomes(&output, end) {
        println!(
            "{}",
            Line::Test {
                name: format!("{}::{name}", suite.name),
                outcome
            }
        );
    }
    log.report(&suite.name);
    println!("{}", Line::Done(suite.name.clone()));
}

/// Outcome of each test, and of the program itself if it failed for another reason.
fn outcomes(output: &str, end: Result<(), String>) -> BTreeMap<String, Outcome> {
    let mut outcomes = parse_libtest(output);
    let failed = outcomes
        .values()
        .any(|outcome| matches!(outcome, Outcome::Fail(_)));
    match end {
        // libtest exits with an error if a test failed: not a second failure.
        Err(_) if failed => {}
        Err(why) => drop(outcomes.insert("program".to_owned(), Outcome::Fail(why))),
        Ok(()) if outcomes.is_empty() => drop(outcomes.insert("program".to_owned(), Outcome::Ok)),
        Ok(()) => {}
    }
    outcomes
}

/// `PATH` with the suite's own programs first.
fn search_path(suite: &Suite, plan: &Plan) -> anyhow::Result<OsString> {
    let usual = std::env::split_paths(&plan.path);
    let all = suite.paths.iter().cloned().chain(usual);
    std::env::join_paths(all).context("a directory of programs has a colon in its name")
}

/// Runs the program until its end or its deadline; returns its output and how it ended.
fn execute(suite: &Suite, plan: &Plan) -> anyhow::Result<(String, Result<(), String>)> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
        .arg(&suite.program)
        .args(&suite.args)
        .env("VIRTLENS_VM", &plan.kernel)
        .env("PATH", search_path(suite, plan)?)
        .env("RUST_BACKTRACE", "1")
        // Only backtraces of panics, not one more for each error in a message.
        .env("RUST_LIB_BACKTRACE", "0")
        .env("HOME", "/tmp")
        .envs(plan.loader.iter().map(|loader| ("VIRTLENS_LOADER", loader)))
        .current_dir(&suite.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| suite.program.display().to_string())?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    let limit = Instant::now() + Duration::from_secs(suite.deadline_s);
    let mut output = String::new();
    let in_time = loop {
        match lines.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                // Shown for the log, but not as lines of the report.
                println!("{}| {}", suite.name, line.replace(MARK, "vmtest"));
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    if !in_time {
        child.kill()?;
    }
    let status = child.wait()?;
    let end = match (in_time, status.success()) {
        (false, _) => Err(format!("not done after {} s", suite.deadline_s)),
        (true, false) => Err(format!("ended with {status}")),
        (true, true) => Ok(()),
    };
    Ok((output, end))
}

#[cfg(test)]
mod tests {
    use virtlens_vmtest::plan::Pods;

    use super::*;

    #[test]
    fn a_program_that_fails_without_a_failed_test_is_a_failure() {
        let outcomes = outcomes("test a ... ok\n", Err("ended with signal 11".into()));
        assert_eq!(
            outcomes["program"],
            Outcome::Fail("ended with signal 11".into())
        );
        assert_eq!(outcomes["a"], Outcome::Ok);
    }

    #[test]
    fn a_failed_test_is_counted_once() {
        let outcomes = outcomes("test a ... FAILED\n", Err("ended with 101".into()));
        assert_eq!(outcomes.len(), 1);
    }

    #[test]
    fn plain_program_is_judged_by_exit_status() {
        assert_eq!(outcomes("hello\n", Ok(()))["program"], Outcome::Ok);
    }

    #[test]
    fn hanging_program_is_killed_at_deadline() {
        let suite = Suite {
            name: "x".into(),
            program: "/bin/sleep".into(),
            args: vec!["600".into()],
            paths: Vec::new(),
            directory: "/".into(),
            deadline_s: 0,
        };
        let plan = Plan {
            kernel: "k".into(),
            pods: Pods::Unwanted,
            topology_guest: None,
            suites: Vec::new(),
            control_s: None,
            path: "/bin".into(),
            loader: None,
            shell: false,
        };
        let (_, end) = execute(&suite, &plan).expect("sleep starts");
        assert!(end.is_err());
    }
}
