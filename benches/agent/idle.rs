//! Tasks and open files of others: processes that do nothing, so that only the host grows.
//!
//! ```text
//! benchmark ── pipe ──► keeper: raises the kernel's limits, restores them at the end
//!                          └─► first process of a pid namespace
//!                                 └─► idle tasks; the kernel kills them with the first
//! ```
//!
//! The keeper ends all of it and restores the limits when its stdin closes, thus also when
//! the benchmark is interrupted or killed, and at the latest after [`LIFETIME`]. SIGINT and
//! SIGTERM do not end it before.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, pause, poll};
use rustix::process::{
    Pid, Resource, Signal, WaitOptions, getrlimit, kill_process, set_parent_process_death_signal,
    setrlimit, waitpid,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use virtlens_benches::machine;

/// The flag that makes this program a keeper.
pub(crate) const FLAG: &str = "--idle";

/// Maximum lifetime of the tasks.
const LIFETIME: Timespec = Timespec {
    tv_sec: 240,
    tv_nsec: 0,
};

/// Maximum time to create them. Afterwards the measurement uses those that exist.
const CREATION: Duration = Duration::from_mins(1);

/// Time without a report after which a process of idle tasks has failed.
const SILENCE: Timespec = Timespec {
    tv_sec: 90,
    tv_nsec: 0,
};

/// Stack of a task, bytes, in one shared mapping: a guard page for each would need more
/// mappings than a process may have.
const STACK: usize = 1 << 10;

/// Memory of an idle task, KiB: its kernel stack, its `task_struct` and its own stack. A
/// host without twice as much gets fewer tasks.
const TASK_KIB: u32 = 36;

/// Pids and threads for everything else.
const SPARE: u32 = 32_768;

/// Kind of object of which the host gets many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Threads of ten processes.
    Threads,
    /// Processes of one thread, which share an address space.
    Processes,
    /// Open files of twenty processes; in every second one they are duplicates of one file.
    Files,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Threads, Self::Processes, Self::Files];

    /// The name that is shown to users.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Files => "files",
        }
    }

    /// Processes that create the tasks or files.
    const fn processes(self) -> u32 {
        match self {
            Self::Threads => 10,
            Self::Processes => 1,
            Self::Files => 20,
        }
    }
}

/// Idle tasks or open files, until dropped.
#[derive(Debug)]
pub(crate) struct Idle {
    keeper: Child,
    stdin: Option<ChildStdin>,
    /// Their number: fewer than requested if the host cannot hold more.
    pub(crate) count: u32,
}

