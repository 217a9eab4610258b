//! Fork and exec of the process itself.

use std::ffi::{c_int, c_void};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

/// Forks; the child holds all files of the VM for `life` and then exits. Returns its pid.
pub(crate) fn fork(life: Duration) -> anyhow::Result<i32> {
    // SAFETY: nothing waits for children here, so the kernel may reap them.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: the child has only the forking thread, and only makes system calls.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        sleep_and_exit(&timespec(life));
    }
    Ok(child)
}

/// Starts a child that shares this address space for `life` and then exits, like a child of
/// vfork before it execs. Returns its pid.
pub(crate) fn share(life: Duration) -> anyhow::Result<i32> {
    extern "C" fn child(life: *mut c_void) -> c_int {
        // SAFETY: `share` passes it, and never frees it.
        sleep_and_exit(unsafe { &*life.cast::<libc::timespec>() })
    }
    // SAFETY: as in `fork`.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // The child uses both while this process goes on.
    let stack = Box::leak(vec![0_u128; STACK_WORDS].into_boxed_slice());
    let life = std::ptr::from_mut(Box::leak(Box::new(timespec(life))));
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    // SAFETY: the stack is the child's alone, and the child only makes system calls.
    let child = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            life.cast(),
        )
    };
    ensure!(child >= 0, "clone: {}", std::io::Error::last_os_error());
    Ok(child)
}

/// Size of the child's stack.
const STACK_WORDS: usize = (64 << 10) / size_of::<u128>();

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn sleep_and_exit(time: &libc::timespec) -> ! {
    // SAFETY: a live timespec and no second one; the process ends here.
    unsafe {
        libc::nanosleep(time, std::ptr::null_mut());
        libc::_exit(0);
    }
}

/// Executes the same program with the same arguments in this process: the old VM ends,
/// and a new one starts.
pub(crate) fn exec() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("this program has a file")?;
    let error = Command::new(program)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).context("cannot execute this program again")
}
