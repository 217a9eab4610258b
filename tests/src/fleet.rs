//! A synthetic node with many VMs, for tests of size and cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use virtlens_export::Scrape;
use virtlens_model::snapshot::{
    Memory, Pairs, Quota, RoleUse, Topology, Vcpu, VcpuCount, Vm, Worker,
};
use virtlens_model::vocab::topology::guest::GuestShape;
use virtlens_model::vocab::{
    DirtyLogging, Discards, ExitCounts, Feature, Features, HaltPoll, KvmCounters, KvmValues,
    Mapped, MemoryEvents, MismatchKind, Mmu, Moves, PRESSURES, Polls, Pressure, Role, Scope,
    Throttle, Yields,
};

use crate::blank;

/// Kata pods whose numbers all differ; none is round.
pub fn reading(vms: u32, vcpus: u32) -> Arc<Scrape> {
    let mut ns = Numbers(1);
    let vms = (0..vms).map(|index| vm(index, vcpus, &mut ns)).collect();
    blank::reading(Arc::new(blank::snapshot(vms)))
}

struct Numbers(u64);

impl Numbers {
    /// Returns the next number of an LCG (Knuth's constants), at most 34 CPU-years.
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }
}

fn vm(index: u32, vcpus: u32, ns: &mut Numbers) -> Vm {
    let workers = [(Role::Vhost, 0), (Role::Vhost, 1), (Role::Virtiofsd, 0)];
    Vm {
        namespace: Some(format!("team-{}", index % 20).into()),
        pod: Some(format!("checkout-service-7d9f8b6c5d-{index:05}").into()),
        uid: Some(format!("{:08x}-1b2c-4d3e-8f90-a1b2c3d4e5f6", ns.next() >> 8).into()),
        pod_spec: None,
        vm: format!("sandbox-{:016x}{:016x}", ns.next(), ns.next()).into(),
        vmm: "qemu",
        runtime: Some("kata"),
        cgroup_layout: Some("pod"),
        pid: 1000 + index,
        cgroup: None,
        running: true,
        roles: roles()
            .map(|role| RoleUse {
                role,
                threads: 3,
                cpu_ns: ns.next(),
                wait_ns: Some(ns.next()),
                // Nothing is misplaced.
                outside_pod: Some(0),
                throttle_hits: Some(0),
            })
            .to_vec(),
        unattributed_cpu_ns: ns.next(),
        guest_ns: Some(ns.next()),
        threads: Vec::new(),
        vcpus: (0..vcpus).map(|id| vcpu(id, ns)).collect(),
        vcpu_count: VcpuCount {
            boot: Some(vcpus),
            online: Some(vcpus),
            parked: Some(0),
            seen: vcpus,
        },
        workers: workers
            .map(|(role, worker)| Worker {
                role,
                worker,
                tid: None,
                device: None,
                cpu_ns: ns.next(),
            })
            .to_vec(),
        quota: Vec::new(),
        // In a Kata pod only the pod's cgroup has a limit.
        limits: [Scope::Pod]
            .map(|scope| Quota {
                scope,
                cgroup: "/".into(),
                cores: Some(1.25),
                period_ns: 100_000_000,
                periods: ns.next() >> 16,
                throttled_periods: ns.next() >> 20,
                throttled_ns: ns.next(),
                used_ns: roles().map(|role| (role, ns.next())).into(),
                throttle: Some(Throttle::default()),
            })
            .to_vec(),
        limit_cores: None,
        vcpu_limit_cores: None,
        throttle_durations: None,
        unapplied_limit: None,
        guest_nodes: None,
        moves: Some(Moves {
            by_distance: [(); 4].map(|()| ns.next() >> 16),
            unknown: 0,
        }),
        mmu: Some(Mmu {
            mapped_bytes: Some(Mapped {
                by_4k: ns.next() >> 8,
                by_2m: ns.next() >> 8,
                by_1g: 0,
            }),
            nx_splits: 0,
            tlb_flushes: ns.next() >> 24,
        }),
        halts: None,
        topology: Some(Arc::new(topology(vcpus))),
        memory: memory(ns),
        pressure: Some(pressure(ns)),
        // No findings.
        ready: None,
        findings: Some([].into()),
    }
}

/// Memory of a Kata pod with default settings, without a balloon.
fn memory(ns: &mut Numbers) -> Memory {
    let absent = Feature {
        enabled: Some(false),
        reason: "the VMM's arguments",
    };
    let mut bytes = || Some(ns.next() >> 8);
    Memory {
        guest_bytes: bytes(),
        resident_bytes: bytes(),
        resident_huge_bytes: Some(0),
        guest_memfd_bytes: None,
        swap_bytes: Some(0),
        resident_peak_bytes: bytes(),
        cgroup_bytes: bytes(),
        cgroup_limit_bytes: bytes(),
        cgroup_events: Some(MemoryEvents::default()),
        faults: bytes(),
        discards: Some(Discards::default()),
        refault_bytes: Some(0),
        dirty_logging: Some(DirtyLogging::default()),
        features: Features {
            balloon: absent,
            free_page_reporting: absent,
        },
    }
}

/// A kernel that measures the time of interrupts has all values.
fn pressure(ns: &mut Numbers) -> Pressure {
    [(); PRESSURES].map(|()| Some(ns.next())).into()
}

/// Kata's QEMU has no iothread.
fn roles() -> [Role; 5] {
    let [vcpu, vhost, virtiofsd, _, emulator, helper] = Role::ALL;
    [vcpu, vhost, virtiofsd, emulator, helper]
}

/// A topology without mismatches: no vCPU is pinned, and none has a sibling.
fn topology(vcpus: u32) -> Topology {
    Topology {
        cpuset: Some((0..4).collect()),
        guest: Some(GuestShape {
            packages: 1,
            cores: vcpus,
            threads: 1,
        }),
        pinned_vcpus: 0,
        pairs: Some(Pairs::default()),
        unknown: None,
        mismatches: Vec::new(),
        misplaced_ns: MismatchKind::ALL
            .map(|kind| (kind, 0))
            .into_iter()
            .collect(),
        interrupts: Vec::new(),
    }
}

fn vcpu(id: u32, ns: &mut Numbers) -> Vcpu {
    Vcpu {
        id,
        index: Some(id),
        tid: Some(id),
        cpu_ns: ns.next(),
        wait_ns: Some(ns.next()),
        guest_ns: Some(ns.next()),
        timeslices: Some(ns.next()),
        involuntary_switches: Some(ns.next()),
        kvm: KvmCounters::from(KvmValues {
            halt_poll_ns: Some(HaltPoll {
                success: ns.next(),
                fail: ns.next(),
            }),
            halt_wait_ns: None,
            exits: Some(ExitCounts([0; 7].map(|_: u64| ns.next() >> 8))),
            halt_wakeups: Some(ns.next() >> 20),
            halt_polls: Some(Polls {
                attempted: ns.next() >> 20,
                successful: ns.next() >> 20,
                invalid: 0,
            }),
            yields: Some(Yields::default()),
            preemptions_reported: Some(ns.next() >> 20),
            ..KvmValues::default()
        }),
        preempted: None,
        cgroup: None,
        pcpu: None,
        affinity: None,
        guest: None,
        host: None,
        residency_ns: BTreeMap::new(),
    }
}
