//! CPU time that the limits of all cgroups of a VM allow together.

use crate::account::charge::Charges;
use crate::account::levels::Levels;
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
    let limit = |at: usize| {
        let id = levels.all().get(at)?.id;
        crate::account::level::cores(&cgroups.get(&id)?.bandwidth?)
    };
    let is_limited = (0..levels.all().len()).any(|at| limit(at).is_some());
    if !is_limited {
        return Allowed::default();
    }
    let of = |is_counted: fn(&[u32; 2]) -> bool| {
        let mut shares = vec![Share::default(); levels.all().len()];
        for (id, threads) in charges.seats() {
            if let Some(share) = levels.at(id).and_then(|at| shares.get_mut(at))
                && is_counted(&threads)
            {
                share.add(Share {
                    is_open: true,
                    is_held: true,
                    limited: 0.0,
                });
            }
        }
        // An inner level has more ancestors than an outer one.
        let mut inner_first: Vec<usize> = (0..shares.len()).collect();
        inner_first.sort_by_key(|at| std::cmp::Reverse(levels.depth(*at)));
        let mut sum = Share::default();
        for at in inner_first {
            let share = shares[at].capped(limit(at));
            match levels.parent(at) {
                Some(parent) => shares[parent].add(share),
                None => sum.add(share),
            }
        }
        (sum.limited > 0.0).then_some(sum.limited)
    };
    Allowed {
        all: of(|[others, vcpus]| others + vcpus > 0),
        vcpus: of(|[_, vcpus]| *vcpus > 0),
    }
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
            charges.seat(Some(CgroupId(id)), is_vcpu);
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
