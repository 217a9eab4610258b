//! Errors are reported in one line with a remedy.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use crate::program::{output, virtlens};

pub(crate) fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.starts_with("virtlens: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word} is not in {stderr}");
    }
}

#[test]
fn busy_port_error_suggests_listen_option() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    assert_fails(
        &output(&["run", "--listen", &address]),
        1,
        &[&address, "in use", "--listen"],
    );
}

#[test]
fn invalid_arguments_are_usage_errors() {
    for (args, words) in [
        (
            &["run", "--lisen", ":1"][..],
            &["--lisen", "--listen", "--help"][..],
        ),
        (&["run", "--listen", "here"], &["here", "0.0.0.0:9877"]),
        (&["run", "--min-age", "5"], &["5", "500ms"]),
        (&["rum"], &["rum", "run"]),
        (&["snapshot", "-o", "xml"], &["xml", "table", "json"]),
        (&["snapshot", "--at", "now"], &["--at", "--from"]),
        (&["snapshot", "--at", "soon"], &["soon", "10 min ago"]),
        (&["doctor", "--until", "-5m"], &["--until", "--from"]),
        (&["incidents"], &["virtlens incidents", "--from"]),
        (&["incidents", "show"], &["ID", "--help"]),
        (
            &["run", "--record", "/nowhere", "--record-interval", "1ms"],
            &["--record-interval", "1s or more"],
        ),
        (&["snapshot", "--log-level", "loud"], &["loud", "debug"]),
        (
            &["check", "--config", "/nowhere/virtlens.yaml"],
            &["/nowhere/virtlens.yaml"],
        ),
    ] {
        assert_fails(&output(args), 2, words);
    }
}

#[test]
fn invalid_environment_variable_error_names_it() {
    let output = virtlens()
        .arg("check")
        .env("VIRTLENS_LINGER", "long")
        .output();
    assert_fails(
        &output.expect("it starts"),
        2,
        &["VIRTLENS_LINGER", "long", "1h"],
    );
}

#[test]
fn invalid_config_file_error_has_path_and_line() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "linger: 1m\nport: 1\n").expect("it can be written");
    let path = file.path().to_str().expect("text");
    assert_fails(
        &output(&["run", "--config", path]),
        2,
        &[path, "port", "line 2"],
    );
    let output = virtlens().arg("run").env("VIRTLENS_CONFIG", path).output();
    assert_fails(&output.expect("it starts"), 2, &[path, "port", "line 2"]);
}

#[test]
fn run_without_root_warns_once() {
    // In a directory where an unprivileged user can run it: the build directory may be
    // inaccessible.
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("virtlens");
    // A copy made by this process would be open for writing in the children that other
    // tests start meanwhile, and such a file cannot be executed (ETXTBSY).
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_virtlens")).arg(&program);
    assert!(copy.status().expect("cp starts").success(), "{copy:?}");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("open");

    let mut command = Command::new(&program);
    if virtlens::process::is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    let output = command.arg("snapshot").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(
        stderr
            .lines()
            .filter(|line| line.contains("not running as root"))
            .count(),
        1,
        "{stderr}"
    );
}

#[test]
fn missing_and_empty_recordings_are_named() {
    let missing = output(&["doctor", "--from", "/nowhere/records"]);
    assert_fails(&missing, 1, &["cannot read", "/nowhere/records"]);
    let empty = tempfile::tempdir().expect("there is room");
    let path = empty.path().to_str().expect("text");
    assert_fails(
        &output(&["snapshot", "--from", path]),
        1,
        &["no reading", path],
    );
}
