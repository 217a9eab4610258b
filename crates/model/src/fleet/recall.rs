//! What the next agent is told of the VMs, and what this one was told.
//!
//! The kernel's totals are there for every agent. What only an agent knows is told
//! from one to the next: names, and what is added to those totals or taken off them.
//!
//! ```text
//! told by the agent before ──► still runs ──► admitted with its name and its ledger
//!                          └─► has ended meanwhile ──► read once more, then as any
//!                                                      VM that ends: it lingers, one
//!                                                      of its name takes over
//! ```

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::{Fleet, Member, by_id};
use crate::cgroup;
use crate::facts::{CgroupId, Facts, VmKey};
use crate::features::Features;
use crate::ledger::Ledger;
use crate::level_moves::LastCharged;
use crate::levels::Levels;
use crate::place::Place;
use crate::quota::Allowed;
use crate::snapshot::Scope;
use crate::vmm::{Identity, RUNTIMES, Vmm};

/// What is kept of a VM for the next agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    name: Arc<str>,
    vmm: Vmm,
    runtime: Option<String>,
    place: Option<KeptPlace>,
    #[serde(default)]
    levels: Levels,
    ledger: Ledger,
}

/// Of a [`Place`] what its path does not tell.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptPlace {
    cgroup: CgroupId,
    path: Arc<str>,
    root: Option<CgroupId>,
    levels: Vec<(CgroupId, Scope)>,
    #[serde(default)]
    sandbox_id: Option<String>,
}

impl KeptPlace {
    fn of(place: &Place) -> Self {
        Self {
            cgroup: place.cgroup,
            path: Arc::clone(&place.path),
            root: place.root,
            levels: place.levels.clone(),
            sandbox_id: place.location.sandbox_id.clone(),
        }
    }

    fn place(self) -> Place {
        Place {
            cgroup: self.cgroup,
            location: cgroup::locate(&self.path, self.sandbox_id.as_deref()),
            path: self.path,
            root: self.root,
            levels: self.levels,
            is_new: false,
        }
    }
}

impl Kept {
    fn of(member: &Member) -> Self {
        Self {
            name: Arc::clone(&member.name),
            vmm: member.identity.vmm,
            runtime: member.identity.runtime.map(str::to_owned),
            place: member.place.as_ref().map(KeptPlace::of),
            levels: member.levels.clone(),
            ledger: member.ledger.kept(|path| member.levels.is_held(path)),
        }
    }

    /// What the VM is called on its node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What [`Member::saved`] is of the VM that still runs, at `place`.
    pub(super) fn saved_at(&self, place: Option<&Place>) -> Option<u64> {
        let before = self.place.as_ref().map(|place| place.cgroup);
        (before == place.map(|place| place.cgroup)).then_some(self.ledger.changes)
    }

    /// Name, levels and counters of the VM, which still runs.
    pub(super) fn taken_up(self) -> (Arc<str>, Levels, Ledger) {
        (self.name, self.levels, self.ledger.recalled())
    }

    /// The VM as one that has ended; `is_left` tells whether a cgroup is still there.
    fn ended(self, now_ns: u64, is_left: impl Fn(CgroupId) -> bool) -> Member {
        let mut ledger = self.ledger.recalled();
        ledger.end_unseen(is_left);
        let runtime = self.runtime.as_deref();
        Member {
            identity: Identity {
                vmm: self.vmm,
                name: None,
                runtime: RUNTIMES.into_iter().find(|one| Some(*one) == runtime),
                guest_nodes: None,
                boot_vcpus: None,
                sandbox_id: None,
            },
            name: self.name,
            place: self.place.map(KeptPlace::place),
            overhead: Vec::new(),
            levels: self.levels,
            quota: Vec::new(),
            limits: Vec::new(),
            allowed: Allowed::default(),
            ledger,
            charged: LastCharged::default(),
            ended_ns: Some(now_ns),
            features: Features::default(),
            pod: None,
            saved: Some(0),
        }
    }
}

impl Fleet {
    /// What the next agent is to find and would not yet. To be asked after each
    /// [`Fleet::account`], and kept before what that returned as gone is forgotten: a
    /// VM that took another's counters over has them from there. What was written is
    /// [`Fleet::saved`].
    pub fn unsaved(&self) -> Vec<(VmKey, Kept)> {
        let is_new = |member: &Member| member.saved != Some(member.ledger.changes);
        let new = self.vms.iter().filter(|(_, member)| is_new(member));
        new.map(|(vm, member)| (*vm, Kept::of(member))).collect()
    }

    /// The next agent will find this of the VM.
    pub fn saved(&mut self, vm: VmKey, kept: &Kept) {
        if let Some(member) = self.vms.get_mut(&vm) {
            member.saved = Some(kept.ledger.changes);
        }
    }

    /// Takes up what an agent before this one knew, at the first reading and before
    /// any VM is admitted.
    pub fn recall(&mut self, kept: Vec<(VmKey, Kept)>, facts: &Facts, now_ns: u64) {
        let held: FxHashSet<VmKey> = facts.held().collect();
        let (running, mut ended): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|(vm, _)| held.contains(vm));
        self.recalled = running.into_iter().collect();
        // Two of one name: the newer one took the counters of the other over.
        ended.sort_unstable_by_key(|(vm, _)| std::cmp::Reverse(*vm));
        let cgroups = by_id(facts);
        for (vm, kept) in ended {
            let is_taken = self.recalled.values().any(|one| one.name == kept.name)
                || self.vms.values().any(|one| one.name == kept.name);
            if !is_taken {
                let member = kept.ended(now_ns, |cgroup| cgroups.contains_key(&cgroup));
                self.vms.insert(vm, member);
                self.changes += 1;
            }
        }
        let ended: Vec<VmKey> = self.vms.keys().copied().collect();
        self.read_last(&ended, facts);
    }
}
