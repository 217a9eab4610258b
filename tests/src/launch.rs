//! Start of a process under observation.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::TestCgroup;

/// A VMM to be started, with the options that both kinds share.
#[derive(Debug)]
pub struct Launch {
    pub(crate) command: Command,
}

impl Launch {
    /// A program without arguments.
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self {
            command: Command::new(program.as_ref()),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets `argv[0]` instead of the program's path.
    #[must_use]
    pub fn arg0(mut self, name: &str) -> Self {
        self.command.arg0(name);
        self
    }

    /// Starts the process inside a cgroup: all CPU time of the program is charged there.
    #[must_use]
    pub fn cgroup(mut self, cgroup: &TestCgroup) -> Self {
        let mut files = cgroup.open_procs();
        let join = move || {
            files
                .iter_mut()
                .try_for_each(|file: &mut File| file.write_all(b"0"))
        };
        // SAFETY: only write(2) is called between fork and exec, on files that were
        // opened before.
        unsafe { self.command.pre_exec(join) };
        self
    }

    /// Runs `change` in the child before the program starts.
    ///
    /// # Safety
    /// `change` may only make system calls: the child has only the forking thread, but
    /// the locks of all threads.
    #[must_use]
    pub unsafe fn before_exec(
        mut self,
        change: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        // SAFETY: only system calls are made between fork and exec, as the caller
        // guarantees.
        unsafe { self.command.pre_exec(change) };
        self
    }

    /// Starts the process; the caller has to end it.
    pub fn spawn(mut self) -> Child {
        self.command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.command))
    }

    /// Starts the process with its output in a file. It is killed when this thread exits;
    /// the caller ends it before.
    pub fn spawn_logged(self, log: &Path) -> Child {
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("a file can be made");
        let mut launch = self.die_with_thread();
        let out = log.try_clone().expect("a descriptor is free");
        launch.command.stdin(Stdio::null()).stdout(out).stderr(log);
        launch.spawn()
    }

    /// Kills the process when the thread that started it exits.
    pub(crate) fn die_with_thread(mut self) -> Self {
        let bind = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: prctl is allowed between fork and exec.
        unsafe { self.command.pre_exec(bind) };
        self
    }
}

/// Gives the calling process a private mount namespace; to be called between fork and
/// exec.
///
/// # Errors
/// The process lacks `CAP_SYS_ADMIN`.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    Ok(mount_change(c"/", flags)?)
}

/// Moves the calling thread, and thereby the processes that it starts, into a new network
/// without interfaces, except for an inactive `lo`.
///
/// # Errors
/// The process lacks `CAP_SYS_ADMIN`.
pub fn private_network() -> io::Result<()> {
    // SAFETY: descriptors stay shared.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}
