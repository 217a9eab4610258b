//! CPU limits and their throttling as they are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::vocab::{Durations, Role, Scope};

/// CPU bandwidth control of one level of the VM's cgroup path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quota {
    /// What the level is to the VM.
    pub scope: Scope,
    /// The cgroup's path.
    pub cgroup: Arc<str>,
    /// CPU time a second, in cores; `None` = no limit.
    pub cores: Option<f64>,
    /// The length of a period, ns.
    pub period_ns: u64,
    /// Periods that had something to run.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
    /// CPU time of threads that sit in it or below, by role, ns; only where it
    /// has a limit, or had one.
    pub used_ns: BTreeMap<Role, u64>,
    /// What was seen of its throttling, where that is followed.
    pub throttle: Option<Throttle>,
}

/// A CPU limit that holds no thread of the VM which it is meant for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnappliedLimit {
    /// The cgroup that has it.
    pub cgroup: Arc<str>,
    /// CPU time a second, in cores.
    pub cores: f64,
}

/// The throttling of one level of a VM's path, as it is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Throttle {
    /// Wall time in which it was throttled on at least one CPU, ns.
    pub wall_ns: u64,
    /// Run queues of CPUs that were throttled.
    pub throttles: u64,
    /// How often one was set free, by how long it had stood.
    pub unthrottles: Durations,
    /// All those times together, ns.
    pub unthrottled_ns: u64,
}
