//! The vCPUs of a VM as they are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::topology::host::HostPlace;
use crate::vocab::{CpuSet, KvmCounters};

/// How many vCPUs a VM has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VcpuCount {
    /// vCPUs that it was booted with, where its arguments tell.
    pub boot: Option<u32>,
    /// vCPUs that KVM holds, if that is known.
    pub online: Option<u32>,
    /// Those of them whose thread has ended: KVM holds a vCPU until its VM ends, and
    /// VMMs keep what is unplugged until it is plugged in again (QEMU
    /// `accel/kvm/kvm-all.c`: `kvm_park_vcpu`). Known where `online` is.
    pub parked: Option<u32>,
    /// vCPUs that have a thread which was seen to run them.
    pub seen: u32,
}

impl VcpuCount {
    /// vCPUs that the guest can use: all that KVM holds, without the parked ones, also
    /// where they never ran; of a VM of which that is not known those that were seen.
    pub fn usable(&self) -> u32 {
        let parked = self.parked.unwrap_or(0);
        self.online
            .map_or(self.seen, |online| online.saturating_sub(parked))
    }
}

/// One vCPU of a VM.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vcpu {
    /// `vcpu_id`: the x2APIC id that the guest sees.
    pub id: u32,
    /// `vcpu_idx`: dense, in order of creation.
    pub index: Option<u32>,
    /// The thread that runs it; `None` once it was unplugged.
    pub tid: Option<u32>,
    /// CPU time, ns, of all threads that ever ran it.
    pub cpu_ns: u64,
    /// Run delay, ns, of all threads that ever ran it.
    pub wait_ns: Option<u64>,
    /// Guest-mode time, ns (an estimate: sampled by the tick).
    pub guest_ns: Option<u64>,
    /// What KVM counts of it, of all its instances together.
    #[serde(flatten)]
    pub kvm: KvmCounters,
    /// Whether it was preempted inside the guest when it was read.
    pub preempted: Option<bool>,
    /// The path of the cgroup that its thread sits in.
    pub cgroup: Option<Arc<str>>,
    /// The CPU it runs on, or ran on last.
    pub pcpu: Option<u32>,
    /// The CPUs it may run on, as a list.
    pub affinity: Option<Arc<CpuSet>>,
    /// Where the guest believes it to be.
    pub guest: Option<GuestPlace>,
    /// Where its pCPU is.
    pub host: Option<HostPlace>,
    /// CPU time on each pCPU since the vCPU was first seen, ns; empty unless
    /// it was asked for.
    pub residency_ns: BTreeMap<u32, u64>,
}
