//! The BPF source: its state, one reading, and the settings that the agent changes.

mod adopt;
mod attach;
mod extras;
mod forget;
mod health;
mod hooks;
mod passes;
mod search;
mod vhost;
mod walk;

use health::Lost;
use hooks::{Attachment, Hook};
use passes::Tasks;
use rustc_hash::FxHashSet;
use search::Search;
use virtlens_abi as abi;
use virtlens_model::facts::{Facts, Piece, RamPiece, WatchedCgroup};
use virtlens_model::identify::features::Thresholds;
use virtlens_model::vocab::topology::host::HostTopology;
use virtlens_model::vocab::{CgroupId, Owner, VmKey};
use zerocopy::IntoBytes as _;

use crate::Error;
use crate::decode::{Buffer, Decoder};
use crate::handover::Handover;
use crate::load::Programs;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::pins::Pins;
use crate::placement::Placement;
use crate::plan::{Feature, Plan};
use crate::retired::Retired;
use crate::throttle::Throttle;

/// The loaded programs and the state needed to read them.
pub struct TaskPass {
    tasks: Tasks,
    /// The attached programs.
    hooks: Vec<Hook>,
    attachment: Attachment,
    programs: Programs,
    /// Fingerprint of the programs: `config.programs` in `bpf/abi.h`.
    which: u64,
    /// See `config.states_complete` in `bpf/abi.h`.
    states_complete: bool,
    maps: Maps,
    /// The pins that keep maps and links without this agent.
    pins: Option<Pins>,
    /// Maps of a former agent that were dropped because they have another layout.
    dropped_maps: u64,
    /// Owners that a former agent had counted.
    left: FxHashSet<Owner>,
    /// Whether a consistent reading was accounted: see [`TaskPass::accounted`].
    is_settled: bool,
    plan: Plan,
    decoder: Decoder,
    stream: Buffer,
    retired: Retired,
    placement: Placement,
    throttle: Throttle,
    memory: Memory,
    handover: Handover,
    wants_residency: bool,
    /// Number of entries of the hash of thread states, counted when residency was last
    /// read.
    state_entries: Option<u64>,
    control: abi::Control,
    watched: FxHashSet<WatchedCgroup>,
    known: FxHashSet<VmKey>,
    search: Search,
    /// The last pass, if it was whole, and `control.epoch` at that time; `None` if the agent has
    /// removed owners since.
    remembered: Option<(u64, u32)>,
    /// Missed runs of programs that are no longer attached.
    interrupted_before: u64,
    /// Losses as last read: if a counter cannot be read, its last value stays.
    lost: Lost,
}

impl TaskPass {
    /// The loaded features, and those that were left out with their reasons.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the host once. If a new VM is found, the pass is repeated, because it may
    /// already have visited some of that VM's threads.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::Record`] or [`Error::Map`]: this reading failed, the
    /// next one may succeed.
    pub fn read(&mut self) -> Result<Facts, Error> {
        if let Some(mut facts) = self.attach_for_vm()? {
            self.wants_residency = false;
            self.search.add_to(&mut facts);
            return Ok(facts);
        }
        // Read before the pass: a thread that exits meanwhile is then missing from this
        // reading rather than counted twice, and the ledger never decreases.
        let mut retired = self.retired.read(&self.maps)?;
        let mut ended_vcpus = self.retired.vcpus(&self.maps)?;
        let residency = self.read_residency()?;
        let throttling = self.read_throttling()?;
        let discards = self.read_discards()?;
        self.decoder.take_change();
        let mut facts = self.pass_over_all()?;
        if self.decoder.take_change() {
            // The time before a class change is in neither the old snapshot nor this
            // pass.
            retired = self.retired.read(&self.maps)?;
            ended_vcpus = self.retired.vcpus(&self.maps)?;
            facts = self.pass_over_all()?;
        }
        facts.retired = retired;
        facts.ended_vcpus = ended_vcpus;
        self.settle(&mut facts)?;
        facts.residency = residency;
        facts.throttling = throttling;
        self.add_placements(&mut facts)?;
        self.add_discards(&mut facts, discards);
        self.search.add_to(&mut facts);
        // The programs receive these values with the next pass.
        self.control.shown_pass = low_bits(self.control.pass);
        self.control.shown_ns = self.control.begun_ns;
        Ok(facts)
    }

