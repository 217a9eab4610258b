//! The CPU topology that a VMM presents to a guest.

use virtlens_abi::record::CpuidLeaf;
use virtlens_model::vocab::topology::guest::{CpuidEntry, GuestShape, GuestTopology};
use zerocopy::FromBytes;

/// `data` is `kvm_cpuid_entry2`s, as KVM holds them.
pub fn cpuid(data: &[u8]) {
    let leaves = data.chunks_exact(size_of::<CpuidLeaf>());
    let entries: Vec<CpuidEntry> = leaves
        .filter_map(|bytes| CpuidLeaf::read_from_bytes(bytes).ok())
        .map(|leaf| CpuidEntry {
            function: leaf.function,
            index: leaf.index,
            eax: leaf.eax,
            ebx: leaf.ebx,
            ecx: leaf.ecx,
            edx: leaf.edx,
        })
        .collect();
    let Some(guest) = GuestTopology::decode(&entries) else {
        return;
    };
    let ids = (0..130).chain([255, 256, 4095, u32::MAX >> 1, u32::MAX]);
    let ids: Vec<u32> = ids.collect();
    for id in &ids {
        let place = guest.place(*id);
        let all = [place.package, place.die, place.core, *id];
        assert!(all.is_sorted(), "a level is in the one above: {all:?}");
    }
    // Consecutive ids fill a core before the next one.
    let near: Vec<_> = (0..4).map(|id| guest.place(id)).collect();
    assert!(near.is_sorted());
    let places = ids.iter().map(|id| guest.place(*id));
    let mut distinct: Vec<_> = places.clone().collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "no two vCPUs are at one place");
    let shape = GuestShape::of(places).expect("there are vCPUs");
    let room = u64::from(shape.packages) * u64::from(shape.cores) * u64::from(shape.threads);
    assert!(room >= ids.len() as u64, "{shape:?}");
}
