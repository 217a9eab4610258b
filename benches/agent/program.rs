//! The program as released: `virtlens run` and a scraper.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, set_parent_process_death_signal, waitid,
};
use virtlens_probe::loader::Loader;
use virtlens_tests::process::{Schedstat, tids};

/// The request that Prometheus 3 sends.
const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n\
    Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2\r\n\
    Connection: close\r\n\r\n";

/// Time without a scrape.
const UNSCRAPED: Duration = Duration::from_secs(10);

/// A running `virtlens run`; killed on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    address: String,
    /// Wall time from the start of the process to its first reading, ms.
    pub(crate) start_ms: f64,
    /// CPU time of the start, ms.
    pub(crate) start_cpu_ms: f64,
    // Kept open, because logging fails on a closed pipe.
    _log: BufReader<ChildStderr>,
}

impl Program {
    /// Starts the program and waits until it serves.
    pub(crate) fn start(path: &Path, loader: Loader) -> Self {
        let start = Instant::now();
        let mut command = Command::new(path);
        command
            .args([
                "run",
                "--no-pin",
                "--listen",
                "127.0.0.1:0",
                "--min-age",
                "0s",
                "--log-format",
                "logfmt",
                "--loader",
                loader.name(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let bind = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: prctl is allowed between fork and exec.
        unsafe { command.pre_exec(bind) };
        let mut child = command.spawn().expect("virtlens can be started");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            log.read_line(&mut line).expect("its log can be read");
            assert!(!line.is_empty(), "virtlens ended before it served");
            if let Some(address) = line
                .split_whitespace()
                .find_map(|pair| pair.strip_prefix("listen="))
            {
                break address.to_owned();
            }
        };
        Self {
            start_ms: start.elapsed().as_secs_f64() * 1e3,
            start_cpu_ms: cpu_ms(child.id()),
            child,
            address,
            _log: log,
        }
    }

    /// Scrapes once; returns the size of the body as sent.
    pub(crate) fn scrape(&self) -> usize {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(SCRAPE).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "it answers well");
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
        answer.len() - head.expect("an answer has a head") - 4
    }

    /// CPU time of all its threads, ms.
    pub(crate) fn cpu_ms(&self) -> f64 {
        cpu_ms(self.child.id())
    }

    /// Resident memory, MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let kib: u32 = status(&format!("/proc/{}/status", self.child.id()), "VmRSS:");
        f64::from(kib) / 1024.0
    }

    /// Number of wake-ups of its threads without requests.
    pub(crate) fn wake_ups(&self) -> u32 {
        // The work that the last answer left.
        sleep(Duration::from_secs(1));
        let before = self.sleeps();
        sleep(UNSCRAPED);
        self.sleeps() - before
    }

    /// Number of times that its threads went to sleep, which equals their wake-ups.
    fn sleeps(&self) -> u32 {
        let pid = self.child.id();
        let of_one = |tid| {
            status(
                &format!("/proc/{pid}/task/{tid}/status"),
                "voluntary_ctxt_switches:",
            )
        };
        tids(pid).into_iter().map(of_one).sum()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The commands whose CPU time is measured, with the shortest intervals.
pub(crate) const COMMANDS: [&[&str]; 4] = [
    &["check"],
    &["snapshot"],
    &["topology", "--window", "10ms"],
    &["doctor", "--for", "1s"],
];

/// CPU time of one run of a command, ms.
pub(crate) fn command_ms(path: &Path, loader: Loader, args: &[&str]) -> f64 {
    let mut command = Command::new(path);
    command.args(args).args(["--loader", loader.name()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    let mut child = child.expect("virtlens can be started");
    // The times of a zombie can still be read.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), ended).expect("it is our child");
    let ms = cpu_ms(child.id());
    child.wait().expect("it is our child");
    ms
}

/// Whether a program is static: an ELF file without `PT_INTERP`.
pub(crate) fn is_static(path: &Path) -> bool {
    const PT_INTERP: u8 = 3;
    let elf = fs::read(path).expect("the program can be read");
    // e_phoff, e_phentsize and e_phnum of elf64_hdr (include/uapi/linux/elf.h).
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let (first, size, count) = (half(32), half(54), half(56));
    (0..count).all(|nth| elf[first + nth * size] != PT_INTERP)
}

fn cpu_ms(pid: u32) -> f64 {
    Duration::from_nanos(Schedstat::sum(pid).cpu_ns).as_secs_f64() * 1e3
}

fn status(path: &str, field: &str) -> u32 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(field));
    lines
        .next()
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("{path} has no {field}"))
}
