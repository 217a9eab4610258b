//! One cgroup that limits a VM, as one reading has it.

use crate::account::charge::{Charges, PodSums};
use crate::account::levels::Levels;
use crate::facts::{Bandwidth, CgroupFact, ThrottleFact, ThrottlingFacts};
use crate::identify::place::Cgroups;
use crate::vocab::Scope;

/// One level of a VM in one reading.
#[derive(Debug)]
pub struct LevelReading<'a> {
    /// What the level is to the VM.
    pub scope: Scope,
    /// Its cgroup.
    pub fact: &'a CgroupFact,
    /// The bandwidth control of that cgroup.
    pub bandwidth: Bandwidth,
    /// What was seen of its throttling; `None` where that is not followed, or never was.
    pub throttle: Option<&'a ThrottleFact>,
    /// CPU time charged to it, by role.
    pub used: PodSums,
}

impl<'a> LevelReading<'a> {
    /// Reads the level at this place of `levels`; `None` where its cgroup is gone.
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

    /// Whether it has a limit, or had one.
    pub fn counts(&self) -> bool {
        self.bandwidth.quota_ns.is_some() || self.bandwidth.periods > 0
    }

    /// The limit in cores, if there is one.
    pub fn cores(&self) -> Option<f64> {
        cores(&self.bandwidth)
    }
}

/// The limit of a cgroup in cores, if it has one.
#[allow(
    clippy::cast_precision_loss,
    reason = "quotas are far below 2^53 ns (104 days)"
)]
pub fn cores(bandwidth: &Bandwidth) -> Option<f64> {
    let quota_ns = bandwidth.quota_ns?;
    Some(quota_ns as f64 / bandwidth.period_ns as f64)
}
