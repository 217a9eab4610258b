//! Residency of vCPUs and their placement, on this host as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Topology};
use virtlens_model::vocab::MismatchKind;
use virtlens_tests::process::{is_halted, set_affinity};
use virtlens_tests::reader::{self, MS, assert_close};
use virtlens_tests::{Minivm, Qemu, eventually, need};

/// Traces every context switch of one thread.
struct Switches {
    object: Object,
    _link: Link,
}

impl Switches {
    fn of(tid: i32) -> Self {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/switches.bpf.o"));
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .expect("it is an object");
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&tid.to_ne_bytes())
                    .expect("it holds the thread's id alone");
            }
        }
        let object = open.load().expect("the kernel takes the oracle");
        let link = object
            .progs_mut()
            .next()
            .expect("there is one program")
            .attach()
            .expect("it can be attached");
        Self {
            object,
            _link: link,
        }
    }

    /// CPU time since the first switch seen, by pCPU, ns.
    fn ran_ns(&self) -> BTreeMap<u32, u64> {
        let map = self.object.maps().find(|map| map.name() == "ran_ns");
        let map = map.expect("it has the map");
        let of = |pcpu: u32| {
            let value = map.lookup(&pcpu.to_ne_bytes(), MapFlags::ANY);
            let bytes = value.expect("it can be read").expect("it is an array");
            u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
        };
        (0..2048)
            .map(|pcpu| (pcpu, of(pcpu)))
            .filter(|(_, ns)| *ns > 0)
            .collect()
    }
}

fn two_cpus() -> Result<(), need::Missing> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    need::that("two_cpus", cpus >= 2, "this host has one CPU")
}

fn by_pcpu() -> Collector {
    Collector::open(&Options {
        pcpu_series: true,
        ..reader::options()
    })
    .expect("the host can be read")
}

/// Moves a spinning vCPU between two CPUs as fast as the kernel can.
#[test]
fn residency_is_exact_over_ten_thousand_migrations() {
    const MOVES: u64 = 10_000;
    let test = "residency_is_exact_over_ten_thousand_migrations";
    if !reader::ready(test) || !need::all(test, [two_cpus()]) {
        return;
    }
    let mut vm = Minivm::start(["--vcpus", "1", "--start", "halt"]);
    let tid = vm.ready.vcpus[0].tid;
    let mut collector = by_pcpu();
    collector.collect();
    let truth = Switches::of(tid);
    // The thread must be running for each affinity change to move it at once; a halted
    // thread moves when it wakes. The oracle counts from the first switch that it sees.
    set_affinity(tid, &[0]);
    vm.burn_vcpus("0", 1);
    rest(&vm);
    let (before, truth_before) = (collector.collect(), truth.ran_ns());
    vm.command("spin 0");
    for flip in 0..MOVES {
        set_affinity(tid, &[usize::from(flip % 2 == 0)]);
        // The thread has to run on both CPUs, not only to be moved.
        std::thread::sleep(Duration::from_micros(20));
    }
    vm.command("halt 0");
    rest(&vm);
    let (after, truth_after) = (collector.collect(), truth.ran_ns());

    let moves = |snapshot: &Snapshot| {
        let moves = reader::vm(snapshot, vm.pid()).moves.expect("followed");
        moves.by_distance.iter().sum::<u64>() + moves.unknown
    };
    assert_eq!(
        moves(&after) - moves(&before),
        MOVES,
        "each move counts once"
    );
    let of = |snapshot: &Snapshot| reader::vm(snapshot, vm.pid()).vcpus[0].clone();
    let (before, after) = (of(&before), of(&after));
    let since = |now: &BTreeMap<u32, u64>, then: &BTreeMap<u32, u64>| -> BTreeMap<u32, u64> {
        now.iter()
            .map(|(pcpu, ns)| (*pcpu, ns - then.get(pcpu).unwrap_or(&0)))
            .collect()
    };
    let reported = since(&after.residency_ns, &before.residency_ns);
    let truth = since(&truth_after, &truth_before);
    let used_ns = after.cpu_ns - before.cpu_ns;
    println!("reported {reported:?}, truth {truth:?}, used {used_ns} ns");
    // A missed move, or one counted twice, would add a far larger error per move.
    let within_ns = (used_ns / 100).max(2 * MS);
    assert_close(
        "the pCPUs together",
        reported.values().sum(),
        used_ns,
        within_ns,
    );
    assert!(truth.len() >= 2, "it ran on both CPUs: {truth:?}");
    for (pcpu, ns) in &truth {
        let reported_ns = reported.get(pcpu).copied().unwrap_or(0);
        assert_close(&format!("pCPU {pcpu}"), reported_ns, *ns, within_ns);
    }
}

fn rest(vm: &Minivm) {
    let (pid, tid) = (vm.pid(), vm.ready.vcpus[0].tid);
    eventually("the vCPU halts", || is_halted(pid, tid).then_some(()));
}

fn topology(snapshot: &Snapshot, vm: &Minivm) -> Arc<Topology> {
    let topology = &reader::vm(snapshot, vm.pid()).topology;
    Arc::clone(topology.as_ref().expect("every VM is judged"))
}

fn kinds(topology: &Topology) -> Vec<MismatchKind> {
    let found = topology.mismatches.iter();
    found.map(|one| one.mismatch.kind).collect()
}

