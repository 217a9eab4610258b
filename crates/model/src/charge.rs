//! Which cgroup each role's CPU time is charged to: read from where threads
//! sit, since runtimes differ in what they put where.

use crate::facts::{CgroupId, Owner};
use crate::ledger::{SUMS, sum_index};
use crate::snapshot::Role;

/// A number for each role, of the VMM's process and of the rest of its pod.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodSums {
    /// Of the VMM's process, by [`sum_index`].
    pub own: [u64; SUMS],
    /// Of the other processes of its pod, likewise.
    pub pod: [u64; SUMS],
}

impl PodSums {
    /// Adds what is `owner`'s.
    pub fn add(&mut self, owner: Owner, role: Option<Role>, value: u64) {
        let sums = if matches!(owner, Owner::Vm(_)) {
            &mut self.own
        } else {
            &mut self.pod
        };
        let sum = &mut sums[sum_index(role)];
        *sum = sum.saturating_add(value);
    }

    fn merge(&mut self, more: &Self) {
        for (sums, more) in [(&mut self.own, &more.own), (&mut self.pod, &more.pod)] {
            for (sum, value) in sums.iter_mut().zip(more) {
                *sum = sum.saturating_add(*value);
            }
        }
    }
}

/// CPU time of one VM's pod by the cgroup that its threads sit in, ns.
#[derive(Debug, Clone, Default)]
pub struct Charges(Vec<(CgroupId, PodSums)>);

impl Charges {
    /// Adds a thread's. `level` is the first cgroup from its own upwards that
    /// can have a limit; what sits in none is charged to none.
    pub fn add(&mut self, level: Option<CgroupId>, owner: Owner, role: Option<Role>, cpu_ns: u64) {
        let Some(level) = level else {
            return;
        };
        let known = self.0.iter().position(|(id, _)| *id == level);
        let index = known.unwrap_or_else(|| {
            self.0.push((level, PodSums::default()));
            self.0.len() - 1
        });
        self.0[index].1.add(owner, role, cpu_ns);
    }

    /// What sits in any of `levels`.
    pub fn within(&self, levels: impl Iterator<Item = CgroupId>) -> PodSums {
        let mut all = PodSums::default();
        for level in levels {
            if let Some((_, sums)) = self.0.iter().find(|(id, _)| *id == level) {
                all.merge(sums);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Charges;
    use crate::facts::{CgroupId, Owner, VmKey};
    use crate::ledger::sum_index;
    use crate::snapshot::Role;

    #[test]
    fn what_sits_below_is_charged_above_too() {
        let (pod, container) = (CgroupId(1), CgroupId(2));
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
        let all = charges.within([pod, container].into_iter());
        assert_eq!((all.own[vcpu], all.pod[virtiofsd]), (101, 20));
        let inner = charges.within([container].into_iter());
        assert_eq!((inner.own[vcpu], inner.pod[virtiofsd]), (101, 0));
        assert_eq!(all.own[sum_index(Some(Role::Vhost))], 0);
    }
}
