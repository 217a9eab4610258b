//! Tells the programs where the RAM of VMs lies, whenever it has moved.

use virtlens_host::HostRoot;
use virtlens_model::facts::Facts;
use virtlens_model::fleet::Fleet;
use virtlens_probe::source::TaskPass;

/// Follows the RAM of the VMs in `facts`. A VM whose process cannot be asked is
/// asked again at the next reading.
pub fn follow(pass: &mut TaskPass, fleet: &Fleet, root: &HostRoot, facts: &Facts) {
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
                tracing::debug!(pid = vm.tgid, %error, "where a VM's RAM lies cannot be asked");
            }
        }
    }
}
