use std::sync::Arc;

use super::judge;
use crate::judge::placement::types::{HelperPlacement, Judgement, VcpuPlacement, VmPlacement};
use crate::snapshot::Pairs;
use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::topology::host::HostTopology;
use crate::vocab::topology::synthetic::{Machine, Siblings};
use crate::vocab::{Comm, CpuSet, MismatchKind, Role};

mod commands;
mod not_raised;
mod property;
mod raised;
mod remedy;
mod study;
mod tracker;

const SECOND: u64 = 1_000_000_000;

/// Sixteen cores of two threads each, siblings 16 apart.
const ONE_NODE: Machine = Machine {
    packages: 1,
    dies: 1,
    llcs: 1,
    cores: 16,
    threads: 2,
    siblings: Siblings::Apart,
};

/// Two nodes of two caches of four cores of two threads, siblings adjacent:
/// node 0 has CPUs 0-15, its caches 0-7 and 8-15.
const TWO_NODES: Machine = Machine {
    packages: 2,
    dies: 1,
    llcs: 2,
    cores: 4,
    threads: 2,
    siblings: Siblings::Adjacent,
};

/// Topology of a guest: packages, cores per package and threads per core.
#[derive(Debug, Clone, Copy)]
struct Guest(u32, u32, u32);

impl Guest {
    fn vcpus(self) -> u32 {
        self.0 * self.1 * self.2
    }

    fn place(self, index: u32) -> GuestPlace {
        let Self(_, cores, threads) = self;
        let package = index / (cores * threads);
        GuestPlace {
            package,
            die: package,
            core: index / threads,
            thread: index % threads,
        }
    }
}

fn set(text: &str) -> Arc<CpuSet> {
    Arc::new(text.parse().expect(text))
}

/// A VM whose vCPUs have these masks, sorted by id.
fn vm(name: &str, guest: Guest, masks: &[&str]) -> VmPlacement {
    assert_eq!(guest.vcpus() as usize, masks.len(), "a mask for each vCPU");
    let vcpus = (0u32..).zip(masks).map(|(id, mask)| VcpuPlacement {
        id,
        number: id,
        tid: 100 + id,
        guest: Some(guest.place(id)),
        affinity: Some(set(mask)),
        ..VcpuPlacement::default()
    });
    VmPlacement {
        name: name.into(),
        pid: 99,
        vcpus: vcpus.collect(),
        window_ns: 10 * SECOND,
        ..VmPlacement::default()
    }
}

/// A VM whose vCPUs may run anywhere.
fn floating(machine: Machine, name: &str, guest: Guest) -> VmPlacement {
    let all = format!("0-{}", machine.cpus() - 1);
    vm(name, guest, &vec![&*all; guest.vcpus() as usize])
}

impl VmPlacement {
    /// Adds a helper thread. Every VM has an emulator thread, which inherits the masks of
    /// the vCPUs unless it gets another one.
    fn helper(mut self, role: Role, mask: &str) -> Self {
        self.helpers.push(HelperPlacement {
            role,
            tid: 4000 + u32::try_from(self.helpers.len()).expect("a few"),
            name: Comm::new("qemu-kvm"),
            device: None,
            affinity: Some(set(mask)),
        });
        self
    }

    /// Makes a vCPU run for a percentage of the window on each of these CPUs.
    fn ran(mut self, vcpu: usize, percents: &[(u32, u64)]) -> Self {
        let window_ns = self.window_ns;
        let there = percents.iter().map(|(cpu, p)| (*cpu, window_ns / 100 * p));
        let vcpu = &mut self.vcpus[vcpu];
        vcpu.residency_ns = there.collect();
        vcpu.cpu_ns = vcpu.residency_ns.iter().map(|(_, ns)| ns).sum();
        self
    }

    /// Makes every vCPU run all the time, each on the CPU with the same index.
    fn ran_on(mut self, cpus: &[u32]) -> Self {
        for (vcpu, cpu) in cpus.iter().enumerate() {
            self = self.ran(vcpu, &[(*cpu, 100)]);
        }
        self
    }

    fn memory(mut self, by_node: &[(u32, u64)]) -> Self {
        self.memory_by_node = Some(
            by_node
                .iter()
                .map(|(node, gib)| (*node, gib << 30))
                .collect(),
        );
        self
    }
}

fn judge_one(host: &HostTopology, vm: VmPlacement) -> Judgement {
    judge(host, &[vm]).pop().expect("one for each VM")
}

/// The mismatches found: kinds and vCPUs.
fn found(judged: &Judgement) -> Vec<(MismatchKind, Vec<u32>)> {
    let found = judged.mismatches.iter();
    found
        .map(|found| (found.kind, found.vcpus.clone()))
        .collect()
}

fn pairs(aligned: u32, split: u32, shared: u32) -> Pairs {
    Pairs {
        aligned,
        split,
        shared,
    }
}
