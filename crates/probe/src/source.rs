//! The BPF source: loads the plan's programs, runs passes, reads maps.

mod adopt;
mod extras;
mod health;
mod hooks;
mod passes;
mod vhost;
mod walk;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use health::Lost;
use hooks::Hook;
use passes::Tasks;
use rustc_hash::{FxHashMap, FxHashSet};
use vhost::Vhost;
use virtlens_abi as abi;
use virtlens_model::facts::{Facts, Piece, RamPiece, VmFact, WatchedCgroup};
use virtlens_model::identify::features::Thresholds;
use virtlens_model::vocab::topology::host::HostTopology;
use virtlens_model::vocab::{CgroupId, Owner, ThreadKey, VhostDevice, VmKey};
use zerocopy::{FromZeros as _, IntoBytes};

use crate::decode::{self, Buffer, Decoder};
use crate::handover::Handover;
use crate::load::{Loaded, Programs, Target};
use crate::loader::Loader;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::pins::Pins;
use crate::placement::Placement;
use crate::plan::{Feature, Plan};
use crate::retired::Retired;
use crate::sys::map::Batch;
use crate::throttle::Throttle;
use crate::{Error, OBJECT, load};

/// The loaded programs and the state needed to read them.
pub struct TaskPass {
    tasks: Tasks,
    files: Option<OwnedFd>,
    hooks: Vec<Hook>,
    memory_hooks: Vec<Hook>,
    /// Programs that are attached once a VM needs them.
    unattached: &'static [&'static str],
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
    /// VMs found by the pass over open files.
    by_fds: Vec<VmFact>,
    /// The vCPUs of these VMs that have run.
    has_run: Arc<FxHashMap<VmKey, Vec<u32>>>,
    vhost: Vhost,
    /// The device of each vhost worker, as found by that pass.
    vhost_devices: Arc<FxHashMap<ThreadKey, VhostDevice>>,
    /// Failed passes over open files.
    file_pass_errors: u64,
    /// Missed runs of programs that are no longer attached.
    interrupted_before: u64,
    /// Losses as last read: if a counter cannot be read, its last value stays.
    lost: Lost,
}

impl TaskPass {
    /// Loads the programs of `plan` with `loader` and attaches them. `root` contains
    /// /sys; `cgroup_v1`: the cpu controller is in a v1 hierarchy. With `pins` it
    /// continues the counters of the former agent, and leaves everything behind for the
    /// next one. Features that the kernel rejects are left out, with the reason, as long
    /// as the task pass itself can be loaded.
    ///
    /// # Errors
    /// [`Error::Impossible`] if the plan has no task pass, [`Error::Load`] if the kernel
    /// rejects it, [`Error::Pin`] if `pins` cannot be used.
    pub fn load(
        root: &Path,
        loader: Loader,
        plan: Plan,
        cgroup_v1: bool,
        pins: Option<Pins>,
    ) -> Result<Self, Error> {
        Self::load_object(OBJECT, root, loader, plan, cgroup_v1, pins)
    }

    /// Like [`TaskPass::load`], with another build of [`OBJECT`].
    ///
    /// # Errors
    /// As [`TaskPass::load`].
    pub fn load_object(
        object: &[u8],
        root: &Path,
        loader: Loader,
        mut plan: Plan,
        cgroup_v1: bool,
        pins: Option<Pins>,
    ) -> Result<Self, Error> {
        if !plan.features.contains(&Feature::TaskPass) {
            let reason = plan.left_out.first().map_or("", |(_, reason)| reason);
            return Err(Error::Impossible(reason.to_owned()));
        }
        plan.walks &= loader.lacks().is_none();
        let target = Target {
            object,
            loader,
            cgroup_v1,
            pins: pins.as_ref(),
        };
        let mut loaded = load::object(&target, &mut plan)?;
        let places = std::mem::take(&mut loaded.places);
        let states_adopted = loaded.states_adopted;
        let mut pass = Self::attach(loaded, plan, pins, Vhost::new(root))?;
        pass.adopt(states_adopted)?;
        pass.take_over(places)?;
        Ok(pass)
    }

