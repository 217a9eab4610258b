//! Programs that are attached to something, and may stay so without the agent.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{Link, Object};

use crate::pins::Pins;
use crate::{Error, load, sys};

/// An attached program.
pub(super) struct Hook {
    pub(super) name: &'static str,
    /// Attached as long as this lives, and longer where it is pinned.
    _link: Link,
    program: OwnedFd,
}

impl Hook {
    /// Attaches a program, unless an agent has left it attached. With `pins` it is
    /// left for the next one.
    pub(super) fn attach(
        object: &Object,
        name: &'static str,
        pins: Option<&Pins>,
        programs: u64,
    ) -> Result<Self, Error> {
        if let Some(left) = pins.and_then(|pins| Self::open(pins, name, programs)) {
            return Ok(left);
        }
        let mut link = load::attach(object, name).map_err(Error::Load)?;
        let program = object.progs_mut().find(|program| program.name() == name);
        let mut program = program.ok_or(Error::Missing(name))?;
        let copy = program.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|cause| Error::Load(cause.into()))?;
        if let Some(pins) = pins {
            let place = pins.program(name, programs);
            // Of an agent that ended before its link was there.
            drop(fs::remove_file(&place));
            let pinned = program.pin(&place);
            pinned.map_err(|cause| Error::Pin { place, cause })?;
            let place = pins.link(name, programs);
            let pinned = link.pin(&place);
            pinned.map_err(|cause| Error::Pin { place, cause })?;
        }
        Ok(Self {
            name,
            _link: link,
            program: copy,
        })
    }

    /// Those of `names` that an agent has left attached.
    pub(super) fn left(
        pins: &Pins,
        names: &'static [&'static str],
        programs: u64,
    ) -> impl Iterator<Item = Self> {
        let names = names.iter();
        names.filter_map(move |name| Self::open(pins, name, programs))
    }

    fn open(pins: &Pins, name: &'static str, programs: u64) -> Option<Self> {
        let link = Link::open(pins.link(name, programs)).ok()?;
        let program = sys::pinned_program(&pins.program(name, programs)).ok()?;
        Some(Self {
            name,
            _link: link,
            program,
        })
    }

    /// How often it ran and for how long, ns.
    pub(super) fn cost(&self) -> io::Result<(u64, u64)> {
        sys::program_cost(self.program.as_fd())
    }
}

/// The program of the object that has this name.
pub(super) fn cost_of(object: &Object, name: &str) -> Option<(u64, u64)> {
    let program = object.progs().find(|program| program.name() == name)?;
    let program: BorrowedFd<'_> = program.as_fd();
    sys::program_cost(program).ok()
}
