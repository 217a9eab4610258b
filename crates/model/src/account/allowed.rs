//! CPU time that the limits of all cgroups of a VM allow together.

use crate::account::charge::Charges;
use crate::account::level::cores;
use crate::account::levels::{Level, Levels};
use crate::identify::place::Cgroups;

/// CPU time per second that limits allow to the threads in their cgroups, cores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Allowed {
    /// For all threads; `None` if no thread has a limit.
    pub all: Option<f64>,
    /// For vCPU threads.
    pub vcpus: Option<f64>,
}

/// CPU time per second that a cgroup allows to the threads in it or below.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// For the threads with a limit, cores.
    limited: f64,
    /// At least one thread has no limit.
    is_open: bool,
    /// The cgroup holds at least one thread.
    is_held: bool,
}

impl Share {
    fn add(&mut self, more: Self) {
        self.limited += more.limited;
        self.is_open |= more.is_open;
        self.is_held |= more.is_held;
    }

    /// Applies a limit of `cores`.
    fn capped(self, cores: Option<f64>) -> Self {
        match cores {
            Some(cores) if self.is_held => Self {
                limited: if self.is_open {
                    cores
                } else {
                    cores.min(self.limited)
                },
                is_open: false,
                ..self
            },
            _ => self,
        }
    }
}

/// CPU time that the limits of `levels` allow to the threads in `charges`.
pub fn allowed(levels: &Levels, charges: &Charges, cgroups: &Cgroups<'_>) -> Allowed {
    let limit = |level: &Level| cores(&cgroups.get(&level.id)?.bandwidth?);
    // The limit of each level, and its shares for all threads and for vCPU threads.
    let share = |level| (limit(level), [Share::default(); 2]);
    let mut shares: Vec<_> = levels.all().iter().map(share).collect();
    if shares.iter().all(|(limit, _)| limit.is_none()) {
        return Allowed::default();
    }
    let open = |is_held: bool| Share {
        limited: 0.0,
        is_open: is_held,
        is_held,
    };
    for (id, [others, vcpus]) in charges.threads() {
        if let Some((_, share)) = levels.at(id).and_then(|at| shares.get_mut(at)) {
            *share = [open(others + vcpus > 0), open(vcpus > 0)];
        }
    }
    let mut sums = [Share::default(); 2];
    for at in levels.inner_first() {
        let (limit, share) = shares[at];
        let above = match levels.all()[at].parent {
            Some(parent) => &mut shares[parent].1,
            None => &mut sums,
        };
        for (above, share) in above.iter_mut().zip(share) {
            above.add(share.capped(limit));
        }
    }
    let [all, vcpus] = sums.map(|sum| (sum.limited > 0.0).then_some(sum.limited));
    Allowed { all, vcpus }
}

#[cfg(test)]
mod tests {
    use super::{Allowed, allowed};
    use crate::account::charge::Charges;
    use crate::account::levels::{Levels, Whole};
    use crate::facts::{Bandwidth, CgroupFact};
    use crate::identify::place::Cgroups;
    use crate::vocab::CgroupId;

    const SCOPE: &str = r"/machine/qemu-1-db.libvirt-qemu";

    /// Result for libvirt's cgroups with these limits in hundredths of a core.
    fn of(global: u64, vcpus: [u64; 2], emulator: u64) -> Allowed {
        let fact = |id, parent: u64, rest: &str, percent: u64| CgroupFact {
            id: CgroupId(id),
            parent: Some(CgroupId(parent)),
            path: format!("{SCOPE}{rest}").into(),
            bandwidth: Some(Bandwidth {
                quota_ns: (percent > 0).then_some(percent * 1_000_000),
                period_ns: 100_000_000,
                ..Bandwidth::default()
            }),
            memory: None,
        };
        let facts = [
            fact(3, 1, "", global),
            fact(4, 3, "/vcpu0", vcpus[0]),
            fact(5, 3, "/vcpu1", vcpus[1]),
            fact(6, 3, "/emulator", emulator),
        ];
        let cgroups: Cgroups<'_> = facts.iter().map(|fact| (fact.id, fact)).collect();
        let mut levels = Levels::default();
        let whole = Whole {
            root: Some(SCOPE),
            ..Whole::default()
        };
        levels.hold(&[4, 5, 6].map(CgroupId), whole, &cgroups);
        let mut charges = Charges::default();
        for (id, is_vcpu) in [(4, true), (5, true), (6, false)] {
            charges.count(Some(CgroupId(id)), is_vcpu);
        }
        allowed(&levels, &charges, &cgroups)
    }

    fn is(allowed: Allowed, all: Option<f64>, vcpus: Option<f64>) -> bool {
        let near = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() < 1e-9,
            (one, other) => one == other,
        };
        near(allowed.all, all) && near(allowed.vcpus, vcpus)
    }

    #[test]
    fn effective_limit_combines_limits_of_levels() {
        assert!(is(of(80, [30, 30], 10), Some(0.7), Some(0.6)));
        assert!(is(of(40, [30, 30], 10), Some(0.4), Some(0.4)));
        assert!(is(of(80, [30, 30], 0), Some(0.8), Some(0.6)));
        assert!(is(of(0, [30, 30], 0), Some(0.6), Some(0.6)));
        assert!(is(of(80, [0, 0], 0), Some(0.8), Some(0.8)));
        assert!(is(of(0, [0, 0], 10), Some(0.1), None));
        assert!(is(of(0, [0, 0], 0), None, None));
    }
}
