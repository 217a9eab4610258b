//! Ends of a minivm: on command and when its test dies, and never before.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use virtlens_tests::{Minivm, need};

fn minivm(args: &[&str], stdin: Stdio) -> Child {
    let mut command = Command::new(virtlens_tests::binary("minivm"));
    let mut child = command
        .args(args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut ready = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut ready)
        .expect("a line");
    assert!(ready.contains("\"ready\":true"), "{ready}");
    child
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).expect("it is our child");
}

#[test]
fn end_of_stdin_sigterm_and_timeout_exit_cleanly() {
    if !need::all(
        "end_of_stdin_sigterm_and_timeout_exit_cleanly",
        [need::kvm()],
    ) {
        return;
    }
    let by_stdin = minivm(&["--start", "spin"], Stdio::null());
    let by_time = minivm(&["--for", "1"], Stdio::null());
    let by_sigterm = minivm(&["--detach-stdin"], Stdio::null());
    terminate(&by_sigterm);
    for mut child in [by_stdin, by_time, by_sigterm] {
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn minivm_outlives_starting_thread_but_not_process() {
    if !need::all(
        "minivm_outlives_starting_thread_but_not_process",
        [need::kvm()],
    ) {
        return;
    }
    let start = || Minivm::start(["--start", "halt"]);
    let mut vm = std::thread::spawn(start)
        .join()
        .expect("the thread ended well");
    vm.command("status");

    // Its stdin stays open here, so only its parent's death can end it.
    let script = format!(
        "exec 3<&0; {} <&3 & wait",
        virtlens_tests::binary("minivm").display()
    );
    let mut shell = Command::new("sh");
    let shell = shell
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut parent = shell.spawn().expect("a shell");
    let mut lines = BufReader::new(parent.stdout.take().expect("it is piped")).lines();
    lines.next().expect("the ready line").expect("text");
    parent.kill().expect("the shell lives");
    // The pipe ends when its last writer, the minivm, has ended.
    assert!(lines.next().is_none());
    drop(parent.wait());
}

#[test]
fn missing_kvm_error_has_cause_and_remedy() {
    let forbidden = std::fs::metadata("/dev/kvm").map_or(true, |kvm| kvm.mode() & 0o006 == 0);
    let locked = need::that("locked_kvm", forbidden, "everybody may open /dev/kvm");
    if !need::all(
        "missing_kvm_error_has_cause_and_remedy",
        [need::root(), locked],
    ) {
        return;
    }
    // In a directory that all users can reach: the target directory may be private.
    // Copied by cp, because a file written by this process stays busy as long as a child
    // that another test forks has it open.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let copy = dir.path().join("minivm");
    let copied = Command::new("cp")
        .arg(virtlens_tests::binary("minivm"))
        .arg(&copy)
        .status();
    assert!(copied.expect("cp runs").success());
    let (nobody, no_input) = (65534, Stdio::null());
    let output = Command::new(copy)
        .uid(nobody)
        .stdin(no_input)
        .output()
        .expect("it runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("minivm: cannot open /dev/kvm: "),
        "{stderr}"
    );
    assert!(stderr.contains("module kvm_intel or kvm_amd"), "{stderr}");
}
