//! CPU limits and their throttling in a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::vocab::{Role, Scope, Throttle};

/// CPU bandwidth control of one level of the VM's cgroup path.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Quota {
    /// Meaning of the level for the VM.
    pub scope: Scope,
    /// Path of the cgroup.
    pub cgroup: Arc<str>,
    /// Limit in cores: CPU time per second; `None` = no limit.
    pub cores: Option<f64>,
    /// Length of a period, ns.
    pub period_ns: u64,
    /// Periods in which the cgroup had runnable tasks.
    pub periods: u64,
    /// Periods in which the cgroup was throttled.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
    /// CPU time of threads in the cgroup or below it, by role, ns; only if the cgroup has
    /// or had a limit.
    pub used_ns: BTreeMap<Role, u64>,
    /// Observed throttling, if it is tracked.
    pub throttle: Option<Throttle>,
}

/// A CPU limit that applies to no thread of the VM for which it was set.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct UnappliedLimit {
    /// Path of the limited cgroup.
    pub cgroup: Arc<str>,
    /// Limit in cores: CPU time per second.
    pub cores: f64,
}
