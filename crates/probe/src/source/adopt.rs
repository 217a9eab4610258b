//! Goes on where the agent before left off.

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

/// Readings after which threads that end all the time are let be.
const SETTLE: usize = 5;

impl TaskPass {
    /// Whom an agent before this one had counted, once: who of them is nobody's any
    /// more is to be forgotten.
    pub fn left(&mut self) -> FxHashSet<Owner> {
        std::mem::take(&mut self.left)
    }

    /// What an agent before this one kept of each VM, by [`TaskPass::keep`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn kept(&mut self) -> Result<Vec<(VmKey, Vec<u8>)>, Error> {
        let kept = self.book.read(&self.maps)?;
        self.left.extend(self.book.vms().map(Owner::Vm));
        Ok(kept)
    }

    /// Keeps something of a VM for the next agent.
    ///
    /// # Errors
    /// [`Error::Map`]: what is kept is then as before, or nothing.
    pub fn keep(&mut self, vm: VmKey, bytes: &[u8]) -> Result<(), Error> {
        self.book.write(&self.maps, vm, bytes)
    }

    /// Whether the next agent will find what this one leaves.
    pub fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Takes up what is in the maps; they are empty where no agent was before.
    /// `marks_left`: also what is remembered of single threads.
    pub(super) fn adopt(&mut self, marks_left: bool) -> Result<(), Error> {
        let zero = 0u32;
        let before: Option<abi::Control> = self.maps.get("control", zero.as_bytes())?;
        if let Some(before) = before {
            self.control = before;
        }
        if !marks_left {
            // Or vCPUs whose marks are lost would be taken for others that became vCPUs.
            self.control.shown_ns = 0;
        }
        // What the programs have told, they told another agent.
        self.control.session += 1;
        self.control.epoch = self.control.epoch.wrapping_add(1);
        let mut watched = Batch::<u64, abi::Watch>::default();
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

    /// Has these programs count, and removes what no agent of this kind needs.
    /// `maps` are the places of those in use.
    pub(super) fn take_over(&mut self, maps: Vec<PathBuf>) -> Result<(), Error> {
        let (zero, which) = (0u32, self.which);
        self.maps
            .update("active", zero.as_bytes(), which.as_bytes())?;
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        // What is left out this time would count on for nobody.
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
                "maps that another version left are of another layout: what they had counted is \
                 lost"
            );
        }
        self.dropped_maps = dropped.len() as u64;
        Ok(())
    }

    /// Makes a reading one of a single moment, until the first one was accounted. A
    /// thread that ends while it is taken is for that reading neither alive nor retired;
    /// readings after the first make up for that by those before.
    pub(super) fn settle(&mut self, facts: &mut Facts) -> Result<(), Error> {
        if self.is_settled {
            return Ok(());
        }
        for _ in 0..SETTLE {
            let retired = self.retired.read(&self.maps)?;
            if sum(&retired) == sum(&facts.retired) {
                break;
            }
            *facts = self.pass_over_all()?;
            facts.retired = retired;
            facts.ended_vcpus = self.retired.vcpus(&self.maps)?;
        }
        Ok(())
    }

    /// The last reading was accounted: those that follow need not be of one moment.
    pub fn accounted(&mut self) {
        self.is_settled = true;
    }

    /// All that maps hold something of.
    fn owners(&mut self) -> Result<FxHashSet<Owner>, Error> {
        let retired = self.retired.read(&self.maps)?;
        let hits = self.throttle.read(&self.maps)?.hits;
        let vms = self.placement.moves(&self.maps)?;
        let residency = self.placement.residency(&self.maps)?;
        let of_vms = vms.into_iter().map(|(vm, _)| vm);
        let of_vms = of_vms.chain(residency.into_iter().map(|fact| fact.vm));
        let of_vms = of_vms.chain(self.memory.vms());
        Ok(retired
            .into_iter()
            .map(|fact| fact.class.owner)
            .chain(hits.into_iter().map(|hit| hit.class.owner))
            .chain(of_vms.map(Owner::Vm))
            .collect())
    }
}

fn sum(retired: &[RetiredFact]) -> (u64, u64) {
    retired.iter().fold((0, 0), |(threads, ns), one| {
        (threads + one.threads, ns.saturating_add(one.cpu_ns))
    })
}
