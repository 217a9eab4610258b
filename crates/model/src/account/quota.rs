//! Counters of one level, and of the binding level of a scope.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::account::known::Known;
use crate::account::level::{LevelReading, Limit};
use crate::account::meter::{Meter, PodMeter};
use crate::account::throttle::ThrottleMeter;
use crate::facts::Bandwidth;
use crate::snapshot::Quota;
use crate::vocab::{CgroupId, Role, Throttle};

const ROLES: usize = Role::ALL.len();

/// Counters of CPU bandwidth control.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct BandwidthMeter {
    /// The cgroup that was read last.
    cgroup: Option<CgroupId>,
    periods: Meter,
    throttled_periods: Meter,
    throttled: Meter,
    /// Observed throttling, if tracked.
    throttle: Known<ThrottleMeter>,
}

/// Values of the kernel's counters of bandwidth control, in the order of
/// [`BandwidthMeter::kernel`].
type KernelCounts = [u64; 3];

impl BandwidthMeter {
    /// The meters of the kernel's counters.
    fn kernel(&mut self) -> [&mut Meter; 3] {
        [
            &mut self.periods,
            &mut self.throttled_periods,
            &mut self.throttled,
        ]
    }

    /// The totals of the kernel's counters.
    fn totals(&self) -> KernelCounts {
        [&self.periods, &self.throttled_periods, &self.throttled].map(Meter::total)
    }

    /// Observed throttling, if this agent tracks it.
    fn throttle(&self) -> Option<Throttle> {
        self.throttle.get().map(ThrottleMeter::show)
    }

    fn read(&mut self, counts: KernelCounts, throttle: Option<&Throttle>) {
        for (meter, value) in self.kernel().into_iter().zip(counts) {
            meter.read(value);
        }
        if let Some(seen) = throttle {
            self.throttle.now().read(seen);
        }
    }

    /// Switches to other counters with these present values: only later increments count.
    fn switch_to(&mut self, counts: KernelCounts, throttle: Option<&Throttle>) {
        for (meter, value) in self.kernel().into_iter().zip(counts) {
            meter.switch_to(value);
        }
        if let Some(seen) = throttle {
            self.throttle.now().switch_to(seen);
        }
    }

    /// Keeps all counts: counting continues if the counters still exist.
    fn detach(&mut self) {
        self.kernel().into_iter().for_each(keep);
        self.throttle.change(|meter| meter.each(keep));
    }

    fn is_plain(&self) -> bool {
        let kernel = [&self.periods, &self.throttled_periods, &self.throttled];
        kernel.into_iter().all(Meter::is_plain)
    }

    fn show(&self, limit: &Limit, used: Option<[u64; ROLES]>) -> Quota {
        let mut used_ns = BTreeMap::new();
        // Inserting costs one allocation; collecting sorts first, and costs three.
        for (role, ns) in Role::ALL.into_iter().zip(used.into_iter().flatten()) {
            if ns > 0 {
                used_ns.insert(role, ns);
            }
        }
        let [periods, throttled_periods, throttled_ns] = self.totals();
        Quota {
            scope: limit.scope,
            cgroup: Arc::clone(&limit.cgroup),
            cores: limit.cores,
            period_ns: limit.period_ns,
            periods,
            throttled_periods,
            throttled_ns,
            used_ns,
            throttle: self.throttle(),
        }
    }
}

/// Keeps the total of a meter whose source may be removed.
fn keep(meter: &mut Meter) {
    meter.switch_to(meter.counted());
}

/// The counters of one level.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QuotaMeter {
    #[serde(flatten)]
    bandwidth: BandwidthMeter,
    /// CPU time by role, if the level has or had a limit.
    used: Option<Box<[PodMeter; ROLES]>>,
}

impl QuotaMeter {
    /// The cgroup that was read last.
    pub fn cgroup(&self) -> Option<CgroupId> {
        self.bandwidth.cgroup
    }

    /// Whether sources report the whole state. Observed throttling is not checked because
    /// it occurs only if there are periods.
    pub fn is_plain(&self) -> bool {
        let used = self.used.as_deref();
        self.bandwidth.is_plain() && used.is_none_or(|used| used.iter().all(PodMeter::is_plain))
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
        self.bandwidth.detach();
    }

    /// Observed throttling, if this agent tracks it.
    pub fn throttle(&self) -> Option<Throttle> {
        self.bandwidth.throttle()
    }

    /// Observed throttling, tracked by this or a previous agent.
    pub fn any_throttle(&self) -> Option<Throttle> {
        self.bandwidth.throttle.any().map(ThrottleMeter::show)
    }

    /// Increase of throttled periods and throttled time (ns) at a reading; `None` if the
    /// level was not read before.
    pub fn throttled_since(&self, bandwidth: &Bandwidth) -> Option<(u64, u64)> {
        self.cgroup()?;
        let since = |now: u64, meter: &Meter| now.saturating_sub(meter.counted());
        let meters = &self.bandwidth;
        Some((
            since(bandwidth.throttled_periods, &meters.throttled_periods),
            since(bandwidth.throttled_ns, &meters.throttled),
        ))
    }

