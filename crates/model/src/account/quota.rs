//! Counters of one level, and of the binding level of a scope.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::account::known::Known;
use crate::account::level::LevelReading;
use crate::account::meter::{Meter, PodMeter};
use crate::account::throttle::ThrottleMeter;
use crate::facts::Bandwidth;
use crate::snapshot::{Quota, Throttle};
use crate::vocab::{CgroupId, Role};

const ROLES: usize = Role::ALL.len();

/// The counters of one level.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QuotaMeter {
    cgroup: Option<CgroupId>,
    periods: Meter,
    throttled_periods: Meter,
    throttled: Meter,
    /// Observed throttling, if tracked.
    throttle: Known<ThrottleMeter>,
    /// CPU time by role, if the level has or had a limit.
    used: Option<Box<[PodMeter; ROLES]>>,
}

impl QuotaMeter {
    /// The cgroup that was read last.
    pub fn cgroup(&self) -> Option<CgroupId> {
        self.cgroup
    }

    /// Whether sources report the whole state. Observed throttling is not checked because
    /// it occurs only if there are periods.
    pub fn is_plain(&self) -> bool {
        let whole = [&self.periods, &self.throttled_periods, &self.throttled];
        let used = self.used.as_deref();
        whole.into_iter().all(Meter::is_plain)
            && used.is_none_or(|used| used.iter().all(PodMeter::is_plain))
    }

    /// The VMM process was replaced by another.
    pub fn succeed(&mut self) {
        let used = self.used.iter_mut().flat_map(|used| used.iter_mut());
        used.for_each(PodMeter::succeed);
    }

    /// Counts the pod's other processes for this VM from the next reading on.
    pub fn take_pod(&mut self) {
        let used = self.used.iter_mut().flat_map(|used| used.iter_mut());
        used.for_each(PodMeter::take_pod_from_next);
    }

    /// Keeps all counts, because the cgroup may be removed and then no source reports
    /// them. If the cgroup still exists, counting continues.
    pub fn detach(&mut self) {
        let keep = |meter: &mut Meter| meter.turn_to(meter.counted());
        keep(&mut self.periods);
        keep(&mut self.throttled_periods);
        keep(&mut self.throttled);
        self.throttle.change(|meter| meter.each(keep));
    }

    /// Observed throttling, if this agent tracks it.
    pub fn throttle(&self) -> Option<Throttle> {
        self.throttle.get().map(ThrottleMeter::show)
    }

    /// Observed throttling, tracked by this or a previous agent.
    pub fn any_throttle(&self) -> Option<Throttle> {
        self.throttle.any().map(ThrottleMeter::show)
    }

    /// Increase of throttled periods and throttled time (ns) at a reading; `None` if the
    /// level was not read before.
    pub fn throttled_since(&self, bandwidth: &Bandwidth) -> Option<(u64, u64)> {
        self.cgroup?;
        let since = |now: u64, meter: &Meter| now.saturating_sub(meter.counted());
        Some((
            since(bandwidth.throttled_periods, &self.throttled_periods),
            since(bandwidth.throttled_ns, &self.throttled),
        ))
    }

    /// Reads the level, whose path never changes. Another cgroup at the path means that
    /// the cgroup was removed and recreated and counts from zero; returns true in this
    /// case.
    pub fn read(&mut self, level: &LevelReading<'_>) -> bool {
        let cgroup = level.fact.id;
        let is_another = self.cgroup.is_some_and(|before| before != cgroup);
        self.cgroup = Some(cgroup);
        let bandwidth = &level.bandwidth;
        let values = [
            (&mut self.periods, bandwidth.periods),
            (&mut self.throttled_periods, bandwidth.throttled_periods),
            (&mut self.throttled, bandwidth.throttled_ns),
        ];
        for (meter, value) in values {
            if is_another {
                meter.renew();
            }
            meter.read(value);
        }
        if let Some(fact) = level.throttle {
            let meter = self.throttle.now();
            if is_another {
                meter.each(Meter::renew);
            }
            meter.read(fact);
        }
        if level.counts() || self.used.is_some() {
            let used = self.used.get_or_insert_default().iter_mut();
            let sums = level.used.own.iter().zip(level.used.pod);
            for (meter, (own, pod)) in used.zip(sums) {
                meter.read(*own, pod);
            }
        }
        is_another
    }

    /// The level with its totals.
    pub fn show(&self, level: &LevelReading<'_>) -> Quota {
        let used = self.used.as_deref().map(|used| used.map(|one| one.total()));
        Quota {
            periods: self.periods.total(),
            throttled_periods: self.throttled_periods.total(),
            throttled_ns: self.throttled.total(),
            throttle: self.throttle(),
            ..shown(level, used)
        }
    }
}

