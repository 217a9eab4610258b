//! One QEMU process from start to end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;

use virtlens_vmtest::report::{Line, MARK, Outcome, parse_line};

/// The program that emulates the machine, and where its own files are.
#[derive(Debug)]
pub(crate) struct Emulator {
    /// The command, up to the first argument that describes a machine.
    pub(crate) program: Vec<OsString>,
    /// Where its loadable parts are, if not where it was built to look.
    pub(crate) modules: Option<PathBuf>,
}

/// One machine to boot.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) name: &'a str,
    pub(crate) emulator: &'a Emulator,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    /// Kernel messages and everything else printed, each line with its second.
    pub(crate) log: &'a Path,
    /// QEMU is killed after this time.
    pub(crate) deadline: Duration,
}

/// What a boot left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The report, in order.
    pub(crate) lines: Vec<Line>,
    /// Why the machine was killed or died, if it did not end by itself.
    pub(crate) death: Option<String>,
    pub(crate) took: Duration,
}

/// Substrings of the console that mean the kernel is lost.
const FATAL: [&str; 3] = ["Kernel panic", "Oops:", "BUG: "];

/// Why the machine is of no use, if the line says that a self-test failed.
fn failure_of_rig(line: &Line) -> Option<String> {
    match line {
        Line::Test {
            name,
            outcome: Outcome::Fail(why),
        } if name.starts_with("rig::") => Some(format!("{name}: {why}")),
        _ => None,
    }
}

impl Machine<'_> {
    /// Boots, follows the console until the machine ends or must be killed.
    pub(crate) fn run(&self) -> anyhow::Result<Ran> {
        let began = Instant::now();
        let mut log = File::create(self.log).with_context(|| self.log.display().to_string())?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log.try_clone()?))
            .spawn()
            .context("cannot start QEMU: install the Debian package qemu-system-x86")?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let console = follow(stdout);
        let mut lines = Vec::new();
        let result = self.watch(&console, began, &mut log, &mut lines);
        // Ends the process in every case; it may already be gone.
        let _ = child.kill();
        child.wait()?;
        let death = result?;
        Ok(Ran {
            lines,
            death,
            took: began.elapsed(),
        })
    }

    /// Boots with the terminal as the machine's console.
    pub(crate) fn shell(&self) -> anyhow::Result<()> {
        let mut child: Child = self.command().spawn().context("cannot start QEMU")?;
        child.wait()?;
        Ok(())
    }

    fn watch(
        &self,
        console: &Receiver<String>,
        began: Instant,
        log: &mut File,
        lines: &mut Vec<Line>,
    ) -> anyhow::Result<Option<String>> {
        let mut fatal: Option<(String, Instant)> = None;
        loop {
            let limit = match &fatal {
                // The rest of the oops is worth having in the log.
                Some((_, seen)) => *seen + Duration::from_secs(2),
                None => began + self.deadline,
            };
            let text = match console.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(text) => text,
                Err(RecvTimeoutError::Disconnected) => {
                    let early = !lines.contains(&Line::End);
                    let why = || "QEMU ended before the report was complete".to_owned();
                    return Ok(fatal.map(|(text, _)| text).or_else(|| early.then(why)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let why = || format!("not done after {} s", self.deadline.as_secs());
                    return Ok(Some(fatal.map_or_else(why, |(text, _)| text)));
                }
            };
            let seconds = began.elapsed().as_secs_f64();
            writeln!(log, "{seconds:7.2} {text}")?;
            if let Some(line) = parse_line(&text) {
                println!("{}: {seconds:6.1} s {line}", self.name);
                lines.push(line);
                // A guest that hangs would make all that follows wait for it.
                if let Some(why) = lines.last().and_then(failure_of_rig) {
                    return Ok(Some(why));
                }
            } else if !text.contains(MARK) && FATAL.iter().any(|word| text.contains(word)) {
                fatal.get_or_insert((text, Instant::now()));
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.emulator.program[0]);
        command.args(&self.emulator.program[1..]);
        if let Some(modules) = &self.emulator.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
            .args([
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                // Without five-level page tables, on which nested paging is
                // emulated wrongly now and then.
                "max,+svm,-la57",
                "-smp",
                "2",
                "-m",
                "4096",
            ])
            .args(["-nographic", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initrd)
            // loglevel 3: an oops reaches the console, chatter does not cut
            // through the report.
            .args([
                "-append",
                "console=ttyS0 loglevel=3 panic=-1 oops=panic tsc=reliable",
            ])
            .arg("-virtfs")
            .arg("local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap");
        command
    }
}

/// Sends the lines of the console as they come; a thread, because a pipe has
/// no read deadline.
fn follow(stdout: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    receiver
}
