//! All rules over the VMs of a host.

use crate::judge::placement::types::{Judgement, VmPlacement};
use crate::judge::placement::{cores, pins, seat, spread};
use crate::vocab::topology::host::HostTopology;

/// Judges all VMs of a host, in their order. All VMs must be included: whether a vCPU
/// overlaps or could run elsewhere depends on the other VMs.
pub fn judge(host: &HostTopology, vms: &[VmPlacement]) -> Vec<Judgement> {
    let seated = seat::Seated::of(host, vms);
    let pins = pins::Pins::of(&seated);
    (0..vms.len())
        .map(|index| {
            let vm = seated.vm(index);
            let (pairs, mut mismatches) = cores::judge(&seated, &vm);
            mismatches.extend(pins.overlaps(&seated, index));
            mismatches.extend(spread::nodes(&seated, &vm));
            mismatches.extend(spread::caches(&seated, &vm));
            mismatches.extend(pins::helpers(&seated, &vm));
            mismatches.extend(spread::memory(&seated, &vm));
            Judgement {
                pairs,
                pinned_vcpus: vm.pinned(),
                mismatches,
            }
        })
        .collect()
}
