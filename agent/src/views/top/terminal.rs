//! What comes from the terminal, as long as it is there.
//!
//! Of one that is gone crossterm reads nothing again and again, for ever
//! (`event/source/unix`): so it is asked only while the terminal has not hung up.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The terminal that crossterm reads: standard input, or what controls the session.
pub(super) struct Terminal {
    opened: Option<File>,
    input: io::Stdin,
}

/// What came from it.
pub(super) enum Came {
    /// Nothing, for as long as was to be waited; or a signal.
    Nothing,
    Event(Event),
    /// It is gone, and nothing will come.
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

    /// Waits for something to come, no longer than `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> anyhow::Result<Came> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).context("a timeout beyond measure")?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the terminal"),
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let [terminal] = &fds;
        if terminal.revents().intersects(gone) {
            return Ok(Came::HungUp);
        }
        // Also where nothing is to be read: a signal tells of another size.
        if event::poll(Duration::ZERO).context("cannot read from the terminal")? {
            let event = event::read().context("cannot read from the terminal")?;
            return Ok(Came::Event(event));
        }
        Ok(Came::Nothing)
    }
}