impl Idle {
    /// Starts the tasks and waits until all exist.
    pub(crate) fn start(kind: Kind, count: u32) -> Self {
        let mut keeper = Command::new(env::current_exe().expect("this program has a path"))
            .args([FLAG, kind.name(), &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let stdin = keeper.stdin.take();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("its output is text");
        let count = line.trim().parse();
        Self {
            keeper,
            stdin,
            count: count.expect("the keeper prints the number; its error is on stderr"),
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It has cleaned up when it ends.
        drop(self.keeper.wait());
    }
}

/// The keeper.
pub(crate) fn keep(args: &[String]) {
    ignore_interrupts();
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == args[0]);
    let kind = kind.expect("a kind");
    let count: u32 = args[1].parse().expect("a number");
    let count = if kind == Kind::Files {
        count
    } else {
        count.min(machine::half_of_available_kib() / TASK_KIB)
    };
    let limits = Limits::raise(if kind == Kind::Files { 0 } else { count });
    let (first, count) = start_first(kind, count);
    println!("{count}");
    let stdin = io::stdin();
    let mut end = [PollFd::new(&stdin, PollFlags::IN)];
    // The end of stdin, or the lifetime. An error ends it too.
    poll(&mut end, Some(&LIFETIME)).ok();
    // The kernel kills the whole namespace with its first process, and then lets us wait.
    kill_process(first, Signal::KILL).ok();
    waitpid(Some(first), WaitOptions::empty()).ok();
    drop(limits);
}

/// Ignores the signals that interrupt the benchmark. Children inherit it.
pub(crate) fn ignore_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The kernel's limits on tasks, restored on drop.
struct Limits([(&'static str, Option<String>); 2]);

impl Limits {
    fn raise(tasks: u32) -> Self {
        let raised = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
        Self(raised.map(|file| {
            let before = fs::read_to_string(file).expect("procfs has it");
            let most: u32 = before.trim().parse().expect("it is a number");
            let wanted = tasks + SPARE;
            if most >= wanted {
                return (file, None);
            }
            fs::write(file, wanted.to_string()).expect("root may raise it");
            (file, Some(before))
        }))
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            if let Some(before) = before {
                fs::write(file, before).expect("root may restore it");
            }
        }
    }
}

/// Starts the first process of a new pid namespace, which starts everything else. Returns it,
/// and the number of tasks or files.
fn start_first(kind: Kind, count: u32) -> (Pid, u32) {
    let (report, reporter) = io::pipe().expect("a pipe");
    // SAFETY: it affects the next child only.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.expect("root may create namespaces");
    let first = fork(|| start_all(kind, count, &reporter));
    let next = |_| {
        let mut ready = [PollFd::new(&report, PollFlags::IN)];
        let ready = poll(&mut ready, Some(&SILENCE)).expect("a pipe can be polled");
        assert_eq!(ready, 1, "a process of idle tasks failed");
        let mut count = [0; 4];
        (&report)
            .read_exact(&mut count)
            .expect("a pipe can be read");
        u32::from_ne_bytes(count)
    };
    (first, (0..kind.processes()).map(next).sum())
}

/// Runs `child` in a new process, which then sleeps.
fn fork(child: impl FnOnce()) -> Pid {
    // SAFETY: the process has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
    if let Some(pid) = Pid::from_raw(pid) {
        return pid;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a valid signal");
    // A panic must not unwind into the code of the parent.
    if catch_unwind(AssertUnwindSafe(child)).is_err() {
        std::process::abort();
    }
    loop {
        pause();
    }
}

/// Each process reports its number of tasks or files.
fn start_all(kind: Kind, count: u32, reporter: &io::PipeWriter) {
    let deadline = Instant::now() + CREATION;
    let each = count / kind.processes();
    let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND;
    let report = |count: u32| {
        let mut reporter = reporter;
        reporter
            .write_all(&count.to_ne_bytes())
            .expect("it is read");
    };
    for number in 0..kind.processes() {
        fork(|| {
            report(match kind {
                Kind::Files => open_files(each, number % 2 == 0),
                Kind::Processes => start_tasks(each, shared, deadline),
                Kind::Threads => {
                    let flags = shared | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
                    start_tasks(each, flags, deadline)
                }
            });
        });
    }
}

/// Starts tasks until there are `count` or the kernel refuses one; returns their number.
fn start_tasks(count: u32, flags: libc::c_int, deadline: Instant) -> u32 {
    let bytes = count as usize * STACK;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let stacks = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    assert_ne!(stacks, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    let start = |number: u32| {
        // SAFETY: each task has its own part of the mapping, which is never unmapped, as its
        // stack. It only makes system calls.
        let tid = unsafe {
            let top = stacks.byte_add((number as usize + 1) * STACK);
            libc::clone(rest, top, flags, ptr::null_mut())
        };
        tid > 0 && Instant::now() < deadline
    };
    let started = (0..count).take_while(|number| start(*number)).count();
    u32::try_from(started).expect("at most `count`")
}

extern "C" fn rest(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // Not through libc, which would use the storage of the thread that started it.
        pause();
    }
}

/// Opens files, within the hard limit; returns their number.
fn open_files(count: u32, are_duplicates: bool) -> u32 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("any process may raise it so far");
    let open = || fs::File::open("/dev/null");
    let one = open().expect("it exists");
    let files = (1..count).map_while(|_| {
        if are_duplicates {
            one.try_clone()
        } else {
            open()
        }
        .ok()
    });
    let files: Vec<_> = files.collect();
    let opened = u32::try_from(files.len() + 1).expect("at most `count`");
    // They stay open until the process ends.
    std::mem::forget((one, files));
    opened
}
