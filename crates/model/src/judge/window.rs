//! The window over which placements are judged: from one judgement to the next. Masks are
//! read at an instant, but the CPUs on which a vCPU ran are meaningful only over an
//! interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::Pcpus;
use crate::identify::roles;
use crate::judge::interrupts::PcpuWindow;
use crate::judge::placement::{
    self, HelperPlacement, Judgement, Tracker, VcpuPlacement, VmPlacement,
};
use crate::judge::runtime::Runtime;
use crate::snapshot::{Misplaced, Thread, Topology, Vcpu, VcpuInterrupts, Vm};
use crate::vocab::topology::guest::GuestShape;
use crate::vocab::topology::host::HostTopology;
use crate::vocab::{CpuSet, Role};

/// Memory of a VM's cgroup by NUMA node, bytes.
pub type MemoryByNode = Vec<(u32, u64)>;

/// Memory and CPUs of a VM according to its cgroups, as far as known.
#[derive(Debug, Clone, Default)]
pub struct CgroupBounds {
    /// Its memory by NUMA node.
    pub memory_by_node: Option<MemoryByNode>,
    /// The allowed CPUs.
    pub cpuset: Option<CpuSet>,
}

/// The last judgement of each VM, and the CPU time of its vCPUs at that point.
#[derive(Debug, Default)]
pub struct Window {
    began_ns: Option<u64>,
    /// The times of the host's CPUs when it began.
    pcpus: Pcpus,
    /// By VM name, which is unique on the node.
    vms: FxHashMap<Arc<str>, Judged>,
}

/// A VM at the last judgement.
#[derive(Debug, Default)]
struct Judged {
    /// By `vcpu_id`.
    vcpus: FxHashMap<u32, Used>,
    tracker: Tracker,
    topology: Arc<Topology>,
}

/// CPU time of a vCPU.
#[derive(Debug, Default)]
struct Used {
    cpu_ns: u64,
    residency_ns: BTreeMap<u32, u64>,
}

impl Window {
    /// Length of the present window at `now_ns`; `None` before the first window.
    pub fn age_ns(&self, now_ns: u64) -> Option<u64> {
        Some(now_ns.saturating_sub(self.began_ns?))
    }

    /// Ends the window and judges it. `vms` are all VMs of the host, with the residency
    /// of their vCPUs just read; `pcpus` are the times of the host's CPUs, empty if they
    /// are unknown. `now_ns` is on a monotonic clock; `time` converts it to
    /// a date. VMs that are gone are forgotten.
    pub fn judge(
        &mut self,
        host: &HostTopology,
        vms: &[Vm],
        bounds: impl Fn(&Vm) -> CgroupBounds,
        pcpus: Pcpus,
        now_ns: u64,
        time: impl Fn(u64) -> String,
    ) {
        let window_ns = self.age_ns(now_ns).unwrap_or(0);
        self.began_ns = Some(now_ns);
        let interrupts = PcpuWindow::between(&self.pcpus, &pcpus);
        self.pcpus = pcpus;
        let running: Vec<&Vm> = vms.iter().filter(|vm| vm.running).collect();
        let (placements, cpusets): (Vec<VmPlacement>, Vec<Option<CpuSet>>) = running
            .iter()
            .map(|vm| {
                let CgroupBounds {
                    memory_by_node,
                    cpuset,
                } = bounds(vm);
                (self.placement(vm, memory_by_node, window_ns), cpuset)
            })
            .unzip();
        let judgements = placement::judge(host, &placements);
        let names: FxHashSet<&str> = vms.iter().map(|vm| &*vm.vm).collect();
        self.vms.retain(|name, _| names.contains(&**name));
        let judged = placements.iter().zip(judgements).zip(cpusets);
        for (vm, ((placement, judgement), cpuset)) in running.iter().zip(judged) {
            let judged = self.vms.entry(Arc::clone(&vm.vm)).or_default();
            judged.tracker.update(now_ns, placement, &judgement);
            judged.vcpus = vm.vcpus.iter().map(|vcpu| (vcpu.id, used(vcpu))).collect();
            judged.topology = Arc::new(Topology {
                cpuset,
                interrupts: interrupts_of(vm, placement, &interrupts),
                ..topology(vm, judgement, &judged.tracker, &time)
            });
        }
    }

