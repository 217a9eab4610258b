//! How signals stop the agent.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{Agent, send, virtlens};
use crate::web::write_host;

/// Longer than any shutdown takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until the condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Loading blocks on a file of the host that is a pipe.
#[test]
fn signal_during_load_ends_agent() {
    let dir = tempfile::tempdir().expect("a directory");
    write_host(dir.path());
    let host = dir.path().join("host");
    let pipe = host.join("proc/sys/kernel/hostname");
    std::fs::remove_file(&pipe).expect("removed");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo starts").success());
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = virtlens()
            .args(["run", "--listen", "127.0.0.1:0", "--no-pin", "--root"])
            .arg(&host)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // The pipe opens for writing as soon as a reader exists; the reader then blocks.
        let mut writer = None;
        until("the agent reads the host", || {
            let opened = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&pipe);
            writer = opened.ok();
            writer.is_some()
        });
        send(&child, signal);
        let mut status = None;
        until("the agent has ended", || {
            status = child.try_wait().expect("it is our child");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(0));
        drop(writer);
    }
}

/// A client that sends half a request head keeps the agent alive until the head times
/// out.
#[test]
fn second_signal_ends_agent_that_drains_requests() {
    for signals in [[Signal::INT; 2], [Signal::TERM, Signal::INT]] {
        let agent = Agent::start(&[]);
        let mut client = agent.connect();
        client
            .write_all(b"GET /metrics HTTP/1.1\r\n")
            .expect("it reads");
        // Connections are accepted in order: the answer shows that the earlier one is
        // accepted.
        assert_eq!(agent.get("/healthz").status, 200);
        agent.signal(signals[0]);
        until("it no longer listens", || {
            TcpStream::connect(agent.address).is_err()
        });
        agent.signal(signals[1]);
        let (code, log) = agent.end();
        assert_eq!(code, Some(0), "{log:#?}");
        assert!(
            !log.iter().any(|line| line.contains("unanswered")),
            "it did not wait: {log:#?}"
        );
        let mut rest = Vec::new();
        drop(client.read_to_end(&mut rest));
        assert!(rest.is_empty(), "no answer was owed");
    }
}

#[test]
fn closed_stdout_of_table_ends_agent() {
    let mut agent = Agent::start(&["--table"]);
    assert!(agent.first_line().contains("cores used"));
    agent.close_stdout();
    let (code, log) = agent.end();
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(
        log.iter().any(|line| line.contains("stdout closed")),
        "{log:#?}"
    );
}
