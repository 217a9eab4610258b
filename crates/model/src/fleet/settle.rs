//! Combines one reading of one VM with its ledger into the shown VM.

use std::sync::Arc;

use crate::account::ledger::Ledger;
use crate::account::meter::Times;
use crate::account::sums::{SUMS, sum_index};
use crate::account::worker::Workers;
use crate::fleet::buffers::Buffers;
use crate::fleet::member::Member;
use crate::fleet::reading::{Reading, WORKERS};
use crate::fleet::vcpus::VcpusKnown;
use crate::fleet::{memory, outermost, quota, vcpus};
use crate::identify::place::Cgroups;
use crate::snapshot::{RoleUse, Vcpu, VcpuCount, Vm, Worker};
use crate::vocab::topology::host::HostTopology;
use crate::vocab::{Halts, Role, VmKey};

impl Reading<'_> {
    /// Reads the meters of the member, and shows the VM with their totals.
    pub(super) fn settle(
        mut self,
        vm: VmKey,
        member: &mut Member,
        cgroups: &Cgroups<'_>,
        host: &HostTopology,
    ) -> Vm {
        let layout = self.layout(member);
        let outside = self.outside_pod(member);
        let Buffers {
            mut roles,
            threads,
            mut vcpus,
            mut workers,
            mut quota,
            mut limits,
        } = std::mem::take(&mut self.buffers);
        self.vcpus(member, cgroups, host, &mut vcpus);
        let ledger = &mut member.ledger;
        self.roles(ledger, outside, &mut roles);
        let unattributed = ledger.roles[sum_index(None)]
            .read(self.own[sum_index(None)], self.pod[sum_index(None)]);
        let moves = ledger.moves(self.placement.moves);
        let mmu = ledger.mmu(self.kvm.and_then(|fact| fact.mmu));
        let guest = ledger.guest.read(self.guest_ns);
        self.workers(ledger, &mut workers);
        quota::read(member, cgroups, &self.charges, self.throttling);
        quota::show(member, &mut quota, &mut limits);
        outermost::read(member, self.levels, cgroups);
        let memory = memory::read(member, self.memory, cgroups, &vcpus);
        let place = member.place.as_ref();
        let location = place.map(|place| &place.location);
        Vm {
            namespace: member.pod.as_ref().map(|pod| Arc::clone(&pod.namespace)),
            pod: member.pod.as_ref().map(|pod| Arc::clone(&pod.name)),
            pod_spec: member.pod.as_ref().map(|pod| Arc::clone(&pod.spec)),
            uid: location.and_then(|location| location.uid.clone()),
            vm: Arc::clone(&member.name),
            vmm: member.identity.vmm.name(),
            runtime: member
                .identity
                .runtime
                .or(location.and_then(|location| location.runtime)),
            cgroup_layout: layout,
            pid: vm.tgid,
            cgroup: place.map(|place| Arc::clone(&place.path)),
            running: member.ended_ns.is_none(),
            roles,
            unattributed_cpu_ns: unattributed.cpu_ns,
            guest_ns: (self.guest_known || guest > 0).then_some(guest),
            vcpu_count: self.vcpu_count(member),
            threads,
            vcpus,
            workers,
            quota,
            limits,
            limit_cores: member.allowed.all,
            vcpu_limit_cores: member.allowed.vcpus,
            throttle_durations: member.ledger.throttle_durations(),
            unapplied_limit: None,
            guest_nodes: member.identity.guest_nodes,
            moves,
            mmu,
            halts: ledger_halts(&member.ledger),
            topology: None,
            memory,
            pressure: member.ledger.outermost.pressure(),
            ready: None,
            findings: None,
        }
    }

    fn roles(&self, ledger: &mut Ledger, outside: Option<[u32; SUMS]>, shown: &mut Vec<RoleUse>) {
        shown.reserve_exact(Role::ALL.len());
        shown.extend(Role::ALL.into_iter().filter_map(|role| {
            let index = sum_index(Some(role));
            let times = ledger.roles[index].read(self.own[index], self.pod[index]);
            let there = self.counts[index] > 0 || times != Times::default();
            there.then_some(RoleUse {
                role,
                threads: self.counts[index],
                cpu_ns: times.cpu_ns,
                wait_ns: (!self.lacking.wait).then_some(times.wait_ns),
                outside_pod: outside.map(|outside| outside[index]),
                throttle_hits: self
                    .throttling
                    .map(|_| ledger.hits[index].read(self.hits.own[index], self.hits.pod[index])),
            })
        }));
    }

    fn vcpus(
        &mut self,
        member: &mut Member,
        cgroups: &Cgroups<'_>,
        host: &HostTopology,
        shown: &mut Vec<Vcpu>,
    ) {
        let ledger = &mut member.ledger;
        for (id, sums) in &mut self.vcpus.0 {
            self.ahead.vcpu();
            let meter = ledger.vcpus.entry(*id).or_default();
            meter.cpu.read(sums.times.cpu_ns);
            meter.wait.read(sums.times.wait_ns);
            meter.guest.read(sums.guest_ns);
            meter.switches.read(sums.switches);
            if let Some(stats) = sums.ended {
                meter.read_ended(stats);
            }
            if let Some(stats) = sums.living.and_then(|(_, vcpu)| vcpu.stats.as_ref()) {
                ledger.changes += u64::from(meter.read_stats(stats));
            }
            if let Some(fact) = sums.halts {
                meter.halts.now().read(fact.instance, &fact.halts);
            }
            if self.residency_known {
                sums.settle_pcpus();
                meter.read_pcpus(&sums.pcpus);
            }
        }
        let known = VcpusKnown {
            lacking: self.lacking,
            guest_time: self.guest_known,
            topology: self.placement.guest,
            residency: self.residency_known,
            place: member.place.as_ref(),
            cgroups,
            host,
        };
        shown.reserve_exact(ledger.vcpus.len());
        shown.extend(ledger.vcpus.iter().map(|(id, meter)| {
            let living = self.vcpus.get(*id).and_then(|sums| sums.living);
            vcpus::shown(*id, meter, living, &known)
        }));
    }

    fn vcpu_count(&self, member: &Member) -> VcpuCount {
        let parked = || count(self.vcpus.parked(self.has_run));
        let living = self.vcpus.0.iter();
        let living = living.filter(|(_, sums)| sums.living.is_some());
        VcpuCount {
            boot: member.identity.boot_vcpus,
            online: self.kvm.map(|fact| fact.vcpus),
            parked: self.kvm.map(|_| parked()),
            seen: count(living.count()),
        }
    }

    fn workers(&mut self, ledger: &mut Ledger, shown: &mut Vec<Worker>) {
        for (at, role) in WORKERS.into_iter().enumerate() {
            let living = &mut self.workers[at];
            living.sort_unstable();
            if !living.is_empty() || ledger.workers.contains_key(&role) {
                ledger.workers(role, living);
            }
            let slots = ledger.workers.get(&role).into_iter();
            let slots = slots.flat_map(Workers::shown);
            shown.extend(slots.map(|(worker, id, cpu_ns)| Worker {
                role,
                worker,
                tid: id.map(|id| id.tid),
                device: id.and_then(|id| self.device(Some(role), id)),
                cpu_ns,
            }));
        }
    }

    /// Number of threads outside the cgroups of the VM's pod, by [`sum_index`]; `None` if
    /// the VM has no pod.
    fn outside_pod(&self, member: &Member) -> Option<[u32; SUMS]> {
        member.place.as_ref()?.root?;
        Some(self.outside_pod)
    }

    /// Layout of the VM's own threads over cgroups.
    fn layout(&self, member: &Member) -> Option<&'static str> {
        let place = member.place.as_ref()?;
        if place.location.uid.is_none() && place.location.runtime != Some("kata") {
            return Some("machine");
        }
        if place.location.is_stray {
            return Some("stray");
        }
        Some(if self.split > 0 { "split" } else { "pod" })
    }
}

/// The sum of the halts of all vCPUs; `None` if they were not requested.
fn ledger_halts(ledger: &Ledger) -> Option<Box<Halts>> {
    let read = ledger.vcpus.values();
    let read = read.filter_map(|vcpu| Some(vcpu.halts.get()?.total()));
    read.reduce(|sum, more| sum.with(&more, u64::saturating_add))
        .map(Box::new)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