    /// The last judgement of a VM.
    pub fn topology(&self, vm: &Vm) -> Option<Arc<Topology>> {
        let judged = self.vms.get(&vm.vm)?;
        Some(Arc::clone(&judged.topology))
    }

    fn placement(&self, vm: &Vm, memory: Option<MemoryByNode>, window_ns: u64) -> VmPlacement {
        let before = self.vms.get(&vm.vm);
        let vcpus = vm.vcpus.iter().filter_map(|vcpu| {
            let before = before.and_then(|before| before.vcpus.get(&vcpu.id));
            let used = used_since(vcpu, before);
            Some(VcpuPlacement {
                id: vcpu.id,
                number: number_of(vcpu, &vm.threads),
                tid: vcpu.tid?,
                guest: vcpu.guest,
                affinity: vcpu.affinity.clone(),
                residency_ns: used.residency_ns.into_iter().collect(),
                cpu_ns: used.cpu_ns,
            })
        });
        let placed = |thread: &&Thread| !roles::is_nx_recovery(thread.name);
        let helpers = vm.threads.iter().filter(placed).filter_map(|thread| {
            Some(HelperPlacement {
                role: thread.role.filter(|role| *role != Role::Vcpu)?,
                tid: thread.tid,
                name: thread.name,
                device: thread.device,
                affinity: thread.affinity.clone(),
            })
        });
        VmPlacement {
            name: Arc::clone(&vm.vm),
            runtime: Runtime::of(vm),
            pid: vm.pid,
            vcpus: vcpus.collect(),
            helpers: helpers.collect(),
            memory_by_node: memory,
            guest_nodes: vm.guest_nodes,
            // A new VM has no window yet.
            window_ns: before.map_or(0, |_| window_ns),
        }
    }
}

fn used(vcpu: &Vcpu) -> Used {
    Used {
        cpu_ns: vcpu.cpu_ns,
        residency_ns: vcpu.residency_ns.clone(),
    }
}

/// CPU time of a vCPU since the last judgement; none if there was no judgement.
fn used_since(vcpu: &Vcpu, before: Option<&Used>) -> Used {
    let Some(before) = before else {
        return Used::default();
    };
    let by_pcpu = vcpu.residency_ns.iter().map(|(pcpu, ns)| {
        let then = before.residency_ns.get(pcpu).copied().unwrap_or(0);
        (*pcpu, ns.saturating_sub(then))
    });
    Used {
        cpu_ns: vcpu.cpu_ns.saturating_sub(before.cpu_ns),
        residency_ns: by_pcpu.filter(|(_, ns)| *ns > 0).collect(),
    }
}

/// Number of a vCPU for the VMM: in libvirt's cgroup `vcpu0`, or in the name of QEMU's
/// thread "CPU 0/KVM" (`accel/kvm/kvm-accel-ops.c`); otherwise its place in the order of
/// creation. The ids of vCPUs have gaps if, for example, a guest package has three cores.
fn number_of(vcpu: &Vcpu, threads: &[Thread]) -> u32 {
    let by_cgroup = || {
        let cgroup = vcpu.cgroup.as_deref()?.rsplit('/').next()?;
        cgroup.strip_prefix("vcpu")?.parse().ok()
    };
    let by_name = || {
        let thread = threads.iter().find(|one| Some(one.tid) == vcpu.tid)?;
        let name = thread.name.as_str()?.strip_prefix("CPU ")?;
        name.strip_suffix("/KVM")?.parse().ok()
    };
    by_cgroup()
        .or_else(by_name)
        .or(vcpu.index)
        .unwrap_or(vcpu.id)
}

fn topology(
    vm: &Vm,
    judgement: Judgement,
    tracker: &Tracker,
    time: impl Fn(u64) -> String,
) -> Topology {
    let there = vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some());
    let misplaced = |mismatch| {
        let since_ns = tracker.since_ns(&mismatch).unwrap_or(0);
        Misplaced {
            mismatch,
            since: time(since_ns),
        }
    };
    Topology {
        cpuset: None,
        guest: GuestShape::of(there.filter_map(|vcpu| vcpu.guest)),
        pinned_vcpus: judgement.pinned_vcpus,
        pairs: judgement.pairs.ok(),
        unknown: judgement.pairs.err(),
        mismatches: judgement.mismatches.into_iter().map(misplaced).collect(),
        misplaced_ns: tracker.misplaced_ns().collect(),
        interrupts: Vec::new(),
    }
}

