//! The vCPUs of a VM in a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::topology::host::HostPlace;
use crate::vocab::{CpuSet, KvmCounters};

/// Numbers of vCPUs of a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct VcpuCount {
    /// vCPUs at boot, if the VMM's arguments contain the number.
    pub boot: Option<u32>,
    /// vCPUs that KVM holds, if known.
    pub online: Option<u32>,
    /// Online vCPUs whose thread has ended. KVM holds a vCPU until its VM ends, and VMMs
    /// keep an unplugged vCPU until it is plugged in again (QEMU `accel/kvm/kvm-all.c`:
    /// `kvm_park_vcpu`). Known if `online` is known.
    pub parked: Option<u32>,
    /// vCPUs with a thread that was seen to run them.
    pub seen: u32,
}

impl VcpuCount {
    /// vCPUs that the guest can use: all that KVM holds, even if they never ran, minus
    /// the parked ones. If the number is unknown, the vCPUs that were seen.
    pub fn usable(&self) -> u32 {
        let parked = self.parked.unwrap_or(0);
        self.online
            .map_or(self.seen, |online| online.saturating_sub(parked))
    }
}

/// One vCPU of a VM.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Vcpu {
    /// `vcpu_id`: the x2APIC id that the guest sees.
    pub id: u32,
    /// `vcpu_idx`: dense, in order of creation.
    pub index: Option<u32>,
    /// The thread that runs the vCPU; `None` after unplug.
    pub tid: Option<u32>,
    /// CPU time of all threads that ever ran the vCPU, ns.
    pub cpu_ns: u64,
    /// Run delay of all threads that ever ran the vCPU, ns.
    pub wait_ns: Option<u64>,
    /// Guest-mode time, ns (an estimate: sampled by the tick).
    pub guest_ns: Option<u64>,
    /// Number of times that the scheduler put the vCPU on a CPU. `wait_ns` divided by it
    /// is the mean wait before the vCPU runs.
    pub timeslices: Option<u64>,
    /// Number of times that the vCPU left its CPU although it was runnable: preempted by
    /// another thread, or throttled.
    pub involuntary_switches: Option<u64>,
    /// KVM's counters, summed over all instances of the vCPU.
    pub kvm: KvmCounters,
    /// Whether the thread was preempted inside the guest at the time of the reading.
    pub preempted: Option<bool>,
    /// Path of the thread's cgroup.
    pub cgroup: Option<Arc<str>>,
    /// The CPU on which the thread runs or last ran.
    pub pcpu: Option<u32>,
    /// Allowed CPUs, as a list.
    pub affinity: Option<Arc<CpuSet>>,
    /// Position in the guest's topology.
    pub guest: Option<GuestPlace>,
    /// Position of the pCPU in the host's topology.
    pub host: Option<HostPlace>,
    /// CPU time on each pCPU since the vCPU was first seen, ns; empty unless requested.
    pub residency_ns: BTreeMap<u32, u64>,
}
