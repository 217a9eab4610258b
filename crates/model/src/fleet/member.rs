//! One VM of the fleet.

use std::sync::Arc;

use crate::account::allowed::Allowed;
use crate::account::ledger::Ledger;
use crate::account::level_moves::LastCharged;
use crate::account::levels::Levels;
use crate::identify::place::Place;
use crate::identify::vmm::Identity;
use crate::snapshot::Quota;
use crate::vocab::{CgroupId, Features, Pod};

/// One VM.
#[derive(Debug)]
pub(crate) struct Member {
    /// What its process is.
    pub identity: Identity,
    /// Its name on this node.
    pub name: Arc<str>,
    /// Where its vCPU threads sit.
    pub place: Option<Place>,
    /// Overhead cgroups of its sandbox.
    pub overhead: Vec<CgroupId>,
    /// The cgroups that can limit its threads.
    pub levels: Levels,
    /// Its bandwidth control as last seen: it ends before the VM's last values.
    pub quota: Vec<Quota>,
    /// The level of each scope that binds, likewise.
    pub limits: Vec<Quota>,
    /// What all its limits allow together, likewise.
    pub allowed: Allowed,
    /// Its counters.
    pub ledger: Ledger,
    /// Where its threads were charged.
    pub charged: LastCharged,
    /// When it was first missing, ns on the clock of [`Fleet::account`].
    pub ended_ns: Option<u64>,
    /// What it has to give memory back, as its arguments tell.
    pub features: Features,
    /// What Kubernetes told of its pod; it stays when the pod is gone, as the VM's last
    /// values do.
    pub pod: Option<Pod>,
    /// The changes of its ledger that the next agent will find; `None` before the
    /// first time.
    pub(super) saved: Option<u64>,
}

impl Member {
    /// The order in which VMs are shown: by their pod's uid, then by name.
    pub(super) fn rank(&self) -> (Option<&str>, &str) {
        let place = self.place.as_ref();
        let uid = place.and_then(|place| place.location.uid.as_deref());
        (uid, &self.name)
    }
}
