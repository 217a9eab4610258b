//! Data that a reading adds to the task pass, depending on the plan's features.

use virtlens_model::facts::{DiscardsFact, Facts, ResidencyFact, ThrottlingFacts};
use virtlens_model::vocab::VmKey;

use super::TaskPass;
use crate::Error;
use crate::maps::STATES_HASH;
use crate::plan::Feature;

impl TaskPass {
    /// Reads residency before the pass, like `retired`: if a vCPU migrates meanwhile, its
    /// time since then is missing, but no time is counted twice. The entries of the hash
    /// of thread states are counted with it, because that is slow too: one system call per
    /// entry.
    pub(super) fn read_residency(&mut self) -> Result<Option<Vec<ResidencyFact>>, Error> {
        if !std::mem::take(&mut self.wants_residency) {
            return Ok(None);
        }
        if !self.plan.task_storage {
            self.state_entries = self.maps.count(STATES_HASH);
        }
        self.placement.residency(&self.maps).map(Some)
    }

    pub(super) fn read_throttling(&mut self) -> Result<Option<ThrottlingFacts>, Error> {
        if !self.plan.features.contains(&Feature::Throttle) {
            return Ok(None);
        }
        self.throttle.read(&self.maps).map(Some)
    }

    pub(super) fn read_discards(&mut self) -> Result<Vec<(VmKey, DiscardsFact)>, Error> {
        if !self.plan.features.contains(&Feature::Memory) {
            return Ok(Vec::new());
        }
        self.memory.discards(&self.maps)
    }

    pub(super) fn add_placements(&mut self, facts: &mut Facts) -> Result<(), Error> {
        if self.plan.features.contains(&Feature::Placement) {
            let ended = self.placement.moves_of_ended(&self.maps, &facts.vms)?;
            for (vm, moves) in self.decoder.moves().chain(ended) {
                facts.placements.entry(vm).or_default().moves = Some(moves);
            }
        }
        for (vm, guest) in self.decoder.guests() {
            facts.placements.entry(vm).or_default().guest = Some(guest);
        }
        Ok(())
    }

    pub(super) fn add_discards(&self, facts: &mut Facts, discards: Vec<(VmKey, DiscardsFact)>) {
        if !self.plan.features.contains(&Feature::Memory) {
            return;
        }
        for fact in facts.memory.values_mut() {
            fact.discards = Some(DiscardsFact::default());
        }
        // Includes VMs that have exited: their last discards.
        for (vm, sums) in discards {
            facts.memory.entry(vm).or_default().discards = Some(sums);
        }
    }
}
