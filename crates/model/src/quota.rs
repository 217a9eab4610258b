//! CPU limits on a VM's cgroup path: each level, and the tightest of each scope.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::charge::{Charges, PodSums};
use crate::facts::{Bandwidth, CgroupFact, CgroupId};
use crate::fleet::Member;
use crate::ledger::{Known, Meter, PodMeter};
use crate::place::Cgroups;
use crate::snapshot::{Quota, Role, Scope};
use crate::throttle::{ThrottleFact, ThrottleMeter, ThrottlingFacts};

/// The counters of one level, or of the tightest level of one scope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QuotaMeter {
    cgroup: Option<CgroupId>,
    periods: Meter,
    throttled_periods: Meter,
    throttled: Meter,
    /// What was seen of its throttling, if that was followed.
    throttle: Known<ThrottleMeter>,
    /// CPU time by role, where it has or had a limit: of a level.
    used: Option<Box<[PodMeter; ROLES]>>,
    /// The same of whichever level is the tightest.
    tightest_used: Option<Box<[Meter; ROLES]>>,
}

const ROLES: usize = Role::ALL.len();

/// What one reading says of one level.
struct Level<'a> {
    scope: Scope,
    fact: &'a CgroupFact,
    bandwidth: Bandwidth,
    throttle: Option<&'a ThrottleFact>,
    used: PodSums,
}

impl Level<'_> {
    /// Whether it has a limit, or had one.
    fn counts(&self) -> bool {
        self.bandwidth.quota_ns.is_some() || self.bandwidth.periods > 0
    }

    /// The limit in cores; none is the loosest.
    fn limit(&self) -> f64 {
        let cores = |quota| cores(quota, self.bandwidth.period_ns);
        self.bandwidth.quota_ns.map_or(f64::INFINITY, cores)
    }
}

impl QuotaMeter {
    /// Whose numbers it read last.
    pub fn cgroup(&self) -> Option<CgroupId> {
        self.cgroup
    }

    /// Whether sources tell all that it holds. There is throttling only where there
    /// are periods.
    pub fn is_plain(&self) -> bool {
        let whole = [&self.periods, &self.throttled_periods, &self.throttled];
        let used = self.used.as_deref();
        let tightest = self.tightest_used.as_deref();
        whole.into_iter().all(Meter::is_plain)
            && used.is_none_or(|used| used.iter().all(PodMeter::is_plain))
            && tightest.is_none_or(|used| used.iter().all(Meter::is_plain))
    }

    /// The VMM's process is replaced by another.
    pub fn succeed(&mut self) {
        let used = self.used.iter_mut().flat_map(|used| used.iter_mut());
        used.for_each(PodMeter::succeed);
    }

    /// Reads a level that is always at the same path: where the cgroup is
    /// another one, it was removed and made again, and counts from zero. True if so.
    fn read_level(&mut self, level: &Level<'_>) -> bool {
        let changed = self.read(level, |meter, _| meter.renew());
        if level.counts() || self.used.is_some() {
            let used = self.used.get_or_insert_default().iter_mut();
            let sums = level.used.own.iter().zip(level.used.pod);
            for (meter, (own, pod)) in used.zip(sums) {
                meter.read(*own, pod);
            }
        }
        changed
    }

    /// Reads whichever level is the tightest, whose own meter is `its`: where
    /// it is another one, only what it counts from now on is this scope's. True if
    /// so, and where it is the first.
    fn read_tightest(&mut self, level: &Level<'_>, its: &Self) -> bool {
        let is_first = self.cgroup.is_none();
        let changed = self.read(level, Meter::turn_to);
        let Some(used) = &its.used else {
            return changed || is_first;
        };
        let meters = self.tightest_used.get_or_insert_default().iter_mut();
        for (meter, used) in meters.zip(used.iter()) {
            if changed {
                meter.turn_to(used.total());
            }
            meter.read(used.total());
        }
        changed || is_first
    }

    /// True if the cgroup is another one than before.
    fn read(&mut self, level: &Level<'_>, change: fn(&mut Meter, u64)) -> bool {
        let cgroup = level.fact.id;
        let changed = self.cgroup.is_some_and(|before| before != cgroup);
        self.cgroup = Some(cgroup);
        let bandwidth = &level.bandwidth;
        let values = [
            bandwidth.periods,
            bandwidth.throttled_periods,
            bandwidth.throttled_ns,
        ];
        let meters = [
            &mut self.periods,
            &mut self.throttled_periods,
            &mut self.throttled,
        ];
        for (meter, value) in meters.into_iter().zip(values) {
            if changed {
                change(meter, value);
            }
            meter.read(value);
        }
        if let Some(fact) = level.throttle {
            let meter = self.throttle.now();
            meter.read(fact, changed.then_some(change));
        }
        changed
    }

    fn show(&self, level: &Level<'_>) -> Quota {
        let bandwidth = &level.bandwidth;
        let used = self.used.as_deref().map(|used| used.map(|one| one.total()));
        let tightest = self.tightest_used.as_deref();
        let used = used.or_else(|| tightest.map(|used| used.map(|one| one.total())));
        let used = Role::ALL.into_iter().zip(used.into_iter().flatten());
        Quota {
            scope: level.scope,
            cgroup: Arc::clone(&level.fact.path),
            cores: bandwidth
                .quota_ns
                .map(|quota| cores(quota, bandwidth.period_ns)),
            period_ns: bandwidth.period_ns,
            periods: self.periods.total(),
            throttled_periods: self.throttled_periods.total(),
            throttled_ns: self.throttled.total(),
            used_ns: used.filter(|(_, ns)| *ns > 0).collect(),
            throttle: self.throttle.get().map(ThrottleMeter::show),
        }
    }
}

