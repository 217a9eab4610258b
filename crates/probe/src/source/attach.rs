//! Loads the programs of a plan; attaches them for VMs, and detaches them without VMs.

use std::path::Path;

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::Facts;
use zerocopy::FromZeros as _;

use super::TaskPass;
use super::health::Lost;
use super::hooks::{Attachment, Hook};
use super::passes::Tasks;
use super::search::{self, Search};
use crate::decode::{Buffer, Decoder};
use crate::handover::Handover;
use crate::load::{Loaded, Target};
use crate::loader::Loader;
use crate::maps::{Maps, STATES_HASH};
use crate::memory::Memory;
use crate::pins::Pins;
use crate::placement::Placement;
use crate::plan::{Feature, Plan};
use crate::retired::Retired;
use crate::throttle::Throttle;
use crate::{Error, OBJECT, load, sys};

impl TaskPass {
    /// Loads the programs of `plan` with `loader` and attaches them, or lets them wait for a
    /// VM ([`Plan::detach_after`]). `root` contains
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
        let mut pass = Self::new(loaded, plan, pins, root)?;
        pass.adopt(states_adopted)?;
        pass.attach_at_start();
        pass.take_over(places)?;
        Ok(pass)
    }

    fn new(loaded: Loaded, mut plan: Plan, pins: Option<Pins>, root: &Path) -> Result<Self, Error> {
        let Loaded {
            programs,
            mut maps,
            which,
            states_complete,
            ..
        } = loaded;
        let tasks = Tasks::of(&programs, &plan, &mut maps)?;
        let files = plan.features.contains(&Feature::FilePass);
        let files = files.then(|| programs.attach(search::PROGRAM));
        let files = files.transpose().unwrap_or_else(|cause| {
            plan = not_attached(&plan, Feature::FilePass, &cause);
            None
        });
        let maps = Maps::of(maps)?;
        let search = Search::new(&programs, files, root);
        Ok(Self {
            tasks,
            hooks: Vec::new(),
            attachment: Attachment::Waiting,
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
            remembered: None,
            search,
            interrupted_before: 0,
            lost: Lost::default(),
        })
    }

    /// Attaches all programs now unless the plan lets them wait for a VM. They do not wait if
    /// a former agent left any attached, or left counts.
    fn attach_at_start(&mut self) {
        let mut pins = self.pins.iter();
        let is_left =
            pins.any(Pins::has_links) || !self.left.is_empty() || !self.watched.is_empty();
        if self.plan.detach_after.is_none() || is_left {
            self.attach_hooks();
            self.attachment = Attachment::NEW;
        } else {
            self.control.shown_ns = 0;
        }
    }

    /// While programs wait for a VM, looks for one and attaches them. So they run before the
    /// pass that first shows the VM, and later readings miss nothing; until then the kernel's
    /// counters of its threads are enough. Without a VM, returns what was read.
    ///
    /// # Errors
    /// As [`TaskPass::read`].
    pub(super) fn attach_for_vm(&mut self) -> Result<Option<Facts>, Error> {
        if !self.waits_for_vm() {
            return Ok(None);
        }
        let (facts, _) = self.whole_pass()?;
        if facts.vms.is_empty() {
            return Ok(Some(facts));
        }
        self.decoder.recycle(facts);
        self.attach_hooks();
        self.set_active(true)?;
        self.attachment = Attachment::NEW;
        // Single threads may have been moved to other cgroups unseen.
        self.search.visits_all = true;
        Ok(None)
    }

    /// Attaches the programs that are not attached yet.
    fn attach_hooks(&mut self) {
        for feature in Feature::ALL.into_iter().filter(|one| one.has_hooks()) {
            if self.plan.features.contains(&feature) {
                let at_need = feature.attached_at_need();
                let names = self.plan.programs_of(feature).iter();
                self.attach(feature, names.filter(|name| !at_need.contains(name)));
            }
            if let Some(pins) = &self.pins
                && self.plan.features.contains(&feature)
            {
                // A former agent attached these for a VM that still needs them.
                let names = feature.attached_at_need().iter();
                let names = names.filter(|name| self.hooks.iter().all(|one| one.name != **name));
                let (programs, which) = (&mut self.programs, self.which);
                let left =
                    names.filter_map(|name| Hook::left(programs, (feature, name), pins, which));
                let left: Vec<_> = left.collect();
                self.hooks.extend(left);
            }
        }
    }

    /// Attaches the entry programs for large discards, until there is no VM.
    pub(super) fn attach_entries(&mut self) {
        let entries = Feature::Memory.attached_at_need();
        self.attach(Feature::Memory, entries.iter());
    }

    /// Attaches those of these programs that are not attached yet. If one cannot be attached,
    /// the feature is left out.
    fn attach(&mut self, feature: Feature, names: impl Iterator<Item = &'static &'static str>) {
        for name in names {
            if self.hooks.iter().any(|hook| hook.name == *name) {
                continue;
            }
            let (pins, which) = (self.pins.as_ref(), self.which);
            match Hook::attach(&mut self.programs, (feature, name), pins, which) {
                Ok(hook) => self.hooks.push(hook),
                Err(cause) => return self.leave_out(feature, &cause),
            }
        }
    }

    fn leave_out(&mut self, feature: Feature, cause: &Error) {
        let before = self.interrupted(&self.programs());
        if let Err(error) = self.detach(|hook| hook.feature == feature) {
            tracing::warn!(%error, "cannot remove the pin of an attached program");
            self.hooks.retain(|hook| hook.feature != feature);
        }
        self.plan = not_attached(&self.plan, feature, cause);
        let after = self.interrupted(&self.programs());
        self.interrupted_before += before.saturating_sub(after);
    }

    /// Detaches these programs, also from the next agent.
    fn detach(&mut self, which: impl Fn(&Hook) -> bool) -> Result<(), Error> {
        while let Some(at) = self.hooks.iter().position(&which) {
            if let (Some(hook), Some(pins)) = (self.hooks.get(at), &self.pins) {
                hook.unpin(pins, self.which)?;
            }
            self.hooks.swap_remove(at);
        }
        Ok(())
    }

    /// Whether the programs on hooks wait for a VM.
    pub fn waits_for_vm(&self) -> bool {
        self.attachment == Attachment::Waiting
    }

    /// To be called after each reading. `is_idle`: no VM is shown, and the data of all former
    /// VMs is removed. Detaches the programs once that was so for as long as the plan says.
    ///
    /// # Errors
    /// [`Error::Map`] or [`Error::Pin`]: some are still attached, and the next call goes on.
    pub fn detach_when_idle(&mut self, is_idle: bool) -> Result<(), Error> {
        match self.plan.detach_after {
            Some(limit) if self.attachment.is_over(is_idle, sys::boot_ns(), limit) => {
                self.detach_all()
            }
            _ => Ok(()),
        }
    }

    /// Detaches the programs: without a VM they have nothing to count.
    ///
    /// # Errors
    /// As [`TaskPass::detach_when_idle`].
    pub fn detach_all(&mut self) -> Result<(), Error> {
        if !self.waits_for_vm() {
            self.set_active(false)?;
        }
        // From here on readings attach what they need, so a failure does no harm.
        self.attachment = Attachment::Waiting;
        self.known.clear();
        // Threads that live on were in no reading of the VMs to come.
        self.control.shown_ns = 0;
        // Before v5.13 an fentry program can be attached only once: f3a95075549e ("bpf: Allow
        // trampoline re-attach for tracing and lsm programs"). Tracing programs can use task
        // storage since the same version.
        let kept: Vec<&str> = if self.plan.task_storage {
            Vec::new()
        } else {
            let names = self.hooks.iter().map(|hook| hook.name);
            names
                .filter(|name| self.programs.is_at_function(name))
                .collect()
        };
        if self.hooks.len() == kept.len() {
            return Ok(());
        }
        if !self.plan.task_storage {
            // While no program sees threads exit, the hash would keep the states of former ones.
            self.maps.clear(STATES_HASH)?;
        }
        self.detach(|hook| !kept.contains(&hook.name))
    }
}

fn not_attached(plan: &Plan, feature: Feature, cause: &dyn std::fmt::Display) -> Plan {
    let reason = format!("cannot attach: {cause}");
    plan.clone().without(feature, reason)
}
