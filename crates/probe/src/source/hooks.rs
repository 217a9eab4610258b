//! Programs that are attached to hooks, and may stay attached without the agent.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::load::{Programs, not_pinned};
use crate::pins::Pins;
use crate::sys::ProgramRuns;
use crate::{Error, sys};

/// An attached program.
pub(super) struct Hook {
    pub(super) name: &'static str,
    /// Keeps the program attached; a pin keeps it attached longer.
    _link: OwnedFd,
    program: OwnedFd,
}

impl Hook {
    /// Attaches a program, unless a former agent has left it attached. With `pins` it
    /// stays attached for the next agent.
    pub(super) fn attach(
        programs: &Programs,
        name: &'static str,
        pins: Option<&Pins>,
        which: u64,
    ) -> Result<Self, Error> {
        if let Some(left) = pins.and_then(|pins| Self::open(pins, name, which)) {
            return Ok(left);
        }
        let program = programs.get(name).ok_or(Error::Missing(name))?;
        let program = program.try_clone_to_owned().map_err(Error::Load)?;
        let link = programs.attach(name).map_err(Error::Load)?;
        if let Some(pins) = pins {
            let place = pins.program(name, which);
            // Left by an agent that exited before it pinned the link.
            drop(fs::remove_file(&place));
            sys::pin(program.as_fd(), &place).map_err(not_pinned(&place))?;
            let place = pins.link(name, which);
            sys::pin(link.as_fd(), &place).map_err(not_pinned(&place))?;
        }
        Ok(Self {
            name,
            _link: link,
            program,
        })
    }

    /// Returns those of `names` that a former agent has left attached.
    pub(super) fn left(
        pins: &Pins,
        names: &'static [&'static str],
        which: u64,
    ) -> impl Iterator<Item = Self> {
        let names = names.iter();
        names.filter_map(move |name| Self::open(pins, name, which))
    }

    fn open(pins: &Pins, name: &'static str, which: u64) -> Option<Self> {
        let link = sys::pinned(&pins.link(name, which)).ok()?;
        let program = sys::pinned(&pins.program(name, which)).ok()?;
        Some(Self {
            name,
            _link: link,
            program,
        })
    }

    /// Number of its runs and missed runs.
    pub(super) fn runs(&self) -> io::Result<ProgramRuns> {
        sys::program_runs(self.program.as_fd())
    }
}
