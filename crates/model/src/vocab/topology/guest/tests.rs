use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::{collection, sample};

use self::vmms::{AMD, INTEL, Smp, cloud_hypervisor, firecracker, leaf, levels, qemu, vendor};
use super::{CpuidEntry, GuestPlace, GuestShape, GuestTopology, LEAVES};

mod vmms;

fn without(entries: &[CpuidEntry], functions: &[u32]) -> Vec<CpuidEntry> {
    let keeps = |entry: &&CpuidEntry| !functions.contains(&entry.function);
    entries.iter().filter(keeps).copied().collect()
}

/// Package, core and thread of each APIC id.
fn places(entries: &[CpuidEntry], ids: &[u32]) -> Option<Vec<[u32; 3]>> {
    let topology = GuestTopology::decode(entries)?;
    let place = |id: &u32| {
        let GuestPlace {
            package,
            core,
            thread,
            ..
        } = topology.place(*id);
        [package, core, thread]
    };
    Some(ids.iter().map(place).collect())
}

const FOUR: [u32; 4] = [0, 1, 2, 3];
const TWO_BY_TWO: [[u32; 3]; 4] = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]];
const FOUR_CORES: [[u32; 3]; 4] = [[0, 0, 0], [0, 1, 0], [0, 2, 0], [0, 3, 0]];
const FOUR_PACKAGES: [[u32; 3]; 4] = [[0, 0, 0], [1, 1, 0], [2, 2, 0], [3, 3, 0]];

#[test]
fn qemu_topology_is_decoded_from_any_leaves() {
    let smp = Smp::new(1, 1, 2, 2);
    let intel = qemu(smp, INTEL);
    let amd = qemu(smp, AMD);
    for (case, entries) in [
        ("Intel", intel.clone()),
        ("AMD with topoext", amd.clone()),
        // `cpuid-0xb=off`, as on old machine types.
        ("Intel, leaves 4 and 1", without(&intel, &[0xb])),
        ("AMD, leaves 8 and 1E", without(&amd, &[0xb])),
        ("no leaf with TOPOEXT", without(&amd, &[0x8000_0001])),
        ("no vendor", without(&intel, &[0])),
    ] {
        assert_eq!(places(&entries, &FOUR), Some(TWO_BY_TWO.to_vec()), "{case}");
    }
}

#[test]
fn amd_guest_without_topoext_has_cores_only() {
    let mut entries = without(&qemu(Smp::new(1, 1, 2, 2), AMD), &[0x8000_0001]);
    entries.push(leaf(0x8000_0001, 0, [0, 0, 2, 0]));
    assert_eq!(places(&entries, &FOUR), Some(FOUR_CORES.to_vec()));
}

#[test]
fn each_vcpu_is_a_package_in_go_katas_qemu() {
    let smp = Smp::new(4, 1, 1, 1);
    for name in [INTEL, AMD] {
        let entries = qemu(smp, name);
        assert_eq!(places(&entries, &FOUR), Some(FOUR_PACKAGES.to_vec()));
        let bare = without(&entries, &[0xb, 4]);
        assert_eq!(places(&bare, &FOUR), Some(FOUR_PACKAGES.to_vec()));
    }
}

#[test]
fn ids_are_sparse_where_counts_are_no_powers_of_two() {
    let smp = Smp::new(2, 1, 3, 1);
    assert_eq!(smp.apic_ids(), [0, 1, 2, 4, 5, 6]);
    let sparse = places(&qemu(smp, INTEL), &smp.apic_ids()).expect("leaves");
    let packages: Vec<u32> = sparse.iter().map(|[package, ..]| *package).collect();
    assert_eq!(packages, [0, 0, 0, 1, 1, 1]);
}

