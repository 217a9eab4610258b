//! The cgroup to which each role's CPU time is charged. It is read from the threads'
//! cgroups, because runtimes place threads differently.

use crate::account::levels::Levels;
use crate::account::sums::{SUMS, sum_index};
use crate::vocab::{CgroupId, Owner, Role};

/// One value per role, for the VMM process and for the rest of its pod.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodSums {
    /// Values of the VMM process, by [`sum_index`].
    pub own: [u64; SUMS],
    /// Values of the other processes of its pod, by [`sum_index`].
    pub pod: [u64; SUMS],
}

impl PodSums {
    /// Adds a value of `owner`.
    pub fn add(&mut self, owner: Owner, role: Option<Role>, value: u64) {
        let sum = self.sum(matches!(owner, Owner::Vm(_)), role);
        *sum = sum.saturating_add(value);
    }

    /// The value of one role, of the VMM process or of the rest of its pod.
    pub fn sum(&mut self, is_own: bool, role: Option<Role>) -> &mut u64 {
        let sums = if is_own { &mut self.own } else { &mut self.pod };
        &mut sums[sum_index(role)]
    }

    fn merge(&mut self, more: &Self) {
        for (sums, more) in [(&mut self.own, &more.own), (&mut self.pod, &more.pod)] {
            for (sum, value) in sums.iter_mut().zip(more) {
                *sum = sum.saturating_add(*value);
            }
        }
    }
}

/// CPU time of one VM and its pod by the cgroup of its threads, ns.
#[derive(Debug, Clone, Default)]
pub struct Charges(Vec<Charge>);

#[derive(Debug, Clone)]
struct Charge {
    level: CgroupId,
    used: PodSums,
    /// Living threads in the cgroup: other threads, and vCPU threads.
    threads: [u32; 2],
}

impl Charges {
    /// Adds the CPU time of a thread. `level` is the nearest cgroup, from the thread's
    /// own upwards, that can have a limit; `None` is charged to no cgroup.
    pub fn add(&mut self, level: Option<CgroupId>, owner: Owner, role: Option<Role>, cpu_ns: u64) {
        if let Some(level) = level {
            self.charge(level).used.add(owner, role, cpu_ns);
        }
    }

    /// CPU time of the threads in `level`, without the levels below it.
    pub fn of(&mut self, level: CgroupId) -> &mut PodSums {
        &mut self.charge(level).used
    }

    /// Counts a living thread in the level.
    pub fn count(&mut self, level: Option<CgroupId>, is_vcpu: bool) {
        if let Some(level) = level {
            self.charge(level).threads[usize::from(is_vcpu)] += 1;
        }
    }

    /// The levels with their numbers of living threads: other threads, and vCPU threads.
    pub fn threads(&self) -> impl Iterator<Item = (CgroupId, [u32; 2])> + '_ {
        self.0.iter().map(|charge| (charge.level, charge.threads))
    }

    /// The charges of the level at index `at` of `levels`, including the levels below it.
    pub fn within(&self, at: usize, levels: &Levels) -> PodSums {
        let mut all = PodSums::default();
        for charge in &self.0 {
            let level = levels.at(charge.level).and_then(|at| levels.all().get(at));
            if level.is_some_and(|level| level.charged.contains(&at)) {
                all.merge(&charge.used);
            }
        }
        all
    }

    fn charge(&mut self, level: CgroupId) -> &mut Charge {
        let known = self.0.iter().position(|charge| charge.level == level);
        let index = known.unwrap_or_else(|| {
            self.0.push(Charge {
                level,
                used: PodSums::default(),
                threads: [0; 2],
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::Charges;
    use crate::account::levels::{Levels, Whole};
    use crate::account::sums::sum_index;
    use crate::facts::CgroupFact;
    use crate::identify::place::Cgroups;
    use crate::vocab::{CgroupId, Owner, Role, VmKey};

    #[test]
    fn threads_of_inner_level_are_charged_to_outer_level_too() {
        let (pod, container) = (CgroupId(1), CgroupId(2));
        let root = "/kubepods/pod0d2aeb12-7a42-4a2b-9c3e-1f2d3c4b5a69";
        let fact = |id, parent, path: String| CgroupFact {
            id,
            parent,
            path: path.into(),
            bandwidth: None,
            memory: None,
        };
        let facts = [
            fact(pod, None, root.to_owned()),
            fact(container, Some(pod), format!("{root}/c")),
        ];
        let cgroups: Cgroups<'_> = facts.iter().map(|fact| (fact.id, fact)).collect();
        let mut levels = Levels::default();
        let whole = Whole {
            root: Some(root),
            ..Whole::default()
        };
        levels.hold(&[pod, container], whole, &cgroups);
        let vm = Owner::Vm(VmKey {
            start_ns: 1,
            tgid: 1,
        });
        let mut charges = Charges::default();
        charges.add(Some(container), vm, Some(Role::Vcpu), 100);
        charges.add(Some(container), vm, Some(Role::Vcpu), 1);
        charges.add(Some(pod), Owner::Pod(pod), Some(Role::Virtiofsd), 20);
        charges.add(None, vm, Some(Role::Vhost), 7);
        let vcpu = sum_index(Some(Role::Vcpu));
        let virtiofsd = sum_index(Some(Role::Virtiofsd));
        let of = |id| charges.within(levels.at(id).expect("a level"), &levels);
        let all = of(pod);
        assert_eq!((all.own[vcpu], all.pod[virtiofsd]), (101, 20));
        let inner = of(container);
        assert_eq!((inner.own[vcpu], inner.pod[virtiofsd]), (101, 0));
        assert_eq!(all.own[sum_index(Some(Role::Vhost))], 0);
    }
}