    /// Recycles the facts of the last reading when they are no longer needed: the next
    /// reading reuses their memory, and returns again what has not changed.
    pub fn recycle(&mut self, mut facts: Facts) {
        let retired = std::mem::take(&mut facts.retired);
        let ended_vcpus = std::mem::take(&mut facts.ended_vcpus);
        self.retired.recycle(retired, ended_vcpus);
        if let Some(throttling) = facts.throttling.take() {
            self.throttle.recycle(throttling);
        }
        self.decoder.recycle(facts);
    }

    /// Number of threads in the last reading that have slept since the pass before it, which
    /// was their last reading: they cost less.
    pub fn slept_threads(&self) -> usize {
        self.decoder.slept_threads()
    }

    /// Sets the topology of each CPU of the host, from which the programs classify vCPU
    /// migrations by distance.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_host(&mut self, host: &HostTopology) -> Result<(), Error> {
        self.placement.set_places(&self.maps, host)
    }

    /// Requests residency, the CPU time of all vCPUs per pCPU, with the next reading. On
    /// a large host this is much data, so it is read only on request.
    pub fn want_residency(&mut self) {
        self.wants_residency = self.plan.features.contains(&Feature::Placement);
    }

    /// Requests histograms of the halts of all vCPUs with each later reading: twelve more
    /// cache lines per vCPU.
    pub fn want_halts(&mut self) {
        self.control.halts = 1;
    }

    /// Returns the location of the RAM of `vm` if the programs need it anew, to be set by
    /// [`TaskPass::set_ram`].
    pub fn new_ram(&self, vm: VmKey, thresholds: Thresholds) -> Option<&[Piece]> {
        let slots = self.decoder.ram_of(vm)?;
        let is_new = self.plan.features.contains(&Feature::Memory)
            && !self.memory.knows(vm, thresholds, slots.generation);
        is_new.then_some(&slots.pieces)
    }

    /// Sets the location and the backing of the RAM of `vm` and the thresholds that
    /// classify its discards.
    pub fn set_ram(&mut self, vm: VmKey, thresholds: Thresholds, pieces: &[RamPiece]) {
        if thresholds.large_are_given_back() {
            self.attach_entries();
        }
        let generation = self.decoder.ram_of(vm).map_or(0, |slots| slots.generation);
        self.memory
            .set(&self.maps, vm, (thresholds, generation), pieces);
    }

    /// Sets the cgroups whose threads are all read. Returns whether that is a change, so
    /// that another reading sees more.
    ///
    /// # Errors
    /// [`Error::Map`]: the change is incomplete, and the next call does the rest.
    pub fn watch(&mut self, cgroups: &FxHashSet<WatchedCgroup>) -> Result<bool, Error> {
        if *cgroups == self.watched {
            return Ok(false);
        }
        // Changed before the map, because a failure may leave the map partly changed.
        self.control.epoch = self.control.epoch.wrapping_add(1);
        self.search.visits_all = true;
        let gone: Vec<WatchedCgroup> = self.watched.difference(cgroups).copied().collect();
        for gone in gone {
            self.maps.delete("watched", gone.cgroup.0.as_bytes())?;
            self.watched.remove(&gone);
        }
        let new: Vec<WatchedCgroup> = cgroups.difference(&self.watched).copied().collect();
        for new in new {
            let watch = abi::map::Watch {
                pod: new.pod.0,
                names: 0,
                since_pass: low_bits(self.control.pass),
            };
            let cgroup = new.cgroup.0.as_bytes();
            self.maps.update("watched", cgroup, watch.as_bytes())?;
            self.watched.insert(new);
            self.control.watched = u32::try_from(self.watched.len()).unwrap_or(u32::MAX);
        }
        self.control.watched = u32::try_from(self.watched.len()).unwrap_or(u32::MAX);
        Ok(true)
    }

    /// Sets the cgroups that can have a limit: exited threads are charged to them, and
    /// their throttling is tracked. Returns true if tracking starts for some, so that
    /// another reading has their first counts: later readings are differences to known
    /// counts only.
    ///
    /// # Errors
    /// [`Error::Map`]: the change is incomplete, and the next call does the rest.
    pub fn set_levels(&mut self, levels: FxHashSet<CgroupId>) -> Result<bool, Error> {
        let is_followed = self.plan.features.contains(&Feature::Throttle);
        let sees_more = self.throttle.set_levels(&self.maps, levels)?;
        Ok(is_followed && sees_more)
    }
}

/// The low bits of a pass's number, which the programs compare.
#[allow(
    clippy::cast_possible_truncation,
    reason = "which of two passes that are near each other came first is known all the same"
)]
fn low_bits(pass: u64) -> u32 {
    pass as u32
}
