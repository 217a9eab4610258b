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
use virtlens_tests::process::{Schedstat, comm, tids};

/// The request that Prometheus 3 sends.
const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n\
    Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2\r\n\
    Connection: close\r\n\r\n";

/// A request that accepts no compression.
const PLAIN: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";

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
        Self::start_with(path, loader, &[])
    }

    /// Starts the program with more arguments and waits until it serves.
    pub(crate) fn start_with(path: &Path, loader: Loader, more: &[&str]) -> Self {
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
            .args(more)
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
        self.request(SCRAPE).len()
    }

    /// Sends a request; returns the body of the answer.
    fn request(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(request).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "it answers well");
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
        answer.split_off(head.expect("an answer has a head") + 4)
    }

    /// CPU time of a scrape, the mean of `count`, ms.
    pub(crate) fn scrape_ms(&self, count: u32) -> f64 {
        let before_ms = self.cpu_ms();
        for _ in 0..count {
            self.scrape();
        }
        (self.cpu_ms() - before_ms) / f64::from(count)
    }

    /// Number of VMs that it shows.
    pub(crate) fn vms(&self) -> u32 {
        let vms = series(&self.plain(), "virtlens_vm_info").count();
        u32::try_from(vms).expect("at most thousands")
    }

    /// Its losses that are not 0, by reason.
    pub(crate) fn losses(&self) -> Vec<String> {
        let text = self.plain();
        let lost = series(&text, "virtlens_dropped_total").filter(|(_, value)| *value != "0");
        lost.map(|(labels, value)| format!("{labels} {value}"))
            .collect()
    }

    /// The metrics as text, without compression.
    fn plain(&self) -> String {
        String::from_utf8(self.request(PLAIN)).expect("it is text")
    }

    /// Number of its programs that are attached to a hook of the kernel: an iterator is
    /// attached to none (`bpf_link_show_fdinfo`, `kernel/bpf/syscall.c`).
    pub(crate) fn hooks(&self) -> usize {
        let folder = format!("/proc/{}/fdinfo", self.child.id());
        let files = fs::read_dir(&folder).expect("it is our child").flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        let is_hook = |text: &String| {
            let mut lines = text.lines();
            let kind = lines.find_map(|line| line.strip_prefix("link_type:"));
            kind.is_some_and(|kind| kind.trim() != "iter")
        };
        texts.filter(is_hook).count()
    }

    /// CPU time of all its threads, ms.
    pub(crate) fn cpu_ms(&self) -> f64 {
        cpu_ms(self.child.id())
    }

    /// CPU time of its threads with a name, ms.
    pub(crate) fn cpu_ms_of(&self, name: &str) -> f64 {
        let pid = self.child.id();
        let tids = tids(pid).into_iter();
        let named = tids.filter(|tid| comm(pid, *tid).as_deref() == Some(name));
        let times = named.filter_map(|tid| Schedstat::read(pid, tid));
        Duration::from_nanos(times.map(|times| times.cpu_ns).sum()).as_secs_f64() * 1e3
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

/// Labels and value of each series of a metric.
fn series<'t>(text: &'t str, metric: &str) -> impl Iterator<Item = (&'t str, &'t str)> {
    text.lines().filter_map(move |line| {
        let labelled = line.strip_prefix(metric)?.strip_prefix('{')?;
        labelled.rsplit_once("} ")
    })
}

/// The commands whose CPU time is measured, with the shortest intervals. `vm`: the pid of a
/// VM to trace. Without a terminal `top` prints one table.
pub(crate) fn commands(vm: Option<u32>) -> Vec<Vec<String>> {
    let mut commands = vec![
        vec!["check"],
        vec!["snapshot"],
        vec!["top", "--interval", "100ms"],
        vec!["topology", "--window", "10ms"],
        vec!["doctor", "--for", "1s"],
    ];
    let pid = vm.map(|pid| pid.to_string());
    if let Some(pid) = &pid {
        commands.push(vec!["trace", "--for", "100ms", "--output", "-", pid]);
    }
    let owned = |args: &Vec<&str>| args.iter().map(|arg| (*arg).to_owned()).collect();
    commands.iter().map(owned).collect()
}

/// A command as the table shows it: without the pid of a VM.
pub(crate) fn shown(args: &[String]) -> String {
    let is_pid = |arg: &&String| arg.parse::<u32>().is_ok();
    let shown: Vec<&str> = args
        .iter()
        .filter(|arg| !is_pid(arg))
        .map(String::as_str)
        .collect();
    shown.join(" ")
}

/// CPU time of one run of a command, ms.
pub(crate) fn command_ms(path: &Path, loader: Loader, args: &[String]) -> f64 {
    let mut command = Command::new(path);
    command.args(args).args(["--loader", loader.name()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    let mut child = child.expect("virtlens can be started");
    // The times of a zombie can still be read.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), ended).expect("it is our child");
    let ms = cpu_ms(child.id());
    let status = child.wait().expect("it is our child");
    // The doctor has findings (2), or `check` names a part that is off (1).
    let expected = if args[0] == "check" { 1 } else { 2 };
    assert!(
        status
            .code()
            .is_some_and(|code| code == 0 || code == expected),
        "virtlens {args:?}: {status}"
    );
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
