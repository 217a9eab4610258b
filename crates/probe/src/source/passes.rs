//! Passes over the tasks of the host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustc_hash::FxHashSet;
use virtlens_model::facts::Facts;
use virtlens_model::vocab::VmKey;
use zerocopy::IntoBytes as _;

use super::TaskPass;
use super::walk::Walk;
use crate::decode::Buffer;
use crate::load::Programs;
use crate::maps::STRAYS;
use crate::plan::{Feature, Plan};
use crate::sys::map::Batch;
use crate::{Error, sys};

/// Size of a read from an iterator, bytes. The kernel's buffer of a task iterator is 8
/// pages (`bpf_seq_read`, `kernel/bpf/bpf_iter.c`): with a larger buffer here a read
/// returns whole records.
const READ_SIZE: usize = 64 * 1024;

/// Maximum number of passes per reading. A new VM changes the output of a pass, and its
/// helpers' cgroups may be new: three passes see all of it. More would be needed only
/// where VMs start all the time.
const REPEATS: usize = 3;

/// Attempts per pass. A pass of several runs restarts if the resume thread has exited
/// meanwhile, within a millisecond: repeated restarts happen only where threads are very
/// short-lived.
const ATTEMPTS: usize = 8;

/// The kind of task pass.
pub(super) enum Tasks {
    /// Runs the program of the kernel's task iterator.
    Iterator(OwnedFd),
    /// Runs the program `walk_tasks`.
    Walk(Walk),
}

impl Tasks {
    pub(super) fn of(
        programs: &Programs,
        plan: &Plan,
        maps: &mut BTreeMap<String, OwnedFd>,
    ) -> Result<Self, Error> {
        if plan.walks {
            return Walk::of(programs, maps).map(Self::Walk);
        }
        let link = programs.attach("sample_tasks").map_err(Error::Load)?;
        Ok(Self::Iterator(link))
    }
}

impl TaskPass {
    /// Runs passes until no new VM is found. For new VMs it also finds the threads of vCPUs
    /// that are in user space: the time of such a thread would be charged to the emulator,
    /// and counters never decrease.
    pub(super) fn pass_over_all(&mut self) -> Result<Facts, Error> {
        let facts = self.passes();
        self.control.after_files = 0;
        self.search.visits_all &= facts.is_err();
        facts
    }

    /// Whether each single thread that is moved to another cgroup is noticed.
    fn follows_moves(&self) -> bool {
        self.plan.walks && self.plan.features.contains(&Feature::Rename)
    }

    /// Prepares a search for strays: see `bpf/strays.bpf.h`.
    fn forget_strays(&mut self) -> Result<(), Error> {
        self.search.visits_all = true;
        if !self.follows_moves() {
            return Ok(());
        }
        let mut tgids: Vec<u32> = Vec::new();
        let mut batch = Batch::<u32, u32>::default();
        self.maps
            .each(STRAYS, &mut batch, |tgid, _| tgids.push(*tgid))?;
        let delete = |tgid: &u32| self.maps.delete(STRAYS, tgid.as_bytes());
        tgids.iter().try_for_each(delete)
    }

    fn passes(&mut self) -> Result<Facts, Error> {
        if self.search.is_due {
            self.forget_strays()?;
        }
        let mut facts = self.pass()?;
        for _ in 1..REPEATS {
            let new: FxHashSet<VmKey> = facts
                .alive()
                .filter(|vm| !self.known.contains(vm))
                .collect();
            let (is_due, mut finds) = (self.search.is_due, false);
            if is_due || !new.is_empty() {
                let mut sought = self.search.unsettled(&facts);
                sought.retain(|vm| is_due || new.contains(vm));
                let found = self.search(&sought, &facts);
                // A failure is counted, and the next reading searches again.
                self.search.is_due = found.is_err();
                finds = found.unwrap_or(false);
            }
            if new.is_empty() && !finds {
                break;
            }
            facts = self.pass()?;
            self.known.extend(new);
        }
        Ok(facts)
    }

    fn pass(&mut self) -> Result<Facts, Error> {
        let (facts, nameless) = self.whole_pass().inspect_err(|_| {
            // The lost part may have had records that are emitted once per session.
            self.control.session += 1;
        })?;
        if nameless == 0 {
            return Ok(facts);
        }
        self.control.session += 1;
        let (facts, _) = self.whole_pass()?;
        Ok(facts)
    }

    /// Number of threads of the former pass to which the next pass may refer; 0 if their owners
    /// may have changed since, or if the next pass emits more of them: see
    /// `bpf/slept.bpf.h`.
    fn former_threads(&self) -> u32 {
        let control = &self.control;
        let emits_more = control.halts | control.after_files | control.all_threads != 0;
        let is_remembered = self.remembered == Some((control.pass, control.epoch));
        if emits_more || !is_remembered || !self.follows_moves() {
            return 0;
        }
        u32::try_from(self.decoder.former_threads()).unwrap_or(0)
    }

    /// Runs one whole pass. Returns its facts, and the number of its cgroups without a
    /// known name.
    pub(super) fn whole_pass(&mut self) -> Result<(Facts, usize), Error> {
        for _ in 0..ATTEMPTS {
            let visits_all = self.search.visits_all || !self.follows_moves();
            self.control.all_threads = (visits_all && !self.waits_for_vm()).into();
            let former_threads = self.former_threads();
            self.remembered = None;
            self.control.pass += 1;
            self.control.begun_ns = sys::boot_ns();
            self.maps
                .update("control", 0u32.as_bytes(), self.control.as_bytes())?;
            let (decoder, mask_words) = (&mut self.decoder, self.plan.mask_words);
            decoder.begin(former_threads > 0);
            let feed = |part: &[u8]| decoder.feed(part, mask_words);
            let is_whole = match &self.tasks {
                Tasks::Walk(walk) => walk.read_each(former_threads, feed)?,
                Tasks::Iterator(link) => {
                    read_each(link, &mut self.stream, feed)?;
                    true
                }
            };
            if is_whole {
                self.remembered = Some((self.control.pass, self.control.epoch));
                return Ok(self.decoder.end());
            }
        }
        Err(Error::Stream(io::Error::other(format!(
            "gave up after {ATTEMPTS} attempts: the resume thread exited each time"
        ))))
    }
}

/// Reads an iterator to the end. Each read returns whole records, because the buffer is
/// larger than the kernel's.
pub(super) fn read_each(
    link: &OwnedFd,
    buffer: &mut Buffer,
    mut each: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let pass = sys::iterate(link.as_fd()).map_err(|cause| {
        Error::Stream(io::Error::other(format!(
            "cannot start the iterator: {cause}"
        )))
    })?;
    let mut pass = File::from(pass);
    loop {
        buffer.clear();
        match pass.read(buffer.room(READ_SIZE)) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                buffer.fill(bytes);
                each(buffer.bytes())?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted) => {}
            // The kernel visited a million tasks without a record.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => {}
            Err(error) => return Err(Error::Stream(error)),
        }
    }
}
