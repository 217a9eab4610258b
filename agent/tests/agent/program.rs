//! Runs the real program as a black box.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpListener;

/// Longer than any answer takes; without it a lost answer would block the run.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server of the test in a thread; returns its address.
pub(crate) fn listening(
    serve: impl AsyncFnOnce(TcpListener) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let (listening, address) = channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            listening.send(address).expect("the test waits");
            serve(listener).await;
        });
    });
    (address.recv().expect("it listens"), thread)
}

/// The program in an environment without its own variables.
pub(crate) fn virtlens() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_virtlens"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VIRTLENS_") || name == "NODE_NAME" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program until it exits.
pub(crate) fn output(args: &[&str]) -> Output {
    virtlens().args(args).output().expect("the program starts")
}

/// The agent on a free port. It ends when this is dropped.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Locked, so that several threads may use one agent.
    log: Mutex<Receiver<String>>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Agent {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::run(
            virtlens()
                .args(["run", "--listen", "127.0.0.1:0", "--no-pin"])
                .args(args),
        )
    }

    /// Starts the agent with the test's own arguments and environment.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let (lines, log) = channel();
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| lines.send(line))
        });
        let mut seen = Vec::new();
        let address = loop {
            let line = log.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                panic!("the agent did not say where it listens; its log: {seen:#?}")
            });
            if let Some(address) = listen_of(&line) {
                break address;
            }
            seen.push(line);
        };
        Self {
            stdout: child.stdout.take().map(BufReader::new),
            child,
            address,
            log: Mutex::new(log),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first line on stdout.
    pub(crate) fn first_line(&mut self) -> String {
        let stdout = self.stdout.as_mut().expect("it is open");
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        line
    }

    /// Closes the reading end of stdout.
    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Calls `ask` until a line of the log contains these words.
    pub(crate) fn logged_while(&self, words: &str, ask: impl Fn()) -> String {
        let log = self.log.lock().expect("no test panicked with it");
        let mut seen = Vec::new();
        for _ in 0..200 {
            ask();
            match log.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(_) => {}
            }
        }
        panic!("the log does not say {words:?}; it says: {seen:#?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Sends SIGTERM; returns the exit code and the rest of the log.
    pub(crate) fn stop(self) -> (Option<i32>, Vec<String>) {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the exit; returns the exit code and the rest of the log.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().expect("it is our child");
        let log = self.log.lock().expect("no test panicked with it");
        (status.code(), log.iter().collect())
    }

    /// Sends a request and returns the whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let first = format!("{method} {path} HTTP/1.1");
        let head = [&[first.as_str(), "Host: test"], headers].concat();
        self.send(&(head.join("\r\n") + "\r\n\r\n"))
    }

    /// Sends a GET request without additional headers.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the agent listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    pub(crate) fn send(&self, request: &str) -> Answer {
        Answer::new(&self.send_raw(request))
    }

    /// Returns all bytes until the agent closes the connection.
    pub(crate) fn send_raw(&self, request: &str) -> Vec<u8> {
        let mut stream = self.connect();
        stream
            .write_all(request.as_bytes())
            .expect("the agent reads");
        let mut bytes = Vec::new();
        stream
            .read_to_end(&mut bytes)
            .expect("the agent answers and closes");
        bytes
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    // The child is not reaped yet, so its pid is not reused.
    kill_process(Pid::from_child(child), signal).ok();
}

fn listen_of(line: &str) -> Option<SocketAddr> {
    let text = match serde_json::from_str::<Value>(line) {
        Ok(line) => line["listen"].as_str()?.to_owned(),
        Err(_) => line.split_once(" listen=")?.1.split(' ').next()?.to_owned(),
    };
    Some(text.trim_matches('"').parse().expect("an address"))
}

/// The agent's answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a whole head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status");
        Self {
            status,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}
