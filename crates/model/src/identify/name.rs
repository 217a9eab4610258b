//! Names of VMs on a node.

use crate::facts::ProcessFact;
use crate::identify::cgroup;
use crate::identify::place::Place;
use crate::identify::vmm::Identity;
use crate::vocab::VmKey;

/// The preferred name of a VM, before it is made unique.
pub fn wanted(
    identity: &Identity,
    place: Option<&Place>,
    process: &ProcessFact,
    vm: VmKey,
) -> String {
    identity
        .name
        .clone()
        .or_else(|| place.and_then(|place| cgroup::machine_name(&place.path)))
        .or_else(|| place.and_then(|place| cgroup::unit_name(&place.path)))
        .unwrap_or_else(|| format!("{}-{}", process.comm, vm.tgid))
}
