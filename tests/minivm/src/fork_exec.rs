//! Fork and exec of the process itself.

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
        let sleep = libc::timespec {
            tv_sec: i64::try_from(life.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(life.subsec_nanos()),
        };
        // SAFETY: a live timespec and no second one; it ends here.
        unsafe {
            libc::nanosleep(&raw const sleep, std::ptr::null_mut());
            libc::_exit(0);
        }
    }
    Ok(child)
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
