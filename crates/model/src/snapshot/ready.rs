//! CPU Ready of a VM: the time in which its vCPUs were runnable but did not run.

use serde::{Deserialize, Serialize};

/// A time between two bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TimeRange {
    /// Lower bound, ns.
    pub least_ns: u64,
    /// Upper bound, ns.
    pub most_ns: u64,
}

/// CPU Ready of a VM in an interval between two readings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ready {
    /// Length of the interval, ns.
    pub interval_ns: u64,
    /// Co-stop: time in which at least one vCPU ran while at least one other was runnable
    /// but did not run. Two readings of each vCPU give bounds only. `None` if a vCPU
    /// started or ended in the interval, or if a value of one is unknown.
    pub co_stop: Option<TimeRange>,
    /// The vCPUs that had the same thread at both readings and whose run delay is known.
    pub vcpus: Vec<VcpuReady>,
}

/// CPU Ready of one vCPU in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct VcpuReady {
    /// `vcpu_id`.
    pub vcpu: u32,
    /// CPU Ready: run delay, ns, throttling included.
    pub wait_ns: u64,
    /// The part of it in which the vCPU waited for a CPU. The rest is throttling. Both
    /// bounds are equal if no limit of the vCPU throttled.
    pub contended: TimeRange,
    /// Mean wait before the scheduler put the vCPU on a CPU, ns; `None` if it never did.
    pub mean_wait_ns: Option<u64>,
    /// Number of times that the scheduler put the vCPU on a CPU.
    pub timeslices: Option<u64>,
    /// Number of times that the vCPU left its CPU although it was runnable.
    pub involuntary_switches: Option<u64>,
}
