//! State of a VM for the next agent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::account::allowed::Allowed;
use crate::account::ledger::Ledger;
use crate::account::level_moves::LastCharged;
use crate::account::levels::Levels;
use crate::fleet::member::Member;
use crate::identify::cgroup;
use crate::identify::place::Place;
use crate::identify::vmm::{Identity, RUNTIMES, Vmm};
use crate::vocab::{CgroupId, Features, Scope};

/// State of a VM for the next agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    pub(super) name: Arc<str>,
    pub(super) vmm: Vmm,
    pub(super) runtime: Option<String>,
    pub(super) place: Option<KeptPlace>,
    #[serde(default)]
    pub(super) levels: Levels,
    pub(super) ledger: Ledger,
}

/// The stored parts of a [`Place`]; the location is parsed from the path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeptPlace {
    cgroup: CgroupId,
    path: Arc<str>,
    root: Option<CgroupId>,
    levels: Vec<(CgroupId, Scope)>,
    #[serde(default)]
    sandbox_id: Option<String>,
}

impl KeptPlace {
    pub(super) fn of(place: &Place) -> Self {
        Self {
            cgroup: place.cgroup,
            path: Arc::clone(&place.path),
            root: place.root,
            levels: place.levels.clone(),
            sandbox_id: place.location.sandbox_id.clone(),
        }
    }

    pub(super) fn place(self) -> Place {
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
    pub(super) fn of(member: &Member) -> Self {
        Self {
            name: Arc::clone(&member.name),
            vmm: member.identity.vmm,
            runtime: member.identity.runtime.map(str::to_owned),
            place: member.place.as_ref().map(KeptPlace::of),
            levels: member.levels.clone(),
            ledger: member.ledger.kept(|path| member.levels.is_held(path)),
        }
    }

    /// Name of the VM on its node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// [`Member::saved`] of the restored VM, which still runs at `place`.
    pub(super) fn saved_at(&self, place: Option<&Place>) -> Option<u64> {
        let before = self.place.as_ref().map(|place| place.cgroup);
        (before == place.map(|place| place.cgroup)).then_some(self.ledger.changes)
    }

    /// Name, levels and counters of the VM, which still runs.
    pub(super) fn taken_up(self) -> (Arc<str>, Levels, Ledger) {
        (self.name, self.levels, self.ledger.recalled())
    }

    /// The VM as an ended one; `is_left` returns whether a cgroup still exists.
    pub(super) fn ended(self, now_ns: u64, is_left: impl Fn(CgroupId) -> bool) -> Member {
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
