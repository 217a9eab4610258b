//! Passes the location of VMs' RAM to the BPF programs whenever it changes.

use virtlens_host::HostRoot;
use virtlens_model::facts::Facts;
use virtlens_model::fleet::Fleet;
use virtlens_model::vocab::VmKey;
use virtlens_probe::source::TaskPass;

/// Follows the RAM of the VMs in `facts`; returns the number of failures. Such a VM is
/// retried at the next reading, and until then its discards are unknown.
pub fn follow(pass: &mut TaskPass, fleet: &Fleet, root: &HostRoot, facts: &mut Facts) -> u64 {
    let mut blind: Vec<VmKey> = Vec::new();
    for (vm, memory) in &facts.memory {
        let Some(thresholds) = fleet.thresholds(*vm, memory.huge_bytes > 0) else {
            continue;
        };
        let Some(pieces) = pass.new_ram(*vm, thresholds) else {
            continue;
        };
        match virtlens_host::backing(root, vm.tgid, pieces) {
            Ok(ram) => pass.set_ram(*vm, thresholds, &ram),
            Err(error) => {
                tracing::debug!(pid = vm.tgid, %error, "cannot read the memory mappings of a VM");
                blind.push(*vm);
            }
        }
    }
    for vm in &blind {
        if let Some(memory) = facts.memory.get_mut(vm) {
            memory.discards = None;
        }
    }
    blind.len() as u64
}
