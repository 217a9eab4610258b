//! Waits for terminal events until the terminal hangs up.
//!
//! After a hangup crossterm reads zero bytes in an endless loop (`event/source/unix`), so
//! it is called only while the terminal has not hung up.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The terminal that crossterm reads: standard input, or the controlling terminal.
pub(super) struct Terminal {
    opened: Option<File>,
    input: io::Stdin,
}

/// Result of a wait.
pub(super) enum Input {
    /// Timeout or a signal.
    Nothing,
    Event(Event),
    /// The terminal has hung up; no further events will arrive.
    HungUp,
}

impl Terminal {
    pub(super) fn open() -> anyhow::Result<Self> {
        let input = io::stdin();
        let opened = if input.is_terminal() {
            None
        } else {
            Some(File::open("/dev/tty").context("cannot open the terminal")?)
        };
        Ok(Self { opened, input })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.opened {
            Some(file) => file.as_fd(),
            None => self.input.as_fd(),
        }
    }

    /// Waits for an event, at most for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> anyhow::Result<Input> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).context("timeout out of range")?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the terminal"),
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let [terminal] = &fds;
        if terminal.revents().intersects(gone) {
            return Ok(Input::HungUp);
        }
        // Called even if there is no input: a signal reports a change of the terminal's
        // size.
        if event::poll(Duration::ZERO).context("cannot read from the terminal")? {
            let event = event::read().context("cannot read from the terminal")?;
            return Ok(Input::Event(event));
        }
        Ok(Input::Nothing)
    }
}
