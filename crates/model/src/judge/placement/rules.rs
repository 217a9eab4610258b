//! All rules over the VMs of a host.

use crate::judge::placement::plan::FreeCores;
use crate::judge::placement::types::{Judgement, VmPlacement};
use crate::judge::placement::{cores, location, pins, remedy, spread};
use crate::vocab::topology::host::HostTopology;

/// Judges all VMs of a host, in their order. All VMs must be included: whether a vCPU
/// overlaps or could run elsewhere depends on the other VMs.
pub fn judge(host: &HostTopology, vms: &[VmPlacement]) -> Vec<Judgement> {
    let located = location::LocatedHost::of(host, vms);
    let pins = pins::Pins::of(&located);
    let mut free = FreeCores::new(&located, &pins);
    (0..vms.len())
        .map(|index| {
            let vm = located.vm(index);
            let (pairs, mut found) = cores::judge(&located, &vm);
            found.extend(pins.overlaps(&located, index));
            found.extend(spread::nodes(&located, &vm));
            found.extend(spread::caches(&located, &vm));
            found.extend(pins::helpers(&located, &vm));
            found.extend(spread::memory(&located, &vm));
            Judgement {
                pairs,
                pinned_vcpus: vm.pinned(),
                mismatches: remedy::add(&located, &mut free, index, found),
            }
        })
        .collect()
}
