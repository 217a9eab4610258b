//! Ends of the process other than a command on stdin.
//!
//! The kernel frees all resources of a VM when its process ends, so every end is a plain
//! exit. A test that dies must leave nothing behind: minivm notices this by the end of
//! stdin, and during a command by the parent-death signal.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::pause;
use rustix::process::{Pid, getppid};

use crate::args::Args;
use crate::kick;

static PARENT_PID: AtomicI32 = AtomicI32::new(0);

/// Installs the ends: SIGTERM always, the time of `--for`, the parent's death.
pub(crate) fn bound(args: &Args) {
    kick::install(libc::SIGTERM, end);
    if let Some(seconds) = args.for_seconds {
        kick::install(libc::SIGALRM, end);
        // SAFETY: alarm takes a plain number.
        unsafe { libc::alarm(seconds) };
    } else if !args.detach_stdin {
        die_with_parent();
    }
}

/// Waits until a signal ends the process.
pub(crate) fn wait_for_end() -> ! {
    loop {
        pause();
    }
}

fn die_with_parent() {
    // Not SIGTERM: the kernel sends this signal when the parent *thread* ends (prctl(2)),
    // and a test may start a VM in one thread and keep it in another. The handler
    // distinguishes the two.
    let signal = libc::SIGRTMIN() + 1;
    PARENT_PID.store(parent_pid(), Ordering::Relaxed);
    kick::install(signal, end_without_parent);
    // SAFETY: prctl reads plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// One system call, which is allowed in a handler; 0 for a parent outside the namespace.
fn parent_pid() -> i32 {
    Pid::as_raw(getppid())
}

extern "C" fn end_without_parent(_: libc::c_int) {
    if parent_pid() != PARENT_PID.load(Ordering::Relaxed) {
        end(0);
    }
}

extern "C" fn end(_: libc::c_int) {
    // SAFETY: _exit is allowed in a handler; every reply was flushed.
    unsafe { libc::_exit(0) }
}