/// Counters of the binding level of a scope: the increments of each level while it was
/// binding.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingMeter {
    cgroup: Option<CgroupId>,
    path: Option<Arc<str>>,
    periods: Meter,
    throttled_periods: Meter,
    throttled: Meter,
    throttle: Known<ThrottleMeter>,
    tightest_used: Option<Box<[Meter; ROLES]>>,
    /// Restored from another agent, and not read yet by this one.
    #[serde(skip)]
    is_recalled: bool,
}

impl BindingMeter {
    /// The binding cgroup; `None` if there is none.
    pub fn cgroup(&self) -> Option<CgroupId> {
        self.cgroup
    }

    /// Path of the last binding level.
    pub fn path(&self) -> Option<&Arc<str>> {
        self.path.as_ref()
    }

    /// No level of the scope is binding any more. All counts are kept, because the cgroup
    /// may be removed; the next binding level continues from them.
    pub fn detach(&mut self) {
        let keep = |meter: &mut Meter| meter.turn_to(meter.counted());
        keep(&mut self.periods);
        keep(&mut self.throttled_periods);
        keep(&mut self.throttled);
        self.throttle.change(|meter| meter.each(keep));
        let used = self.tightest_used.iter_mut();
        used.flat_map(|used| used.iter_mut()).for_each(keep);
        self.cgroup = None;
        self.is_recalled = false;
    }

    /// Whether the cgroup whose counters are needed exists, if any is needed.
    pub fn can_go_on(&self, is_left: impl Fn(CgroupId) -> bool) -> bool {
        self.cgroup.is_none_or(is_left)
    }

    /// Marks the meter as restored from another agent.
    pub fn recall(&mut self) {
        self.is_recalled = true;
    }

    /// Whether the meter was restored from another agent and not read yet by this one.
    pub fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Reads the previously binding level, counted by `its`, for the last time. If its
    /// cgroup was removed, the state is unknown and all counters restart at 0.
    pub fn read_last(&mut self, level: Option<&LevelReading<'_>>, mut its: QuotaMeter) {
        if let Some(level) = level {
            its.read(level);
            self.read(level, &its);
        } else {
            *self = Self {
                cgroup: self.cgroup,
                path: self.path.take(),
                ..Self::default()
            };
        }
        self.is_recalled = true;
    }

    /// Switches to the level counted by `its` as the binding one: only later increments
    /// count.
    pub fn turn_to(&mut self, its: &QuotaMeter) {
        let meters = [
            (&mut self.periods, &its.periods),
            (&mut self.throttled_periods, &its.throttled_periods),
            (&mut self.throttled, &its.throttled),
        ];
        for (meter, its) in meters {
            meter.turn_to(its.total());
        }
        if let Some(seen) = its.throttle() {
            self.throttle.now().turn_to(&seen.into());
        }
        let used = self
            .tightest_used
            .iter_mut()
            .flat_map(|used| used.iter_mut());
        let totals = its.used.iter().flat_map(|used| used.iter());
        let totals = totals.map(PodMeter::total).chain(std::iter::repeat(0));
        for (meter, total) in used.zip(totals) {
            meter.turn_to(total);
        }
    }

    /// Reads the binding level. Returns true if it is another one than before.
    pub fn read(&mut self, level: &LevelReading<'_>, its: &QuotaMeter) -> bool {
        let is_another = self.path.as_ref() != Some(&level.fact.path);
        self.cgroup = its.cgroup;
        self.path = Some(Arc::clone(&level.fact.path));
        self.is_recalled = false;
        self.periods.read(its.periods.total());
        self.throttled_periods.read(its.throttled_periods.total());
        self.throttled.read(its.throttled.total());
        if let Some(seen) = its.throttle() {
            self.throttle.now().read(&seen.into());
        }
        if let Some(used) = &its.used {
            let meters = self.tightest_used.get_or_insert_default().iter_mut();
            for (meter, used) in meters.zip(used.iter()) {
                meter.read(used.total());
            }
        }
        is_another
    }

    /// The level with its totals.
    pub fn show(&self, level: &LevelReading<'_>) -> Quota {
        let used = self.tightest_used.as_deref();
        let used = used.map(|used| used.map(|one| one.total()));
        Quota {
            periods: self.periods.total(),
            throttled_periods: self.throttled_periods.total(),
            throttled_ns: self.throttled.total(),
            throttle: self.throttle.get().map(ThrottleMeter::show),
            ..shown(level, used)
        }
    }
}

/// A level without its counters.
fn shown(level: &LevelReading<'_>, used: Option<[u64; ROLES]>) -> Quota {
    let used = Role::ALL.into_iter().zip(used.into_iter().flatten());
    Quota {
        scope: level.scope,
        cgroup: Arc::clone(&level.fact.path),
        cores: level.cores(),
        period_ns: level.bandwidth.period_ns,
        periods: 0,
        throttled_periods: 0,
        throttled_ns: 0,
        used_ns: used.filter(|(_, ns)| *ns > 0).collect(),
        throttle: None,
    }
}

#[cfg(test)]
mod tests;
