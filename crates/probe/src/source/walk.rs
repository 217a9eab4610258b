//! A pass that goes from task to task by itself, and tells in memory that is mapped
//! here (`bpf/walk.bpf.c`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use virtlens_abi as abi;
use zerocopy::FromZeros as _;

use crate::Error;
use crate::load::{Programs, STREAM};
use crate::sys::{self, stream::Stream};

/// A run sees thousands of tasks: no host has so many that a pass takes more runs.
const RUNS_MAX: usize = 10_000;

/// The program, and what it tells.
pub(super) struct Walk {
    program: OwnedFd,
    stream: Stream,
}

impl Walk {
    /// Takes the map that it tells in out of `maps`.
    pub(super) fn of(
        programs: &Programs,
        maps: &mut BTreeMap<String, OwnedFd>,
    ) -> Result<Self, Error> {
        let program = programs.get("walk_tasks");
        let program = program.ok_or(Error::Missing("walk_tasks"))?;
        let map = maps.remove(STREAM).ok_or(Error::Missing(STREAM))?;
        Ok(Self {
            program: program.try_clone_to_owned().map_err(Error::Load)?,
            stream: Stream::of(map.as_fd()).map_err(Error::Load)?,
        })
    }

    /// Walks over all tasks, and shows what is told in whole records.
    pub(super) fn read_each(
        &self,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut walk = abi::Walk::new_zeroed();
        for _ in 0..RUNS_MAX {
            sys::run(self.program.as_fd(), &mut walk).map_err(Error::Stream)?;
            each(self.stream.told())?;
            if walk.tgid == 0 {
                return Ok(());
            }
        }
        Err(Error::Stream(io::Error::other(
            "a pass over all tasks does not end",
        )))
    }
}
