//! The facts that a reading of the host returns, and the expected CPU time.

use rustc_hash::FxHashMap;
use virtlens_model::facts::{
    Bandwidth, CgroupFact, Facts, LevelFact, ThreadClass, ThreadFact, VcpuFact,
};
use virtlens_model::vocab::{CgroupId, MEMORY_EVENTS, Owner, PRESSURES};

use super::{Host, Thread};

impl Host {
    /// Takes a reading: VMs become known, and threads appear in their present class.
    pub(crate) fn facts(&mut self) -> Facts {
        let vcpus = self.threads.iter().filter(|one| one.vcpu_id.is_some());
        let met: Vec<_> = vcpus
            .map(|one| (one.key().tgid, one.key().start_ns))
            .collect();
        self.known.extend(met);
        for who in 0..self.threads.len() {
            let thread = &self.threads[who];
            let now = self.owner(thread).map(|owner| self.class(thread, owner));
            let before = thread.shown.map(|shown| ThreadClass {
                cgroup: now.and_then(|now| now.cgroup),
                ..shown
            });
            if before.is_some() && before != now {
                self.leave_class(who);
            }
            self.threads[who].shown = now;
        }
        let shown = self.threads.iter().filter_map(|one| self.fact(one));
        let facts = Facts {
            threads: shown.collect(),
            cgroups: self.cgroup_facts(),
            levels: self.level_facts(),
            retired: self.retired.values().copied().collect(),
            ..Facts::default()
        };
        for fact in std::mem::take(&mut self.ending) {
            self.retire(fact);
        }
        facts
    }

    fn fact(&self, thread: &Thread) -> Option<ThreadFact> {
        let class = thread.shown?;
        Some(ThreadFact {
            owner: class.owner,
            tid: thread.tid,
            tgid: thread.tgid,
            start_ns: thread.start_ns,
            kind: class.kind,
            comm: class.comm,
            process_comm: class.process_comm,
            cpu_ns: thread.cpu_ns - thread.held_ns,
            wait_ns: None,
            guest_ns: None,
            switches: None,
            cgroup: CgroupId(self.cgroups[thread.cgroup].id),
            pcpu: None,
            affinity: None,
            sched_class: None,
            vcpu: class.vcpu_id.map(|id| VcpuFact {
                id,
                index: Some(id),
                stats: None,
                charged_ns: None,
            }),
            class_changes: thread.class_changes,
        })
    }

    fn cgroup_facts(&self) -> Vec<CgroupFact> {
        let facts = self
            .cgroups
            .iter()
            .enumerate()
            .map(|(index, one)| CgroupFact {
                id: CgroupId(one.id),
                parent: (index > 0).then(|| CgroupId(self.cgroups[one.parent].id)),
                path: one.path.as_str().into(),
                bandwidth: (index > 0).then_some(Bandwidth {
                    quota_ns: one.quota_ns,
                    period_ns: 100_000_000,
                    burst_ns: None,
                    periods: one.periods,
                    throttled_periods: one.periods / 2,
                    throttled_ns: one.periods * 1000,
                }),
                memory: None,
            });
        facts.collect()
    }

    /// Each cgroup is stalled for a microsecond per period.
    fn level_facts(&self) -> FxHashMap<CgroupId, LevelFact> {
        let facts = self.cgroups.iter().map(|one| {
            let pressure = [Some(one.periods * 1000); PRESSURES].into();
            let fact = LevelFact {
                pressure: Some(pressure),
                memory_events: Some([one.periods; MEMORY_EVENTS].into()),
            };
            (CgroupId(one.id), fact)
        });
        facts.collect()
    }

    /// CPU time of each pod, ns, without VMs that started and ended before an agent saw
    /// them.
    pub(crate) fn used_ns(&self) -> [u64; 2] {
        let pod_of = |owner| match owner {
            Owner::Vm(vm) => self.admitted.get(&vm).copied(),
            Owner::Pod(pod) => {
                let mut cgroups = self.cgroups.iter();
                cgroups.find(|one| CgroupId(one.id) == pod)?.pod
            }
        };
        let mut used_ns = self.carried_ns;
        for fact in self.retired.values() {
            if let Some(pod) = pod_of(fact.class.owner) {
                used_ns[pod] += fact.cpu_ns;
            }
        }
        for thread in &self.threads {
            if thread
                .shown
                .is_some_and(|class| pod_of(class.owner).is_some())
            {
                used_ns[thread.pod] += thread.cpu_ns - thread.held_ns;
            }
        }
        used_ns
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.ending.is_empty()
    }
}
