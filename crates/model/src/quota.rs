//! CPU limits on a VM's cgroup path: each level, and the tightest of each scope.

use std::sync::Arc;

use crate::facts::{Bandwidth, CgroupFact, CgroupId};
use crate::fleet::Member;
use crate::ledger::Meter;
use crate::place::Cgroups;
use crate::snapshot::{Quota, Scope};

/// The counters of one level, or of the tightest level of one scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuotaMeter {
    cgroup: Option<CgroupId>,
    periods: Meter,
    throttled_periods: Meter,
    throttled: Meter,
}

impl QuotaMeter {
    /// Reads a level that is always at the same path: where the cgroup is
    /// another one, it was removed and made again, and counts from zero.
    fn read_level(&mut self, cgroup: CgroupId, bandwidth: &Bandwidth) {
        self.read(cgroup, bandwidth, |meter, _| meter.renew());
    }

    /// Reads whichever level is the tightest: where it is another one, only
    /// what it counts from now on is this scope's.
    fn read_tightest(&mut self, cgroup: CgroupId, bandwidth: &Bandwidth) {
        self.read(cgroup, bandwidth, Meter::turn_to);
    }

    fn read(&mut self, cgroup: CgroupId, bandwidth: &Bandwidth, change: fn(&mut Meter, u64)) {
        let changed = self.cgroup.is_some_and(|before| before != cgroup);
        self.cgroup = Some(cgroup);
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
    }

    fn show(&self, scope: Scope, path: &Arc<str>, bandwidth: &Bandwidth) -> Quota {
        Quota {
            scope,
            cgroup: Arc::clone(path),
            cores: bandwidth
                .quota_ns
                .map(|quota| cores(quota, bandwidth.period_ns)),
            period_ns: bandwidth.period_ns,
            periods: self.periods.total(),
            throttled_periods: self.throttled_periods.total(),
            throttled_ns: self.throttled.total(),
        }
    }
}

/// Reads the levels of the vCPUs' path and the overhead cgroups. Once the VM
/// has ended its cgroups are gone, and what they said last stays.
pub fn read(member: &mut Member, cgroups: &Cgroups<'_>) {
    if member.ended_ns.is_some() {
        return;
    }
    let levels = member
        .place
        .as_ref()
        .map_or(&[][..], |place| place.levels.as_slice());
    let overhead = member.overhead.iter().map(|id| (*id, Scope::Overhead));
    let levels: Vec<(Scope, &CgroupFact, Bandwidth)> = levels
        .iter()
        .copied()
        .chain(overhead)
        .filter_map(|(id, scope)| cgroups.get(&id).map(|fact| (scope, *fact)))
        .filter_map(|(scope, fact)| Some((scope, fact, fact.bandwidth?)))
        .collect();

    let ledger = &mut member.ledger;
    member.quota.clear();
    for (scope, fact, bandwidth) in &levels {
        if !ledger.quotas.contains_key(&*fact.path) {
            ledger
                .quotas
                .insert(Arc::clone(&fact.path), QuotaMeter::default());
        }
        let meter = ledger
            .quotas
            .get_mut(&*fact.path)
            .expect("it was just put there");
        meter.read_level(fact.id, bandwidth);
        member.quota.push(meter.show(*scope, &fact.path, bandwidth));
    }
    member.limits.clear();
    for scope in Scope::ALL {
        let of_scope = levels
            .iter()
            .filter(|(its, _, bandwidth)| *its == scope && counts(bandwidth));
        let tightest = of_scope.min_by(|(.., a), (.., b)| limit(a).total_cmp(&limit(b)));
        if let Some((_, fact, bandwidth)) = tightest {
            let meter = ledger.limits.entry(scope).or_default();
            meter.read_tightest(fact.id, bandwidth);
            member.limits.push(meter.show(scope, &fact.path, bandwidth));
        }
    }
}

/// Whether the level has a limit, or had one.
fn counts(bandwidth: &Bandwidth) -> bool {
    bandwidth.quota_ns.is_some() || bandwidth.periods > 0
}

/// The limit in cores; none is the loosest.
fn limit(bandwidth: &Bandwidth) -> f64 {
    bandwidth
        .quota_ns
        .map_or(f64::INFINITY, |quota| cores(quota, bandwidth.period_ns))
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
    use super::QuotaMeter;
    use crate::facts::{Bandwidth, CgroupId};

    fn bandwidth(periods: u64) -> Bandwidth {
        Bandwidth {
            periods,
            throttled_periods: periods / 10,
            throttled_ns: periods * 10,
            ..Bandwidth::default()
        }
    }

    fn totals(meter: &QuotaMeter) -> [u64; 3] {
        [
            meter.periods.total(),
            meter.throttled_periods.total(),
            meter.throttled.total(),
        ]
    }

    #[test]
    fn a_cgroup_made_again_counts_on() {
        let mut meter = QuotaMeter::default();
        meter.read_level(CgroupId(5), &bandwidth(100));
        meter.read_level(CgroupId(6), &bandwidth(20));
        assert_eq!(totals(&meter), [120, 12, 1200]);
    }

    #[test]
    fn another_level_that_becomes_the_tightest_is_no_jump_and_no_fall() {
        let mut meter = QuotaMeter::default();
        meter.read_tightest(CgroupId(5), &bandwidth(100));
        meter.read_tightest(CgroupId(6), &bandwidth(5000));
        assert_eq!(totals(&meter), [100, 10, 1000]);
        meter.read_tightest(CgroupId(6), &bandwidth(5050));
        assert_eq!(totals(&meter), [150, 15, 1500]);
        meter.read_tightest(CgroupId(5), &bandwidth(110));
        assert_eq!(totals(&meter), [150, 15, 1500]);
    }
}