    fn attach(
        loaded: Loaded,
        mut plan: Plan,
        pins: Option<Pins>,
        vhost: Vhost,
    ) -> Result<Self, Error> {
        let Loaded {
            programs,
            mut maps,
            which,
            states_complete,
            ..
        } = loaded;
        let tasks = Tasks::of(&programs, &plan, &mut maps)?;
        let files = plan.features.contains(&Feature::FilePass);
        let files = files.then(|| programs.attach("sample_files"));
        let files = files.transpose().unwrap_or_else(|cause| {
            plan = not_attached(&plan, Feature::FilePass, &cause);
            None
        });
        let mut optional = |feature: Feature| -> Vec<Hook> {
            if !plan.features.contains(&feature) {
                return Vec::new();
            }
            let hooks: Result<Vec<_>, _> = plan
                .programs_of(feature)
                .iter()
                .filter(|name| !feature.attached_at_need().contains(name))
                .map(|name| Hook::attach(&programs, name, pins.as_ref(), which))
                .collect();
            hooks.unwrap_or_else(|cause| {
                plan = not_attached(&plan, feature, &cause);
                Vec::new()
            })
        };
        let mut hooks = optional(Feature::Lifetime);
        hooks.extend(optional(Feature::Rename));
        hooks.extend(optional(Feature::Placement));
        hooks.extend(optional(Feature::Throttle));
        let mut memory_hooks = optional(Feature::Memory);
        // A former agent attached these for a VM that still needs them.
        let at_need = Feature::Memory.attached_at_need();
        let left = pins
            .iter()
            .flat_map(|pins| Hook::left(pins, at_need, which));
        memory_hooks.extend(left);
        let maps = Maps::of(maps)?;
        Ok(Self {
            tasks,
            files,
            hooks,
            unattached: if memory_hooks.iter().any(|hook| at_need.contains(&hook.name)) {
                &[]
            } else {
                at_need
            },
            memory_hooks,
            programs,
            which,
            states_complete,
            maps,
            dropped_maps: 0,
            left: FxHashSet::default(),
            is_settled: pins.is_none(),
            pins,
            plan,
            decoder: Decoder::default(),
            stream: Buffer::default(),
            retired: Retired::default(),
            placement: Placement::default(),
            throttle: Throttle::default(),
            memory: Memory::default(),
            handover: Handover::default(),
            wants_residency: false,
            state_entries: None,
            control: abi::Control::new_zeroed(),
            watched: FxHashSet::default(),
            known: FxHashSet::default(),
            by_fds: Vec::new(),
            has_run: Arc::default(),
            vhost,
            vhost_devices: Arc::default(),
            file_pass_errors: 0,
            interrupted_before: 0,
            lost: Lost::default(),
        })
    }

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
        self.add_by_fds(&mut facts);
        // The programs receive these values with the next pass.
        self.control.shown_pass = low_bits(self.control.pass);
        self.control.shown_ns = self.control.begun_ns;
        Ok(facts)
    }

    /// Recycles facts that are no longer needed: the next reading reuses their memory.
    pub fn recycle(&mut self, facts: Facts) {
        self.decoder.recycle(facts);
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

    /// Removes all data of owners that no longer exist.
    ///
    /// # Errors
    /// [`Error::Map`]: the removal is incomplete; a call with the same owners does the
    /// rest.
    pub fn forget(&mut self, owners: &FxHashSet<Owner>) -> Result<(), Error> {
        if owners.is_empty() {
            return Ok(());
        }
        self.retired.forget(&self.maps, owners)?;
        self.throttle.forget(&self.maps, owners)?;
        self.placement.forget_children(&self.maps, owners)?;
        let gone: FxHashSet<VmKey> = owners
            .iter()
            .filter_map(|owner| {
                if let Owner::Vm(vm) = owner {
                    Some(*vm)
                } else {
                    None
                }
            })
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        for vm in &gone {
            self.known.remove(vm);
            self.decoder.forget(*vm);
            self.forget_vm(*vm)?;
        }
        self.placement.forget(&self.maps, &gone)?;
        self.memory.forget(&self.maps, &gone)?;
        self.handover.forget(&self.maps, &gone)?;
        self.forget_mms(&gone)
    }

    /// Attaches the entry programs for large discards, once. They stay attached: a node
    /// usually runs such VMs again.
    fn attach_entries(&mut self) {
        let entries = std::mem::take(&mut self.unattached).iter();
        let (pins, which) = (self.pins.as_ref(), self.which);
        let hooks: Result<Vec<_>, _> = entries
            .map(|name| Hook::attach(&self.programs, name, pins, which))
            .collect();
        match hooks {
            Ok(hooks) => self.memory_hooks.extend(hooks),
            Err(cause) => {
                let before = self.interrupted(&self.programs());
                self.memory_hooks.clear();
                self.plan = not_attached(&self.plan, Feature::Memory, &cause);
                let after = self.interrupted(&self.programs());
                self.interrupted_before += before.saturating_sub(after);
            }
        }
    }

    fn forget_vm(&self, vm: VmKey) -> Result<(), Error> {
        let known: Option<abi::map::Vm> = self.maps.get("vms", vm.tgid.as_bytes())?;
        // Another VM may have this pid by now.
        if known.is_some_and(|known| known.start_ns == vm.start_ns) {
            self.maps.delete("vms", vm.tgid.as_bytes())?;
        }
        Ok(())
    }

    fn forget_mms(&self, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        let mut keys: Vec<u64> = Vec::new();
        let mut batch = Batch::<u64, abi::Owner>::default();
        self.maps.each("vm_mms", &mut batch, |mm, owner| {
            if matches!(decode::owner(*owner), Owner::Vm(vm) if gone.contains(&vm)) {
                keys.push(*mm);
            }
        })?;
        let delete = |mm: &u64| self.maps.delete("vm_mms", mm.as_bytes());
        keys.iter().try_for_each(delete)
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

fn not_attached(plan: &Plan, feature: Feature, cause: &dyn std::fmt::Display) -> Plan {
    let reason = format!("cannot be attached: {cause}");
    plan.clone().without(feature, reason)
}
