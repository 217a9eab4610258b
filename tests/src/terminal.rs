//! Commands on a pseudo-terminal, recorded as asciicast v2
//! (<https://docs.asciinema.org/manual/asciicast/v2/>).

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::binary;
use serde_json::json;

/// Size of the terminal. Wider lines are hard to read in a browser.
const COLUMNS: usize = 100;
const ROWS: usize = 32;

/// Time between a command and its start.
const START: Duration = Duration::from_secs(1);

/// Time to read a full screen.
const READ: Duration = Duration::from_secs(5);

/// A command that runs longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);

const CLEAR: &str = "\x1b[2J\x1b[H";

/// A key of a full-screen program.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The bytes that it sends.
    pub text: &'static str,
    /// Time since the first output or the previous key.
    pub after: Duration,
}

/// A recording of commands that run one after another.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
    lines: Vec<String>,
    /// Time in the recording of the last event.
    now: Duration,
    /// Rows since the screen was cleared.
    row: usize,
}

impl Recording {
    /// A recording of commands that run in `folder` with these variables.
    pub fn new(folder: &Path, environment: Vec<(&'static str, String)>) -> Self {
        let header = json!({"version": 2, "width": COLUMNS, "height": ROWS});
        Self {
            folder: folder.to_owned(),
            environment,
            lines: vec![header.to_string()],
            now: Duration::ZERO,
            row: 0,
        }
    }

    /// The lines of the file.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Runs a command on a cleared screen until it ends.
    pub fn run(&mut self, command: &str, keys: &[Key]) {
        self.clear();
        self.print(&format!("$ {command}\r\n"));
        self.now += START;
        let mut child = self.on_terminal(command);
        let mut input = child.stdin.take().expect("it is piped");
        let output = chunks(child.stdout.take().expect("it is piped"));
        let end = Instant::now() + PATIENCE;
        let mut keys = keys.iter();
        let mut next = || keys.next().map(|key| (Instant::now() + key.after, key));
        let mut due = None;
        let (mut rest, mut last, mut is_first) = (Vec::new(), Instant::now(), true);
        loop {
            let until = due.map_or(end, |(at, _): (Instant, &Key)| at.min(end));
            let wait = until.saturating_duration_since(Instant::now());
            match output.recv_timeout(wait) {
                Ok(bytes) => {
                    self.now += last.elapsed();
                    last = Instant::now();
                    rest.extend(bytes);
                    self.print(&decode(&mut rest));
                    if std::mem::take(&mut is_first) {
                        due = next();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let key = due.filter(|_| Instant::now() < end);
                    let (_, key) = key.unwrap_or_else(|| panic!("{command} hangs"));
                    input
                        .write_all(key.text.as_bytes())
                        .expect("it reads its terminal");
                    due = next();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().expect("it has ended");
        // The doctor's status with findings.
        assert!(matches!(status.code(), Some(0 | 2)), "{command}: {status}");
        self.now += READ;
    }

    /// Starts a command on a terminal: `script` of util-linux creates it.
    fn on_terminal(&self, command: &str) -> std::process::Child {
        let virtlens = binary("virtlens");
        let path = std::env::var("PATH").expect("PATH is text");
        let path = format!("{}:{path}", virtlens.with_file_name("").display());
        let sized = format!("stty cols {COLUMNS} rows {ROWS} && exec {command}");
        Command::new("script")
            .args([
                "--quiet",
                "--flush",
                "--return",
                "--command",
                &sized,
                "/dev/null",
            ])
            .env("PATH", path)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is a part of every Debian")
    }

    /// Adds output. Text that exceeds a screen is shown page by page, with time to read
    /// each, since a command prints all of it at once.
    fn print(&mut self, text: &str) {
        // The converter has no second screen: clear the only one instead.
        let text = text.replace("\x1b[?1049h", &format!("\x1b[?1049h{CLEAR}"));
        for line in text.split_inclusive('\n') {
            if self.row == ROWS - 1 {
                self.now += READ;
                self.clear();
            }
            self.add(line);
            self.row += usize::from(line.ends_with('\n'));
        }
    }

    fn clear(&mut self) {
        self.add(CLEAR);
        self.row = 0;
    }

    fn add(&mut self, text: &str) {
        let event = json!([self.now.as_secs_f64(), "o", text]);
        self.lines.push(event.to_string());
    }
}

/// Sends the output as it comes, from a thread, because a pipe has no read deadline.
fn chunks(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Removes the whole characters from the front of `bytes`.
fn decode(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    let text = bytes.drain(..whole).collect();
    String::from_utf8(text).expect("it was checked")
}
