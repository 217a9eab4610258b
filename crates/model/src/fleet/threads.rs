//! Assigns each thread to its VM and role.

use rustc_hash::FxHashMap;

use crate::facts::{
    EndedVcpuFact, Facts, HaltsFact, HitFact, ResidencyFact, RetiredFact, Run, ThreadClass,
    ThreadFact, VmFact,
};
use crate::fleet::ahead::Ahead;
use crate::fleet::buffers::Buffers;
use crate::fleet::member::Member;
use crate::fleet::reading::{Reading, ThreadCgroup};
use crate::fleet::registry::Fleet;
use crate::identify::place::Cgroups;
use crate::identify::roles;
use crate::identify::vmm::Identity;
use crate::prefetch::prefetch;
use crate::snapshot::Vm;
use crate::vocab::{Owner, Role, VmKey};

/// Facts that belong to one VM.
enum Belonging<'a> {
    Living(Run<'a>),
    Retired(&'a RetiredFact),
    EndedVcpu(&'a EndedVcpuFact),
    Hit(&'a HitFact),
    Residency(&'a ResidencyFact),
    Kvm(&'a VmFact),
    Halts(&'a HaltsFact),
}

impl Fleet {
    /// Processes `vms` in order. All facts of one VM are read before those of the next
    /// VM, because together they exceed the CPU caches. Meanwhile those of the next one are
    /// prefetched, and the member behind it.
    pub(super) fn settle(
        &mut self,
        vms: &[VmKey],
        facts: &Facts,
        cgroups: &Cgroups<'_>,
    ) -> Vec<Vm> {
        let belongings = self.belongings(vms, facts);
        let mut rest = belongings.as_slice();
        let mut former = std::mem::take(&mut self.former);
        let settle = |(index, vm): (usize, &VmKey)| {
            let count = rest.partition_point(|(of, _)| *of == index);
            let its;
            (its, rest) = rest.split_at(count);
            let buffers = former.buffers(index, *vm);
            prefetch(vms.get(index + 2).and_then(|vm| self.vms.get(vm)));
            let (member, next) = match vms.get(index + 1) {
                Some(next) if next != vm => {
                    let [member, next] = self.vms.get_disjoint_mut([vm, next]);
                    (member?, next)
                }
                _ => (self.vms.get_mut(vm)?, None),
            };
            let ahead = Ahead::of(next.as_deref(), first_run(rest), former.at(index + 1));
            let mut reading = reading(*vm, member, its, facts, cgroups, buffers, ahead);
            reading.follow_moves(member);
            Some(reading.settle(*vm, member, cgroups, &self.host))
        };
        let mut shown = Vec::with_capacity(vms.len());
        shown.extend(vms.iter().enumerate().filter_map(settle));
        shown
    }

    /// The facts of `vms`, each with the index of its VM in `vms`, in this order.
    fn belongings<'a>(&self, vms: &[VmKey], facts: &'a Facts) -> Vec<(usize, Belonging<'a>)> {
        let pods = self.pod_vms();
        let places: FxHashMap<VmKey, usize> = vms.iter().copied().zip(0..).collect();
        let of_vm = |vm: VmKey| places.get(&vm).copied();
        let of = |owner: Owner| match owner {
            Owner::Vm(vm) => of_vm(vm),
            Owner::Pod(pod) => of_vm(*pods.get(&pod)?),
        };
        let living = facts
            .threads
            .runs()
            .map(|run| (of(run.owner), Belonging::Living(run)));
        let retired = facts.retired.iter();
        let retired = retired.map(|fact| (of(fact.class.owner), Belonging::Retired(fact)));
        let ended = facts.ended_vcpus.iter();
        let ended = ended.map(|fact| (of_vm(fact.vm), Belonging::EndedVcpu(fact)));
        let hits = facts.throttling.iter().flat_map(|seen| &seen.hits);
        let hits = hits.map(|fact| (of(fact.class.owner), Belonging::Hit(fact)));
        let residency = facts.residency.iter().flatten();
        let residency = residency.map(|fact| (of_vm(fact.vm), Belonging::Residency(fact)));
        let kvm = facts.vms.iter();
        let kvm = kvm.map(|fact| (of_vm(fact.vm), Belonging::Kvm(fact)));
        let halts = facts.halts.iter();
        let halts = halts.map(|fact| (of_vm(fact.vm), Belonging::Halts(fact)));
        let all = living.chain(retired).chain(ended).chain(hits);
        let all = all.chain(residency).chain(kvm).chain(halts);
        let mut belongings: Vec<_> = all.filter_map(|(of, one)| Some((of?, one))).collect();
        belongings.sort_by_key(|(of, _)| *of);
        belongings
    }
}

/// The threads of the first run of a VM.
fn first_run<'a>(belongings: &[(usize, Belonging<'a>)]) -> &'a [ThreadFact] {
    match belongings.first() {
        Some((_, Belonging::Living(run))) => run.threads,
        _ => &[],
    }
}

fn reading<'a>(
    vm: VmKey,
    member: &mut Member,
    belongings: &[(usize, Belonging<'a>)],
    facts: &'a Facts,
    cgroups: &Cgroups<'_>,
    buffers: Buffers,
    ahead: Ahead<'a>,
) -> Reading<'a> {
    let living = belongings.iter().map(|(_, one)| match one {
        Belonging::Living(run) => run.threads.len(),
        _ => 0,
    });
    let mut reading = Reading::begin(vm, member, facts, buffers, ahead);
    reading.buffers.threads.reserve_exact(living.sum());
    for (_, belonging) in belongings {
        match belonging {
            Belonging::Living(run) => {
                let at = ThreadCgroup::of(run.cgroup, member, cgroups);
                for thread in run.threads {
                    reading.living(thread, role_of_living(thread, &member.identity), at);
                }
            }
            Belonging::Retired(fact) => {
                let level = fact.class.cgroup;
                let level = level.and_then(|cgroup| member.levels.of(cgroup, cgroups));
                reading.retired(fact, role_of_class(&fact.class, &member.identity), level);
            }
            Belonging::EndedVcpu(fact) => reading.ended_vcpu(fact),
            Belonging::Hit(fact) => {
                reading.hit(fact, role_of_class(&fact.class, &member.identity));
            }
            Belonging::Residency(fact) => reading.residency(fact),
            Belonging::Kvm(fact) => reading.kvm = Some(fact),
            Belonging::Halts(fact) => reading.halts(fact),
        }
    }
    reading
}

/// The role of a living thread.
fn role_of_living(thread: &ThreadFact, identity: &Identity) -> Option<Role> {
    roles::role_of(&roles::Traits {
        kind: thread.kind,
        is_vcpu: thread.vcpu.is_some(),
        in_vmm: matches!(thread.owner, Owner::Vm(_)),
        vmm: identity.vmm,
        comm: thread.comm,
        process_comm: thread.process_comm,
    })
}

/// The role of a class of threads; `None` if their names were too many to keep.
fn role_of_class(class: &ThreadClass, identity: &Identity) -> Option<Role> {
    let nameless = class.comm.as_bytes().is_empty() && class.process_comm.as_bytes().is_empty();
    if nameless && class.vcpu_id.is_none() {
        return None;
    }
    roles::role_of(&roles::Traits {
        kind: class.kind,
        is_vcpu: class.vcpu_id.is_some(),
        in_vmm: matches!(class.owner, Owner::Vm(_)),
        vmm: identity.vmm,
        comm: class.comm,
        process_comm: class.process_comm,
    })
}
