//! One VM on a host with as many threads of other processes as it can hold.

use std::fs;
use std::time::Instant;

use rustix::event::pause;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use virtlens_tests::need;
use virtlens_tests::reader;

use crate::watched::{DRIFT_NS, State, Watched};

/// Threads at once, if the host can hold them.
const THREADS: usize = 100_000;

/// Processes that they belong to.
const PROCESSES: usize = 10;

/// Stack size of each thread, in one shared mapping: a guard page per thread would need
/// more mappings than a process may have.
const STACK: usize = 4 << 10;

const PID_MAX: &str = "/proc/sys/kernel/pid_max";

/// Raises the kernel's limits on pids and threads until it is dropped.
struct MorePids {
    before: String,
}

impl MorePids {
    fn new() -> Self {
        let before = fs::read_to_string(PID_MAX).expect("it is there");
        let most: usize = before.trim().parse().expect("it is a number");
        // Leaves pids for all other processes.
        let wanted = most.max(2 * THREADS);
        fs::write(PID_MAX, wanted.to_string()).expect("root may set it");
        Self { before }
    }
}

impl Drop for MorePids {
    fn drop(&mut self) {
        fs::write(PID_MAX, &self.before).expect("it was so before");
    }
}

/// Processes full of idle threads.
struct ManyThreads {
    pids: Vec<Pid>,
    // After the fields that need it, because fields are dropped in order.
    _pids: MorePids,
}

impl ManyThreads {
    fn start() -> Self {
        let more = MorePids::new();
        let each = THREADS / PROCESSES;
        let pids = (0..PROCESSES).map(|_| start_process(each)).collect();
        let others = Self { pids, _pids: more };
        let mut before = 0;
        // Until the number stops growing.
        loop {
            let now = others.threads();
            if now == before || now >= THREADS {
                return others;
            }
            before = now;
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }

    /// Number of threads.
    fn threads(&self) -> usize {
        let of = |pid: &Pid| -> usize {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("Threads:"));
            line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        self.pids.iter().map(of).sum()
    }
}

impl Drop for ManyThreads {
    fn drop(&mut self) {
        // These are our children, which have not been waited for.
        for pid in &self.pids {
            kill_process(*pid, Signal::KILL).ok();
        }
        for pid in &self.pids {
            waitpid(Some(*pid), WaitOptions::empty()).ok();
        }
    }
}

/// Starts a process with `threads` threads, or as many as it may have.
fn start_process(threads: usize) -> Pid {
    // SAFETY: the child has only the forking thread, and only makes system calls.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if let Some(child) = Pid::from_raw(child) {
        return child;
    }
    // SAFETY: system calls on plain numbers and on a mapping of the child, of which each
    // thread has its own part; the child never returns.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let stacks = libc::mmap(std::ptr::null_mut(), threads * STACK, access, kind, -1, 0);
        if stacks == libc::MAP_FAILED {
            libc::_exit(1);
        }
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        for number in 1..=threads {
            let top = stacks.cast::<u8>().add(number * STACK).cast();
            if libc::clone(rest, top, flags, std::ptr::null_mut()) < 0 {
                break;
            }
        }
        rest(std::ptr::null_mut());
        libc::_exit(0)
    }
}

extern "C" fn rest(_: *mut libc::c_void) -> libc::c_int {
    loop {
        pause();
    }
}

#[test]
fn hundred_thousand_other_threads_do_not_change_values() {
    let test = "hundred_thousand_other_threads_do_not_change_values";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let mut watched = Watched::start();
    watched.work();
    let before = watched.state();
    println!("before: {before}");
    let others = ManyThreads::start();
    println!("{} threads of {THREADS}", others.threads());
    let mut during: Vec<State> = Vec::new();
    for _ in 0..20 {
        watched.work();
        let began = Instant::now();
        let state = watched.state();
        println!("after {} ms: {state}", began.elapsed().as_millis());
        during.push(state);
    }
    assert!(
        others.threads() > THREADS / 10,
        "this host cannot run enough threads"
    );
    drop(others);
    watched.work();
    let after = watched.state();
    println!("after: {after}");
    for state in during.iter().chain([&after]) {
        assert!(state.drift_ns.unsigned_abs() <= DRIFT_NS, "{state}");
        assert!(!state.has_failed, "{state}");
        // The agent keeps state per VM only: 1 MiB is for growth of the steady VM.
        let most = before.resident_bytes * 1.1 + 1_048_576.0;
        assert!(state.resident_bytes <= most, "{before}; {state}");
    }
}
