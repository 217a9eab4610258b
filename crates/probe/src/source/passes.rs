//! Passes over the tasks and the open files of the host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use virtlens_model::facts::Facts;
use virtlens_model::vocab::VmKey;
use zerocopy::IntoBytes as _;

use super::TaskPass;
use super::walk::Walk;
use crate::decode::{Buffer, OpenFiles};
use crate::load::Programs;
use crate::plan::Plan;
use crate::{Error, sys};

/// The kernel's buffer of a task iterator is 8 pages (`bpf_seq_read`,
/// `kernel/bpf/bpf_iter.c`): with room for more a read gives whole records.
const READ_SIZE: usize = 64 * 1024;

/// A VM that is found changes what a pass sees, and its helpers' cgroups may
/// be new: three passes see it all. More only where VMs start all the time.
const REPEATS: usize = 3;

/// A pass that goes on in another run begins anew if the thread to go on with has ended
/// meanwhile, within a millisecond: more of them in turn only where hardly any lives longer.
const ATTEMPTS: usize = 8;

/// How the pass over the tasks is run.
pub(super) enum Tasks {
    /// By the kernel's iterator.
    Iterator(OwnedFd),
    /// By itself.
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
    /// Looks for VMs whose vCPUs are not running, and for the devices of vhost workers, by
    /// the open files of the whole host. Some 0.5 µs a file: for the start, when a VM is
    /// met, and now and then.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::Record`] or [`Error::Map`].
    pub fn find_paused(&mut self) -> Result<(), Error> {
        let Some(link) = &self.files else {
            return Ok(());
        };
        self.vhost
            .set(&self.maps, self.plan.vhost)
            .inspect_err(|_| self.file_pass_errors += 1)?;
        self.control.after_files = 1;
        let mut found = OpenFiles::default();
        read_each(link, &mut self.stream, |part| found.feed(part))
            .inspect_err(|_| self.file_pass_errors += 1)?;
        let found = found.found();
        self.by_fds = found.vms;
        self.has_run = Arc::new(found.has_run);
        self.vhost_devices = Arc::new(found.vhost_devices);
        Ok(())
    }

    /// A pass, and again while it shows VMs that were not known. Of those it also looks
    /// for vCPUs that are in user space just now: what such a thread has used would be
    /// the emulator's, and no counter falls.
    pub(super) fn pass_over_all(&mut self) -> Result<Facts, Error> {
        let facts = self.passes();
        self.control.after_files = 0;
        facts
    }

    fn passes(&mut self) -> Result<Facts, Error> {
        let mut facts = self.pass()?;
        for _ in 1..REPEATS {
            let met: Vec<_> = facts
                .alive()
                .filter(|vm| !self.known.contains(vm))
                .collect();
            if met.is_empty() {
                break;
            }
            if !met.iter().all(|vm| self.is_looked_through(*vm)) {
                // It is counted; the next one may find them.
                self.find_paused().ok();
            }
            facts = self.pass()?;
            self.known.extend(met);
        }
        Ok(facts)
    }

    /// Whether the files of this VM were looked through for this reading.
    fn is_looked_through(&self, vm: VmKey) -> bool {
        self.control.after_files == 1 && self.by_fds.iter().any(|one| one.vm == vm)
    }

    fn pass(&mut self) -> Result<Facts, Error> {
        let (facts, nameless) = self.whole_pass().inspect_err(|_| {
            // What the programs emit once a session may have been in the part that is lost.
            self.control.session += 1;
        })?;
        if nameless == 0 {
            return Ok(facts);
        }
        self.control.session += 1;
        let (facts, _) = self.whole_pass()?;
        Ok(facts)
    }

    /// What a pass told, and how many of its cgroups have no name here.
    fn whole_pass(&mut self) -> Result<(Facts, usize), Error> {
        for _ in 0..ATTEMPTS {
            self.control.pass += 1;
            self.control.begun_ns = sys::boot_ns().map_err(Error::Stream)?;
            self.maps
                .update("control", 0u32.as_bytes(), self.control.as_bytes())?;
            let (decoder, mask_words) = (&mut self.decoder, self.plan.mask_words);
            decoder.begin();
            let feed = |part: &[u8]| decoder.feed(part, mask_words);
            let is_whole = match &self.tasks {
                Tasks::Walk(walk) => walk.read_each(feed)?,
                Tasks::Iterator(link) => {
                    read_each(link, &mut self.stream, feed)?;
                    true
                }
            };
            if is_whole {
                return Ok(self.decoder.end());
            }
        }
        Err(Error::Stream(io::Error::other(format!(
            "in {ATTEMPTS} passes threads ended just where a pass was to go on: \
             it succeeds when fewer begin and end"
        ))))
    }
}

/// Runs an iterator to its end. Each read gives whole records, as it has room for
/// all that the kernel's buffer holds.
fn read_each(
    link: &OwnedFd,
    buffer: &mut Buffer,
    mut each: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let pass = sys::iterate(link.as_fd())
        .map_err(|cause| Error::Stream(io::Error::other(format!("cannot start it: {cause}"))))?;
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
            // The kernel showed a million tasks without one record.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => {}
            Err(error) => return Err(Error::Stream(error)),
        }
    }
}