    /// Reads the level, whose path never changes. Another cgroup at the path means that
    /// the cgroup was removed and recreated and counts from zero; returns true in this
    /// case.
    pub fn read(&mut self, level: &LevelReading<'_>) -> bool {
        let is_another = self.cgroup().is_some_and(|before| before != level.fact.id);
        let meters = &mut self.bandwidth;
        meters.cgroup = Some(level.fact.id);
        if is_another {
            let zero = level.throttle.map(|_| Throttle::default());
            meters.switch_to(KernelCounts::default(), zero.as_ref());
        }
        let bandwidth = &level.bandwidth;
        let counts = [
            bandwidth.periods,
            bandwidth.throttled_periods,
            bandwidth.throttled_ns,
        ];
        meters.read(counts, level.throttle);
        if level.counts() || self.used.is_some() {
            let used = self.used.get_or_insert_default().iter_mut();
            let sums = level.used.own.iter().zip(level.used.pod);
            for (meter, (own, pod)) in used.zip(sums) {
                meter.read(*own, pod);
            }
        }
        is_another
    }

    /// The totals of the level with this limit.
    pub fn show(&self, limit: &Limit) -> Quota {
        let used = self.used.as_deref();
        let used = used.map(|used| used.map(|one| one.total()));
        self.bandwidth.show(limit, used)
    }
}

/// Counters of the binding level of a scope: the increments of each level while it was
/// binding.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingMeter {
    /// Its cgroup is the binding one; `None` if there is none.
    #[serde(flatten)]
    bandwidth: BandwidthMeter,
    path: Option<Arc<str>>,
    tightest_used: Option<Box<[Meter; ROLES]>>,
    /// Restored from another agent, and not read yet by this one.
    #[serde(skip)]
    is_recalled: bool,
}

impl BindingMeter {
    /// The binding cgroup; `None` if there is none.
    pub fn cgroup(&self) -> Option<CgroupId> {
        self.bandwidth.cgroup
    }

    /// Path of the last binding level.
    pub fn path(&self) -> Option<&Arc<str>> {
        self.path.as_ref()
    }

    /// No level of the scope is binding any more. All counts are kept, because the cgroup
    /// may be removed; the next binding level continues from them.
    pub fn detach(&mut self) {
        self.bandwidth.detach();
        let used = self.tightest_used.iter_mut();
        used.flat_map(|used| used.iter_mut()).for_each(keep);
        self.bandwidth.cgroup = None;
        self.is_recalled = false;
    }

    /// Whether the cgroup whose counters are needed exists, if any is needed.
    pub fn can_go_on(&self, is_left: impl Fn(CgroupId) -> bool) -> bool {
        self.cgroup().is_none_or(is_left)
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
                bandwidth: BandwidthMeter {
                    cgroup: self.cgroup(),
                    ..BandwidthMeter::default()
                },
                path: self.path.take(),
                ..Self::default()
            };
        }
        self.is_recalled = true;
    }

    /// Switches to the level counted by `its` as the binding one: only later increments
    /// count.
    pub fn switch_to(&mut self, its: &QuotaMeter) {
        let throttle = its.throttle();
        self.bandwidth
            .switch_to(its.bandwidth.totals(), throttle.as_ref());
        let used = self
            .tightest_used
            .iter_mut()
            .flat_map(|used| used.iter_mut());
        let totals = its.used.iter().flat_map(|used| used.iter());
        let totals = totals.map(PodMeter::total).chain(std::iter::repeat(0));
        for (meter, total) in used.zip(totals) {
            meter.switch_to(total);
        }
    }

    /// Reads the binding level. Returns true if it is another one than before.
    pub fn read(&mut self, level: &LevelReading<'_>, its: &QuotaMeter) -> bool {
        let is_another = self.path.as_ref() != Some(&level.fact.path);
        self.bandwidth.cgroup = its.cgroup();
        self.path = Some(Arc::clone(&level.fact.path));
        self.is_recalled = false;
        let throttle = its.throttle();
        self.bandwidth
            .read(its.bandwidth.totals(), throttle.as_ref());
        if let Some(used) = &its.used {
            let meters = self.tightest_used.get_or_insert_default().iter_mut();
            for (meter, used) in meters.zip(used.iter()) {
                meter.read(used.total());
            }
        }
        is_another
    }

    /// The totals of the scope, whose binding level has this limit.
    pub fn show(&self, limit: &Limit) -> Quota {
        let used = self.tightest_used.as_deref();
        let used = used.map(|used| used.map(|one| one.total()));
        self.bandwidth.show(limit, used)
    }
}

#[cfg(test)]
mod tests;
