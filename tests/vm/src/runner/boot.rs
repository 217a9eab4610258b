//! One QEMU process from start to end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use virtlens_vmtest::report::{HEARTBEAT, Line, Outcome, parse_line};

use crate::hardware::Hardware;
use crate::monitor::Monitor;
use crate::oops::{Oops, is_fatal};

/// The program that emulates the machine, and the path of its files.
#[derive(Debug)]
pub(crate) struct Emulator {
    /// The command, up to the first argument that describes a machine.
    pub(crate) program: Vec<OsString>,
    /// Directory of its loadable modules, if not the built-in one.
    pub(crate) modules: Option<PathBuf>,
}

/// One machine to boot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub(crate) name: &'a str,
    pub(crate) emulator: &'a Emulator,
    pub(crate) hardware: &'a Hardware,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    /// Kernel messages and all other output, each line with its time in seconds.
    pub(crate) log: &'a Path,
    /// Time to boot, to start pods and to run the self-tests.
    pub(crate) rig_deadline: Duration,
    /// Time for all suites. QEMU is killed when it is over.
    pub(crate) suites_deadline: Duration,
}

/// Time for a suite that is killed at its deadline to report it.
const GRACE: Duration = Duration::from_secs(15);

/// A CPU that has run no thread for this long counts as lost.
const LOST: Duration = Duration::from_secs(18 * HEARTBEAT.as_secs());

/// Time between two looks at a lost CPU.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Arguments of every machine's kernel. loglevel 3: an oops reaches the console, and minor
/// messages do not interrupt the report. A periodic tick, because an interrupt of the emulated
/// timer is lost now and then; a kernel that programs its timer for each event then never
/// wakes. A soft lockup is one of twice the threshold, because a busy host can stop an emulated
/// CPU for 20 s; it panics, because the stack is above the console's level otherwise.
const KERNEL_ARGS: &str = "console=ttyS0 loglevel=3 panic=-1 oops=panic tsc=reliable nohz=off \
                           highres=off watchdog_thresh=30 softlockup_panic=1";

/// Result of a boot.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The report, in order.
    pub(crate) lines: Vec<Line>,
    /// `None` if the machine ended regularly.
    pub(crate) death: Option<Death>,
    pub(crate) took: Duration,
    /// Part of `took` after the rig's self-tests: the time of the suites.
    pub(crate) suites_took: Duration,
}

/// Why a machine was killed or died.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    pub(crate) why: String,
    /// Whether only a defect of the emulator explains it, whatever ran in the machine.
    pub(crate) is_emulators: bool,
}

impl From<String> for Death {
    fn from(why: String) -> Self {
        Self {
            why,
            is_emulators: false,
        }
    }
}

/// The reason why the machine is unusable, if the line reports a failed self-test.
fn failure_of_rig(line: &Line) -> Option<String> {
    match line {
        Line::Test {
            name,
            outcome: Outcome::Fail(why),
        } if name.starts_with("rig::") => Some(format!("{name}: {why}")),
        _ => None,
    }
}

/// The last heartbeat of each CPU.
#[derive(Debug, Default)]
struct Heartbeats(BTreeMap<u32, Instant>);

impl Heartbeats {
    fn add(&mut self, cpu: u32, now: Instant) {
        self.0.insert(cpu, now);
    }

    /// The CPU whose last heartbeat is the oldest, if that is too old.
    fn lost(&self, now: Instant) -> Option<u32> {
        let (cpu, beaten) = self.0.iter().min_by_key(|(_, beaten)| **beaten)?;
        (now.saturating_duration_since(*beaten) > LOST).then_some(*cpu)
    }
}

/// Describes the lost CPU by QEMU's registers, which are appended to the log.
fn death_of_cpu(cpu: u32, monitor: &Monitor, log: &mut File) -> Death {
    let lost = format!("CPU {cpu} has run no thread for {} s", LOST.as_secs());
    let kept = monitor
        .look_at(cpu, BETWEEN_LOOKS)
        .and_then(|(stay, registers)| {
            writeln!(log, "{registers}")?;
            Ok(stay)
        });
    match kept {
        Ok(stay) => Death {
            why: format!("{lost}: {stay}"),
            is_emulators: stay.is_emulators(),
        },
        Err(error) => Death::from(format!("{lost}: {error:#}")),
    }
}