#[test]
fn dies_come_from_leaf_1f() {
    let smp = Smp::new(2, 2, 2, 2);
    let topology = GuestTopology::decode(&qemu(smp, INTEL)).expect("leaves");
    let ids = smp.apic_ids();
    let dies: Vec<u32> = ids.iter().map(|id| topology.place(*id).die).collect();
    assert_eq!(dies, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    assert_eq!(topology.place(15).package, 1);
    // A module is part of a die.
    let modules = levels(0x1f, &[(1, 1, 2), (2, 2, 4), (3, 3, 8), (5, 4, 16)]);
    let topology = GuestTopology::decode(&modules).expect("a leaf");
    let place = topology.place(0b1_1010);
    assert_eq!((place.package, place.die, place.core), (1, 3, 13));
    // AMD's own leaf: complex of cores, die, socket.
    let amd = levels(0x8000_0026, &[(1, 1, 2), (2, 2, 4), (3, 3, 8), (4, 4, 16)]);
    let topology = GuestTopology::decode(&[vec![vendor(AMD, 0x10)], amd].concat());
    let place = topology.expect("a leaf").place(0b1_0110);
    assert_eq!((place.package, place.core, place.thread), (1, 11, 0));
}

#[test]
fn cloud_hypervisor_is_read_without_its_core_ids() {
    for name in [INTEL, AMD] {
        let entries = cloud_hypervisor(name, Smp::new(1, 1, 2, 2));
        assert_eq!(places(&entries, &FOUR), Some(TWO_BY_TWO.to_vec()));
        // Kata: one package sized for the maximum number of vCPUs.
        let entries = cloud_hypervisor(name, Smp::new(1, 1, 4, 1));
        assert_eq!(places(&entries, &FOUR), Some(FOUR_CORES.to_vec()));
    }
    let amd = cloud_hypervisor(AMD, Smp::new(1, 1, 2, 2));
    let old = without(&amd, &[0xb, 0x1f]);
    assert_eq!(places(&old, &FOUR), Some(TWO_BY_TWO.to_vec()));
}

#[test]
fn firecracker_has_one_package() {
    assert_eq!(
        places(&firecracker(4, true), &FOUR),
        Some(TWO_BY_TWO.to_vec())
    );
    assert_eq!(
        places(&firecracker(4, false), &FOUR),
        Some(FOUR_CORES.to_vec())
    );
    let odd = places(&firecracker(3, false), &[0, 1, 2]).expect("leaves");
    assert!(odd.iter().all(|[package, ..]| *package == 0));
}

#[test]
fn dragonball_leaves_agree() {
    let smp = Smp::new(1, 1, 2, 2);
    for name in [INTEL, AMD] {
        let mut entries = qemu(smp, name);
        let v2 = [(1, 1, 2), (2, 2, 4), (5, 2, 4)];
        entries.extend(levels(0x1f, &v2));
        for gone in [&[][..], &[0x1f], &[0x1f, 0xb]] {
            let entries = without(&entries, gone);
            assert_eq!(places(&entries, &FOUR), Some(TWO_BY_TWO.to_vec()));
        }
    }
}

#[test]
fn missing_cpuid_leaves_are_unknown() {
    let empty_leaf: Vec<CpuidEntry> = (0..2).map(|index| leaf(0xb, index, [0; 4])).collect();
    for (case, entries) in [
        ("nothing", Vec::new()),
        ("a vendor", vec![vendor(INTEL, 0x1f)]),
        ("AMD without its leaves", vec![vendor(AMD, 0x10)]),
        ("an empty leaf", empty_leaf),
        ("type without processors", levels(0xb, &[(1, 1, 0)])),
        ("processors without type", levels(0xb, &[(0, 1, 2)])),
        (
            "a package smaller than its cores",
            levels(0xb, &[(1, 3, 8), (2, 1, 2)]),
        ),
    ] {
        assert_eq!(GuestTopology::decode(&entries), None, "{case}");
    }
}

#[test]
fn leaves_above_maximum_are_ignored() {
    let mut entries = qemu(Smp::new(1, 1, 4, 1), INTEL);
    entries[0] = vendor(INTEL, 0xb);
    entries.extend(levels(0x1f, &[(1, 2, 4), (2, 2, 4)]));
    assert_eq!(places(&entries, &FOUR), Some(FOUR_CORES.to_vec()));
}

#[test]
fn threads_with_shift_0_are_decoded() {
    let entries = [
        vec![vendor(INTEL, 0xb)],
        levels(0xb, &[(1, 0, 2), (2, 2, 4)]),
    ]
    .concat();
    assert_eq!(places(&entries, &FOUR), Some(TWO_BY_TWO.to_vec()));
}

#[test]
fn shape_counts_present_vcpus() {
    let shape = |smp: Smp, name, ids: &[u32]| {
        let topology = GuestTopology::decode(&qemu(smp, name)).expect("leaves");
        let shape = GuestShape::of(ids.iter().map(|id| topology.place(*id)))?;
        Some((shape.packages, shape.cores, shape.threads))
    };
    let smp = Smp::new(2, 1, 2, 2);
    assert_eq!(shape(smp, INTEL, &smp.apic_ids()), Some((2, 2, 2)));
    assert_eq!(shape(smp, AMD, &smp.apic_ids()), Some((2, 2, 2)));
    assert_eq!(shape(smp, AMD, &[]), None);
    // Go Kata: eight sockets can be plugged, three are.
    let kata = Smp::new(8, 1, 1, 1);
    assert_eq!(shape(kata, INTEL, &[0, 1, 2]), Some((3, 1, 1)));
    // One more vCPU was plugged, into the second package.
    assert_eq!(shape(smp, INTEL, &[0, 1, 2, 3, 4]), Some((2, 2, 2)));
}

proptest! {
    #[test]
    fn every_encoded_shape_is_decoded(
        sockets in 1u32..5, dies in 1u32..4, cores in 1u32..9, threads in 1u32..5,
        // QEMU gives AMD CPUs no separate dies.
        amd in any::<bool>(),
    ) {
        let smp = Smp::new(sockets, if amd { 1 } else { dies }, cores, threads);
        let topology = GuestTopology::decode(&qemu(smp, if amd { AMD } else { INTEL }));
        let places: Vec<GuestPlace> = smp
            .apic_ids()
            .iter()
            .map(|id| topology.expect("leaves").place(*id))
            .collect();
        for (index, place) in (0u32..).zip(&places) {
            prop_assert_eq!(place.package, index / smp.per_socket());
            prop_assert_eq!(place.thread, index % threads);
        }
        for (i, one) in places.iter().enumerate() {
            for (j, two) in places.iter().enumerate() {
                let together = |size: u32| i / size as usize == j / size as usize;
                prop_assert_eq!(one.core == two.core, together(threads));
                prop_assert_eq!(one.die == two.die, together(cores * threads));
            }
        }
        let shape = GuestShape::of(places).expect("vCPUs");
        prop_assert_eq!(
            (shape.packages, shape.cores, shape.threads),
            (sockets, smp.dies * cores, threads)
        );
    }

    #[test]
    fn any_leaves_are_decoded_or_refused(
        entries in collection::vec(
            (sample::select(LEAVES.to_vec()), 0u32..4, any::<[u32; 4]>()),
            0..40,
        ),
        id in any::<u32>(),
    ) {
        let entries: Vec<CpuidEntry> = entries
            .into_iter()
            .map(|(function, index, registers)| leaf(function, index, registers))
            .collect();
        if let Some(topology) = GuestTopology::decode(&entries) {
            let place = topology.place(id);
            prop_assert_eq!(topology.place(id), place);
            // The core number and the thread number together are the APIC id.
            prop_assert_eq!(
                u64::from(place.core) << topology.core | u64::from(place.thread),
                u64::from(id)
            );
        }
    }
}
