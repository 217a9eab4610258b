//! The real agent in a separate process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running `virtlens run`; killed on drop.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    stderr: BufReader<ChildStderr>,
    log: Vec<String>,
    /// Listen address: host and port.
    pub address: String,
}

impl Agent {
    /// Starts the agent and waits until it logs its listen address.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut log = Vec::new();
        let address = loop {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended before it listened: {log:#?}");
            let said = line.split_once(" listen=").map(|(_, rest)| {
                let address = rest.split_whitespace().next().unwrap_or_default();
                address.trim_matches('"').to_owned()
            });
            log.push(line);
            if let Some(address) = said {
                break address;
            }
        };
        Self {
            child,
            stderr,
            log,
            address,
        }
    }

    /// Pid of the agent.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the whole answer.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Stops the agent with SIGTERM; returns its exit code and its log.
    pub fn stop(&mut self) -> (Option<i32>, Vec<String>) {
        // The child is not reaped yet, so its pid is not reused.
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it lives");
        let status = self.child.wait().expect("it is our child");
        let rest = self.stderr.by_ref().lines().map_while(Result::ok);
        let log = self.log.drain(..).chain(rest).collect();
        (status.code(), log)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The test may have stopped it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