fn interrupts_of(vm: &Vm, placement: &VmPlacement, interrupts: &PcpuWindow) -> Vec<VcpuInterrupts> {
    let vcpus = placement.vcpus.iter().filter_map(|placed| {
        let vcpu = vm.vcpus.iter().find(|vcpu| vcpu.id == placed.id)?;
        interrupts.of_vcpu(placed.id, &placed.residency_ns, vcpu.pcpu)
    });
    vcpus.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CgroupBounds, Window, number_of};
    use crate::facts::Pcpus;
    use crate::snapshot::{Thread, Vcpu, Vm};
    use crate::vocab::topology::synthetic::{Machine, Siblings};
    use crate::vocab::{Comm, CpuSet, MismatchKind, Role};

    const HOST: Machine = Machine {
        packages: 1,
        dies: 1,
        llcs: 1,
        cores: 4,
        threads: 1,
        siblings: Siblings::Adjacent,
    };

    fn mask(cpu: u32) -> Arc<CpuSet> {
        Arc::new([cpu].into_iter().collect())
    }

    fn thread(tid: u32, role: Role, name: &str, cpu: u32) -> Thread {
        Thread {
            tid,
            role: Some(role),
            name: Comm::new(name),
            device: None,
            cpu_ns: 0,
            wait_ns: None,
            pcpu: None,
            affinity: Some(mask(cpu)),
            sched_class: None,
        }
    }

    /// vCPU 0 pinned to CPU 0 and the emulator to CPU 1, as `virsh vcpupin` and
    /// `virsh emulatorpin` do, plus `worker`.
    fn found_with(worker: Thread) -> Vec<MismatchKind> {
        let vms = [Vm {
            vm: "db-01".into(),
            running: true,
            vcpus: vec![Vcpu {
                tid: Some(10),
                affinity: Some(mask(0)),
                ..Vcpu::default()
            }],
            threads: vec![
                thread(10, Role::Vcpu, "CPU 0/KVM", 0),
                thread(9, Role::Emulator, "qemu-system-x86", 1),
                worker,
            ],
            ..Vm::default()
        }];
        let (mut window, host) = (Window::default(), HOST.host());
        window.judge(
            &host,
            &vms,
            |_| CgroupBounds::default(),
            Pcpus::new(),
            0,
            |_| String::new(),
        );
        let topology = window.topology(&vms[0]).expect("it was judged");
        let kinds = topology.mismatches.iter().map(|one| one.mismatch.kind);
        kinds.collect()
    }

    #[test]
    fn number_of_vcpu_is_read_from_cgroup_or_thread_name() {
        let mut vcpu = Vcpu {
            id: 4,
            index: Some(2),
            tid: Some(10),
            ..Vcpu::default()
        };
        let threads = [
            thread(9, Role::Emulator, "CPU 8/KVM", 0),
            thread(10, Role::Vcpu, "CPU 3/KVM", 0),
        ];
        assert_eq!(number_of(&vcpu, &[]), 2);
        assert_eq!(number_of(&vcpu, &threads), 3);
        vcpu.cgroup = Some("/machine.slice/x.scope/libvirt/vcpu5".into());
        assert_eq!(number_of(&vcpu, &threads), 5);
        vcpu.cgroup = Some("/machine.slice/x.scope/libvirt/vcpus".into());
        assert_eq!(number_of(&vcpu, &threads), 3);
    }

    #[test]
    fn nx_recovery_thread_on_vcpu_cpu_raises_nothing() {
        let worker = thread(11, Role::Emulator, "kvm-nx-lpage-recovery", 0);
        assert_eq!(found_with(worker), []);
        let worker = thread(11, Role::Emulator, "worker", 0);
        assert_eq!(found_with(worker), [MismatchKind::HelperOnVcpu]);
    }
}
