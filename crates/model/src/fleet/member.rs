//! One VM of the fleet.

use std::sync::Arc;

use crate::account::allowed::Allowed;
use crate::account::ledger::Ledger;
use crate::account::level::Limit;
use crate::account::level_moves::LastCharged;
use crate::account::levels::Levels;
use crate::identify::place::Place;
use crate::identify::vmm::Identity;
use crate::vocab::{CgroupId, Features, Pod};

/// One VM.
#[derive(Debug)]
pub(crate) struct Member {
    /// Identity of its VMM process.
    pub identity: Identity,
    /// Its name on this node.
    pub name: Arc<str>,
    /// Location of its vCPU threads in the cgroup hierarchy.
    pub place: Option<Place>,
    /// Overhead cgroups of its sandbox.
    pub overhead: Vec<CgroupId>,
    /// The cgroups that can limit its threads.
    pub levels: Levels,
    /// The limits of its levels as last seen; the cgroups can be removed before the VM
    /// ends.
    pub limits: Vec<Limit>,
    /// CPU time that all its limits together allow, as last seen.
    pub allowed: Allowed,
    /// Its counters.
    pub ledger: Ledger,
    /// Charges of its threads at the last reading.
    pub charged: LastCharged,
    /// When the VM was first missing, ns on the clock of [`Fleet::account`](super::Fleet::account).
    pub ended_ns: Option<u64>,
    /// Features by which it releases memory, according to its arguments.
    pub features: Features,
    /// Metadata of its pod from Kubernetes. It is kept after the pod was deleted, like
    /// the VM's last values.
    pub pod: Option<Pod>,
    /// The ledger's `changes` that are saved for the next agent; `None` before the first
    /// save.
    pub(super) saved: Option<u64>,
}

impl Member {
    /// Display order of VMs: by pod uid, then by name.
    pub(super) fn rank(&self) -> (Option<&str>, &str) {
        let place = self.place.as_ref();
        let uid = place.and_then(|place| place.location.uid.as_deref());
        (uid, &self.name)
    }
}