/// Kata's NUMA pinning silently put two vCPUs on one pCPU.
#[test]
fn overlapping_pinned_vcpus_are_found_until_moved() {
    let test = "overlapping_pinned_vcpus_are_found_until_moved";
    if !reader::ready(test) || !need::all(test, [two_cpus()]) {
        return;
    }
    let vm = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    let tids: Vec<i32> = vm.ready.vcpus.iter().map(|vcpu| vcpu.tid).collect();
    let mut collector = reader::collector();
    set_affinity(tids[0], &[0]);
    set_affinity(tids[1], &[0]);
    let first = collector.collect_judged();
    let found = topology(&first, &vm);
    assert_eq!(kinds(&found), [MismatchKind::VcpuOverlap]);
    assert_eq!(found.pinned_vcpus, 2);
    let mismatch = &found.mismatches[0].mismatch;
    assert_eq!(
        (&*mismatch.vcpus, mismatch.pcpus.to_string()),
        (&[0, 1][..], "0".to_owned())
    );

    let misplaced_ns = eventually("their time under it counts", || {
        let second = topology(&collector.collect_judged(), &vm);
        assert_eq!(second.mismatches[0].since, found.mismatches[0].since);
        let misplaced_ns = second.misplaced_ns.of(MismatchKind::VcpuOverlap);
        (misplaced_ns > Some(0)).then_some(misplaced_ns)
    });

    set_affinity(tids[1], &[1]);
    let third = topology(&collector.collect_judged(), &vm);
    assert_eq!(kinds(&third), []);
    assert!(third.misplaced_ns.of(MismatchKind::VcpuOverlap) >= misplaced_ns);
}

/// A helper that may run where a vCPU is pinned, and one that may not.
#[test]
fn helper_on_pcpu_of_pinned_vcpu_is_found() {
    let test = "helper_on_pcpu_of_pinned_vcpu_is_found";
    if !reader::ready(test) || !need::all(test, [two_cpus()]) {
        return;
    }
    let vm = Minivm::start(["--vcpus", "1", "--start", "spin", "--thread", "IO io0=1"]);
    let (vcpu, helper) = (vm.ready.vcpus[0].tid, vm.ready.threads[0].tid);
    let mut collector = reader::collector();
    set_affinity(vcpu, &[0]);
    set_affinity(helper, &[1]);
    assert_eq!(kinds(&topology(&collector.collect_judged(), &vm)), []);
    set_affinity(helper, &[0]);
    let found = topology(&collector.collect_judged(), &vm);
    assert_eq!(kinds(&found), [MismatchKind::HelperOnVcpu]);
    let evidence = &found.mismatches[0].mismatch.evidence;
    assert!(evidence.contains("IO io0"), "{evidence}");
}

/// The CPUID topology that the agent reads equals the one that minivm was given, for each
/// vendor's leaves.
#[test]
fn guest_topology_equals_cpuid() {
    if !reader::ready("guest_topology_equals_cpuid") {
        return;
    }
    for vendor in ["intel", "amd"] {
        let shape = ["--topology", "sockets=2,cores=3,threads=2"];
        let vm = Minivm::start(shape.into_iter().chain(["--vendor", vendor]));
        let snapshot = reader::collector().collect();
        let guest = topology(&snapshot, &vm).guest.expect("it has leaves");
        assert_eq!(
            (guest.packages, guest.cores, guest.threads),
            (2, 3, 2),
            "{vendor}"
        );
        let vcpus = &reader::vm(&snapshot, vm.pid()).vcpus;
        assert_eq!(vcpus.len(), 12);
        let places: Vec<_> = vcpus
            .iter()
            .map(|vcpu| vcpu.guest.expect("it is known"))
            .collect();
        for pair in places.chunks(2) {
            assert_eq!(pair[0].core, pair[1].core, "{vendor}: {places:?}");
            assert_eq!((pair[0].thread, pair[1].thread), (0, 1), "{vendor}");
        }
        assert_ne!(places[0].package, places[11].package, "{vendor}");
    }
    if need::all("guest_topology_equals_cpuid", [need::qemu()]) {
        // An AMD guest without TOPOEXT has no threads, whatever -smp says:
        // parse_topology_amd, arch/x86/kernel/cpu/topology_amd.c, v6.12.
        for (vendor, shape) in [("GenuineIntel", (1, 2, 2)), ("AuthenticAMD", (1, 4, 1))] {
            let cpu = format!("qemu64,-topoext,vendor={vendor}");
            let smp = ["-smp", "4,sockets=1,cores=2,threads=2", "-cpu", &cpu];
            let qemu = Qemu::start(4, smp);
            let snapshot = reader::collector().collect();
            let vm = reader::vm(&snapshot, qemu.pid());
            let topology = vm.topology.as_ref().expect("every VM is judged");
            let guest = topology.guest.expect("QEMU sets it");
            assert_eq!(
                (guest.packages, guest.cores, guest.threads),
                shape,
                "{vendor}"
            );
            assert_eq!(vm.guest_nodes, Some(1));
        }
    }
    let untold = Minivm::start(["--vcpus", "2"]);
    let snapshot = reader::collector().collect();
    let untold = topology(&snapshot, &untold);
    assert_eq!(untold.guest, None);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("sysfs");
    let cpuset = untold.cpuset.as_ref().map(ToString::to_string);
    assert_eq!(cpuset.as_deref(), Some(online.trim()), "nobody confined it");
}
