//! Loads the programs of a plan and attaches them.

use std::path::Path;

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use zerocopy::FromZeros as _;

use super::TaskPass;
use super::health::Lost;
use super::hooks::Hook;
use super::passes::Tasks;
use super::search::{self, Search};
use crate::decode::{Buffer, Decoder};
use crate::handover::Handover;
use crate::load::{Loaded, Target};
use crate::loader::Loader;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::pins::Pins;
use crate::placement::Placement;
use crate::plan::{Feature, Plan};
use crate::retired::Retired;
use crate::throttle::Throttle;
use crate::{Error, OBJECT, load};

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
        let mut pass = Self::attach(loaded, plan, pins, root)?;
        pass.adopt(states_adopted)?;
        pass.take_over(places)?;
        Ok(pass)
    }

    fn attach(
        loaded: Loaded,
        mut plan: Plan,
        pins: Option<Pins>,
        root: &Path,
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
        let files = files.then(|| programs.attach(search::PROGRAM));
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
        let search = Search::new(&programs, files, root);
        Ok(Self {
            tasks,
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
            search,
            interrupted_before: 0,
            lost: Lost::default(),
        })
    }

    /// Attaches the entry programs for large discards, once. They stay attached: a node
    /// usually runs such VMs again.
    pub(super) fn attach_entries(&mut self) {
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
}

fn not_attached(plan: &Plan, feature: Feature, cause: &dyn std::fmt::Display) -> Plan {
    let reason = format!("cannot attach: {cause}");
    plan.clone().without(feature, reason)
}
