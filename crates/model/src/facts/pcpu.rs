//! Host CPUs.

use std::collections::BTreeMap;

/// Times of one host CPU since the host started, in ticks of `/proc/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PcpuTimes {
    /// All time, idle time included.
    pub all: u64,
    /// Time in hard interrupts.
    pub hard: u64,
    /// Time in soft interrupts, most of it network and timers.
    pub soft: u64,
    /// Time in which the hypervisor ran something else, if the host is itself a VM.
    pub steal: u64,
}

/// The times of all online host CPUs, by CPU number.
pub type Pcpus = BTreeMap<u32, PcpuTimes>;
