//! Continues the state of the former agent.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{Facts, RetiredFact, WatchedCgroup};
use virtlens_model::vocab::{CgroupId, Owner, VmKey};
use zerocopy::IntoBytes;

use super::TaskPass;
use crate::Error;
use crate::load::not_pinned;
use crate::pins::Pins;
use crate::sys::map::Batch;

/// Maximum number of attempts to get a consistent reading while threads exit all the
/// time.
const SETTLE: usize = 5;

impl TaskPass {
    /// Returns the owners that a former agent had counted, once: those that no longer
    /// exist are to be forgotten.
    pub fn left(&mut self) -> FxHashSet<Owner> {
        std::mem::take(&mut self.left)
    }

    /// Returns the state that a former agent kept of each VM with [`TaskPass::keep`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn kept(&mut self) -> Result<Vec<(VmKey, Vec<u8>)>, Error> {
        let kept = self.handover.read(&self.maps)?;
        self.left.extend(self.handover.vms().map(Owner::Vm));
        Ok(kept)
    }

    /// Stores the state of a VM for the next agent.
    ///
    /// # Errors
    /// [`Error::Map`]: the former state is still stored, or none.
    pub fn keep(&mut self, vm: VmKey, bytes: &[u8]) -> Result<(), Error> {
        self.handover.write(&self.maps, vm, bytes)
    }

    /// Whether the maps are pinned for the next agent.
    pub fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Takes over the contents of the maps, which are empty without a former agent.
    /// `states_adopted`: the thread states are taken over too.
    pub(super) fn adopt(&mut self, states_adopted: bool) -> Result<(), Error> {
        let zero = 0u32;
        let before: Option<abi::Control> = self.maps.get("control", zero.as_bytes())?;
        if let Some(before) = before {
            self.control = before;
        }
        if !states_adopted {
            // Otherwise vCPU threads whose states are lost would be counted as other
            // threads that became vCPUs.
            self.control.shown_ns = 0;
        }
        // The programs emitted their once-per-session records to another agent.
        self.control.session += 1;
        self.control.epoch = self.control.epoch.wrapping_add(1);
        let mut watched = Batch::<u64, abi::map::Watch>::default();
        self.maps.each("watched", &mut watched, |cgroup, watch| {
            self.watched.insert(WatchedCgroup {
                cgroup: CgroupId(*cgroup),
                pod: CgroupId(watch.pod),
            });
        })?;
        self.control.watched = u32::try_from(self.watched.len()).unwrap_or(u32::MAX);
        self.throttle.adopt(&self.maps)?;
        self.memory.adopt(&self.maps)?;
        self.left = self.owners()?;
        Ok(())
    }

    /// Makes these programs count, or none.
    pub(super) fn set_active(&self, are_active: bool) -> Result<(), Error> {
        let (zero, which) = (0u32, if are_active { self.which } else { 0 });
        self.maps
            .update("active", zero.as_bytes(), which.as_bytes())
    }

    /// Switches counting to these programs, and removes the pins that this agent does not
    /// use. `maps` are the paths of the maps in use.
    pub(super) fn take_over(&mut self, maps: Vec<PathBuf>) -> Result<(), Error> {
        self.set_active(!self.waits_for_vm())?;
        let which = self.which;
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        // Programs that are left out this time would continue to count without a reader.
        let names = || self.plan.programs();
        let links = names().map(|name| pins.link(name, which));
        let loaded = names().map(|name| pins.program(name, which));
        let kept: BTreeSet<PathBuf> = maps.into_iter().chain(links).chain(loaded).collect();
        let gone = pins.keep_only(&kept).map_err(not_pinned(pins.dir()))?;
        let dropped: Vec<_> = Pins::maps_of(&gone)
            .filter_map(|path| path.file_name())
            .collect();
        if !dropped.is_empty() {
            tracing::warn!(
                ?dropped,
                "dropped pinned maps of another version with a different layout; their counts are \
                 lost"
            );
        }
        self.dropped_maps = dropped.len() as u64;
        Ok(())
    }

    /// Makes a reading consistent, until the first one was accounted. A thread that exits
    /// during a reading is in neither the live threads nor `retired`; readings after the
    /// first one compensate for that with the readings before.
    pub(super) fn settle(&mut self, facts: &mut Facts) -> Result<(), Error> {
        if self.is_settled {
            return Ok(());
        }
        for _ in 0..SETTLE {
            let retired = self.retired.read(&self.maps)?;
            let is_same = sum(&retired) == sum(&facts.retired);
            if is_same {
                facts.retired = retired;
                break;
            }
            *facts = self.pass_over_all()?;
            facts.retired = retired;
            facts.ended_vcpus = self.retired.vcpus(&self.maps)?;
        }
        Ok(())
    }

    /// The last reading was accounted: later readings need not be consistent.
    pub fn accounted(&mut self) {
        self.is_settled = true;
    }

    /// Returns all owners that the maps have entries for.
    fn owners(&mut self) -> Result<FxHashSet<Owner>, Error> {
        let retired = self.retired.read(&self.maps)?;
        let hits = self.throttle.read(&self.maps)?.hits;
        let vms = self.placement.vms(&self.maps)?;
        let residency = self.placement.residency(&self.maps)?;
        let of_vms = vms
            .into_iter()
            .chain(residency.into_iter().map(|fact| fact.vm));
        let of_vms = of_vms.chain(self.memory.vms());
        Ok(retired
            .into_iter()
            .map(|fact| fact.class.owner)
            .chain(hits.into_iter().map(|hit| hit.class.owner))
            .chain(of_vms.map(Owner::Vm))
            .collect())
    }
}

/// Increases with every change of `retired`.
fn sum(retired: &[RetiredFact]) -> (u64, u64) {
    retired.iter().fold((0, 0), |(threads, ns), one| {
        let one_ns = one.cpu_ns.saturating_add(one.wait_ns);
        (threads + one.threads, ns.saturating_add(one_ns))
    })
}