impl Machine<'_> {
    /// Boots and follows the console until the machine ends or must be killed.
    pub(crate) fn run(&self) -> anyhow::Result<Ran> {
        let began = Instant::now();
        let mut log = File::create(self.log).with_context(|| self.log.display().to_string())?;
        let monitor = Monitor::new(self.name);
        let mut child = self
            .command()
            .args(monitor.args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log.try_clone()?))
            .spawn()
            .context("cannot start QEMU: install the Debian package qemu-system-x86")?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let console = follow(stdout);
        let mut lines = Vec::new();
        let mut tested = None;
        let pulse = Pulse::of(child.id());
        let result = self.watch(&console, &monitor, pulse, began, &mut log, |line| {
            if line == Line::Done("rig".to_owned()) {
                tested = Some(Instant::now());
            }
            lines.push(line);
        });
        // Ends the process in every case; it may have ended already.
        let _ = child.kill();
        child.wait()?;
        let death = result?;
        Ok(Ran {
            lines,
            death,
            took: began.elapsed(),
            suites_took: tested.map_or(Duration::ZERO, |tested| tested.elapsed()),
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
        monitor: &Monitor,
        mut pulse: Pulse,
        began: Instant,
        log: &mut File,
        mut report: impl FnMut(Line),
    ) -> anyhow::Result<Option<Death>> {
        let mut fatal: Option<Oops> = None;
        let mut end = began + self.rig_deadline;
        let mut heartbeats = Heartbeats::default();
        let mut is_complete = false;
        loop {
            if fatal.is_none()
                && let Some(cpu) = heartbeats.lost(Instant::now())
            {
                return Ok(Some(death_of_cpu(cpu, monitor, log)));
            }
            let limit = match &fatal {
                // Leaves time for the rest of the oops to reach the log.
                Some(oops) => oops.began + Duration::from_secs(2),
                None => end,
            };
            let wait = limit.saturating_duration_since(Instant::now());
            let text = match console.recv_timeout(wait.min(Pulse::EVERY)) {
                Ok(text) => text,
                Err(RecvTimeoutError::Timeout) if Instant::now() < limit => {
                    if pulse.has_stopped() {
                        let why = "all CPUs sleep and nothing wakes them up".to_owned();
                        return Ok(Some(why.into()));
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let why = || "QEMU ended before the report was complete".to_owned();
                    let early = (!is_complete).then(why);
                    return Ok(fatal.map(Oops::into_reason).or(early).map(Death::from));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let why = || format!("not done after {} s", began.elapsed().as_secs());
                    return Ok(Some(fatal.map_or_else(why, Oops::into_reason).into()));
                }
            };
            let line = parse_line(&text);
            if let Some(Line::Alive(cpu)) = line {
                heartbeats.add(cpu, Instant::now());
                continue;
            }
            let seconds = began.elapsed().as_secs_f64();
            writeln!(log, "{seconds:7.2} {text}")?;
            if let Some(line) = line {
                println!("{}: {seconds:6.1} s {line}", self.name);
                if line == Line::Done("rig".to_owned()) {
                    end = Instant::now() + self.suites_deadline + GRACE;
                }
                is_complete |= line == Line::End;
                let failure = failure_of_rig(&line);
                report(line);
                // If a guest hangs, everything after it would wait for it.
                if failure.is_some() {
                    return Ok(failure.map(Death::from));
                }
            } else if let Some(oops) = &mut fatal {
                oops.follow(&text);
            } else if is_fatal(&text) {
                fatal = Some(Oops::new(text));
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
            .args(["-accel", "tcg,thread=multi"])
            .args(self.hardware.args())
            .args(["-nographic", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initrd)
            .arg("-append")
            .arg(format!("{KERNEL_ARGS}{}", self.hardware.kernel_args()))
            .arg("-virtfs")
            .arg("local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap");
        command
    }
}

/// Detects an emulator that does nothing: an idle machine has its ticks, one that lost an
/// interrupt uses no CPU time.
struct Pulse {
    stat: PathBuf,
    cpu_ticks: Option<u64>,
    felt: Instant,
}

impl Pulse {
    /// Length of an interval in which a machine must use some CPU time: an idle one uses
    /// some hundredths of a CPU.
    const EVERY: Duration = Duration::from_secs(20);

    fn of(pid: u32) -> Self {
        Self {
            stat: format!("/proc/{pid}/stat").into(),
            cpu_ticks: None,
            felt: Instant::now(),
        }
    }

    /// True if the process used less than 20 ms of CPU (2 ticks) since the last call, at
    /// least [`Pulse::EVERY`] ago.
    fn has_stopped(&mut self) -> bool {
        if self.felt.elapsed() < Self::EVERY {
            return false;
        }
        self.felt = Instant::now();
        let now = self.read();
        let before = std::mem::replace(&mut self.cpu_ticks, now);
        match (before, self.cpu_ticks) {
            (Some(before), Some(now)) => now.saturating_sub(before) < 2,
            _ => false,
        }
    }

    /// User and system time of all threads (proc(5): fields 14 and 15).
    fn read(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(&self.stat).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        Some(ticks()? + ticks()?)
    }
}

/// Sends the lines of the console as they come, from a thread, because a pipe has no read
/// deadline.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_oldest_heartbeat_is_lost() {
        let now = Instant::now();
        let mut heartbeats = Heartbeats::default();
        assert_eq!(heartbeats.lost(now), None, "it still boots");
        heartbeats.add(0, now);
        heartbeats.add(1, now);
        assert_eq!(heartbeats.lost(now + LOST), None);
        heartbeats.add(0, now + HEARTBEAT);
        assert_eq!(heartbeats.lost(now + LOST), None);
        assert_eq!(heartbeats.lost(now + LOST + HEARTBEAT), Some(1));
    }

    #[test]
    fn sleeping_process_uses_no_cpu_time() {
        let mut child = Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let pulse = Pulse::of(child.id());
        let ticks = (pulse.read(), Pulse::of(std::process::id()).read());
        child.kill().expect("it sleeps");
        child.wait().expect("it ends");
        assert!(ticks.0.is_some_and(|ticks| ticks < 2), "{ticks:?}");
        assert!(ticks.1.is_some(), "a process can read its own time");
        assert_eq!(Pulse::of(u32::MAX).read(), None);
    }
}