/// Reads the levels of the vCPUs' path and the overhead cgroups. Once the VM
/// has ended its cgroups are gone, and what they said last stays.
pub fn read(
    member: &mut Member,
    cgroups: &Cgroups<'_>,
    charges: &Charges,
    throttling: Option<&ThrottlingFacts>,
) {
    if member.ended_ns.is_some() {
        return;
    }
    let levels = levels(member, cgroups, charges, throttling);
    let ledger = &mut member.ledger;
    member.quota.clear();
    for level in &levels {
        let meter = ledger.quotas.of(&level.fact.path);
        ledger.changes += u64::from(meter.read_level(level));
        member.quota.push(meter.show(level));
    }
    member.limits.clear();
    for scope in Scope::ALL {
        let of_scope = levels
            .iter()
            .filter(|level| level.scope == scope && level.counts());
        if let Some(level) = of_scope.min_by(|a, b| a.limit().total_cmp(&b.limit())) {
            let Some(its) = ledger.quotas.get(&level.fact.path) else {
                continue;
            };
            let meter = ledger.limits.entry(scope).or_default();
            ledger.changes += u64::from(meter.read_tightest(level, its));
            member.limits.push(meter.show(level));
        }
    }
}

/// What this reading says of each level.
fn levels<'a>(
    member: &Member,
    cgroups: &Cgroups<'a>,
    charges: &Charges,
    throttling: Option<&'a ThrottlingFacts>,
) -> Vec<Level<'a>> {
    let path = member.place.as_ref();
    let path = path.map_or(&[][..], |place| place.levels.as_slice());
    let level = |id: CgroupId, scope, used| {
        let fact = *cgroups.get(&id)?;
        Some(Level {
            scope,
            fact,
            bandwidth: fact.bandwidth?,
            throttle: throttling.and_then(|seen| seen.cgroups.get(&id)),
            used,
        })
    };
    // Outermost first: what is charged to one is charged to those before it.
    let on_path = path.iter().enumerate().filter_map(|(index, (id, scope))| {
        let below = path[index..].iter().map(|(id, _)| *id);
        level(*id, *scope, charges.within(below))
    });
    let overhead = member.overhead.iter().filter_map(|id| {
        let used = charges.within(std::iter::once(*id));
        level(*id, Scope::Overhead, used)
    });
    on_path.chain(overhead).collect()
}

#[allow(
    clippy::cast_precision_loss,
    reason = "quotas are far below 2^53 ns (104 days)"
)]
fn cores(quota_ns: u64, period_ns: u64) -> f64 {
    quota_ns as f64 / period_ns as f64
}

#[cfg(test)]
mod tests {
    use super::{Level, QuotaMeter};
    use crate::charge::PodSums;
    use crate::facts::{Bandwidth, CgroupFact, CgroupId};
    use crate::snapshot::{Role, Scope};

    fn fact(id: u64) -> CgroupFact {
        CgroupFact {
            id: CgroupId(id),
            parent: None,
            path: "/pod".into(),
            bandwidth: None,
            memory: None,
        }
    }

    fn level(fact: &CgroupFact, periods: u64) -> Level<'_> {
        let mut used = PodSums::default();
        used.own[0] = periods * 7;
        Level {
            scope: Scope::Pod,
            fact,
            bandwidth: Bandwidth {
                periods,
                throttled_periods: periods / 10,
                throttled_ns: periods * 10,
                ..Bandwidth::default()
            },
            throttle: None,
            used,
        }
    }

    fn totals(meter: &QuotaMeter, fact: &CgroupFact) -> [u64; 4] {
        let shown = meter.show(&level(fact, 0));
        [
            shown.periods,
            shown.throttled_periods,
            shown.throttled_ns,
            shown.used_ns[&Role::Vcpu],
        ]
    }

    #[test]
    fn a_cgroup_made_again_counts_on() {
        let mut meter = QuotaMeter::default();
        meter.read_level(&level(&fact(5), 100));
        meter.succeed();
        meter.read_level(&level(&fact(6), 20));
        assert_eq!(totals(&meter, &fact(6)), [120, 12, 1200, 840]);
    }

    #[test]
    fn another_level_that_becomes_the_tightest_is_no_jump_and_no_fall() {
        let (mut scope, mut five, mut six) = Default::default();
        let mut read = |meter: &mut QuotaMeter, id: u64, periods: u64| {
            let fact = fact(id);
            let level = level(&fact, periods);
            meter.read_level(&level);
            QuotaMeter::read_tightest(&mut scope, &level, meter);
            totals(&scope, &fact)
        };
        assert_eq!(read(&mut five, 5, 100), [100, 10, 1000, 700]);
        assert_eq!(read(&mut six, 6, 5000), [100, 10, 1000, 700]);
        assert_eq!(read(&mut six, 6, 5050), [150, 15, 1500, 1050]);
        assert_eq!(read(&mut five, 5, 110), [150, 15, 1500, 1050]);
    }
}
