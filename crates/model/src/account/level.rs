//! One cgroup that limits a VM: its values in one reading, and its limit as last read.

use std::sync::Arc;

use crate::account::charge::{Charges, PodSums};
use crate::account::levels::Levels;
use crate::facts::{Bandwidth, CgroupFact, ThrottlingFacts};
use crate::identify::place::Cgroups;
use crate::vocab::{Scope, Throttle};

/// One level of a VM in one reading.
#[derive(Debug)]
pub struct LevelReading<'a> {
    /// Meaning of the level for the VM.
    pub scope: Scope,
    /// The cgroup of the level.
    pub fact: &'a CgroupFact,
    /// Bandwidth control of the cgroup.
    pub bandwidth: Bandwidth,
    /// Observed throttling; `None` if it is not tracked or never occurred.
    pub throttle: Option<&'a Throttle>,
    /// CPU time charged to the cgroup, by role.
    pub used: PodSums,
}

impl<'a> LevelReading<'a> {
    /// Reads the level at index `at` of `levels`; `None` if its cgroup was removed.
    pub fn read(
        at: usize,
        levels: &Levels,
        cgroups: &Cgroups<'a>,
        charges: &Charges,
        throttling: Option<&'a ThrottlingFacts>,
    ) -> Option<Self> {
        let level = levels.all().get(at)?;
        let fact = *cgroups.get(&level.id)?;
        Some(Self {
            scope: level.scope,
            fact,
            bandwidth: fact.bandwidth?,
            throttle: throttling.and_then(|seen| seen.cgroups.get(&level.id)),
            used: charges.within(at, levels),
        })
    }

    /// Whether the level has or had a limit.
    pub fn counts(&self) -> bool {
        self.bandwidth.quota_ns.is_some() || self.bandwidth.periods > 0
    }

    /// Limit in cores, if any.
    pub fn cores(&self) -> Option<f64> {
        cores(&self.bandwidth)
    }

    /// The limit. `is_binding`: it is the binding one of its scope.
    pub fn limit(&self, is_binding: bool) -> Limit {
        Limit {
            scope: self.scope,
            cgroup: Arc::clone(&self.fact.path),
            cores: self.cores(),
            period_ns: self.bandwidth.period_ns,
            is_binding,
        }
    }
}

/// The limit of a level as last read. The ledger has its counters.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Meaning of the level for the VM.
    pub scope: Scope,
    /// Path of the cgroup.
    pub cgroup: Arc<str>,
    /// Limit in cores: CPU time per second; `None` = no limit.
    pub cores: Option<f64>,
    /// Length of a period, ns.
    pub period_ns: u64,
    /// Whether the level is the binding one of its scope.
    pub is_binding: bool,
}

/// Limit of a cgroup in cores, if any.
#[allow(
    clippy::cast_precision_loss,
    reason = "quotas are far below 2^53 ns (104 days)"
)]
pub fn cores(bandwidth: &Bandwidth) -> Option<f64> {
    let quota_ns = bandwidth.quota_ns?;
    Some(quota_ns as f64 / bandwidth.period_ns as f64)
}
