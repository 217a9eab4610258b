//! A pass by the program `walk_tasks`, which writes to a map that is mapped here
//! (`bpf/walk.bpf.c`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use virtlens_abi as abi;
use zerocopy::FromZeros as _;

use crate::Error;
use crate::load::{Programs, STREAM};
use crate::sys::{self, stream::Stream};

/// Maximum number of runs per pass. A run visits thousands of tasks, so no host needs
/// more.
const RUNS_MAX: usize = 10_000;

/// The program and its output.
pub(super) struct Walk {
    program: OwnedFd,
    stream: Stream,
}

impl Walk {
    /// Removes the program's output map from `maps`.
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

    /// Walks over all tasks, and passes the output to `each` in whole records. It may refer to
    /// the `former_threads` of the pass before. `false` if the pass is incomplete: the resume
    /// thread had exited.
    pub(super) fn read_each(
        &self,
        former_threads: u32,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        run_until_complete(|walk| {
            walk.former_threads = former_threads;
            sys::run(self.program.as_fd(), walk).map_err(Error::Stream)?;
            each(self.stream.output())
        })
    }
}

/// Runs from the first task to the last; `false` if the pass is incomplete.
fn run_until_complete(
    mut run: impl FnMut(&mut abi::Walk) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut walk = abi::Walk::new_zeroed();
    for _ in 0..RUNS_MAX {
        run(&mut walk)?;
        if walk.tid == 0 || walk.seen == 0 {
            return Ok(walk.tid == 0);
        }
    }
    Err(Error::Stream(io::Error::other(format!(
        "the pass over all tasks did not end after {RUNS_MAX} runs"
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk whose runs stop with `threads`; a run visits no task if its resume thread
    /// has exited.
    fn walk(threads: impl IntoIterator<Item = (u32, u64)>) -> (Result<bool, Error>, Vec<u32>) {
        let mut threads = threads.into_iter();
        let mut begun = Vec::new();
        let is_whole = run_until_complete(|walk| {
            begun.push(walk.tid);
            (walk.tid, walk.seen) = threads.next().expect("no run is behind the last");
            Ok(())
        });
        (is_whole, begun)
    }

    #[test]
    fn runs_go_on_to_the_last_task() {
        let (is_whole, begun) = walk([(7, 10), (8, 10), (0, 3)]);
        assert!(is_whole.expect("it ends"));
        assert_eq!(begun, [0, 7, 8]);
        // The last task may have been the last of a run.
        let (is_whole, _) = walk([(7, 10), (0, 1)]);
        assert!(is_whole.expect("it ends"));
    }

    #[test]
    fn exit_of_resume_thread_aborts_pass() {
        let (is_whole, begun) = walk([(7, 10), (7, 0)]);
        assert!(!is_whole.expect("it ends"));
        assert_eq!(begun, [0, 7]);
    }

    #[test]
    fn no_pass_is_endless() {
        let (is_whole, begun) = walk(std::iter::repeat((7, 10)));
        assert!(is_whole.is_err());
        assert_eq!(begun.len(), RUNS_MAX);
    }
}
