//! Rust mirror of `bpf/map_abi.h`: keys and values of maps.

use crate::{COMM_LEN, Owner};

/// Offset of a field that this kernel does not have.
pub const NO_FIELD: u32 = u32::MAX;
/// Number of buckets of throttle durations.
pub const THROTTLE_DURATIONS: usize = 15;
/// Payload of a page of map `book`, bytes.
pub const HANDOVER_PAGE_LEN: usize = 1016;

mirror! {
    /// `struct watch`: value of map `watched`.
    watch => Watch {
        pod: u64,
        names: u32,
        since_pass: u32,
    }
    /// `struct vm`: value of map `vms`.
    vm => Vm {
        start_ns: u64,
        pod: u64,
        mm: u64,
        names: u32,
        since_pass: u32,
        moves: [u64; DISTANCES as usize],
    }
    /// `struct cpu_place`: value of array `places`.
    cpu_place => CpuPlace {
        core: u32,
        llc: u32,
        node: u32,
        pad: u32,
    }
    /// `struct residency_key`: key of map `residency`.
    residency_key => ResidencyKey {
        owner: Owner,
        vcpu_id: u32,
        pcpu: u32,
    }
    /// `struct vcpu_key`: key of map `ended_vcpus`.
    vcpu_key => VcpuKey {
        owner: Owner,
        vcpu_id: u32,
        pad: u32,
    }
    /// `struct vhost_fields`: value of map `vhost_fields`.
    vhost_fields => VhostFields {
        is_known: u32,
        mm: u32,
        vqs: u32,
        nvqs: u32,
        worker: u32,
        task: u32,
        vtsk: u32,
        vtsk_task: u32,
    }
    /// `struct level`: value of map `levels`.
    level => Level {
        throttles: u64,
        wall_ns: u64,
        durations: [u64; THROTTLE_DURATIONS],
        duration_sum_ns: u64,
    }
    /// `struct thread_class`: key of the maps `retired` and `throttle_hits`.
    thread_class => ThreadClass {
        owner: Owner,
        level: u64,
        flags: u32,
        vcpu_id: u32,
        comm: [u8; COMM_LEN],
        leader_comm: [u8; COMM_LEN],
    }
    /// `struct retired`: value of map `retired`.
    retired => Retired {
        threads: u64,
        run_ns: u64,
        wait_ns: u64,
        guest_ns: u64,
        timeslices: u64,
        involuntary_switches: u64,
    }
    /// `struct handover_key`: key of map `book`.
    handover_key => HandoverKey {
        start_ns: u64,
        tgid: u32,
        edition: u32,
        page: u32,
        pad: u32,
    }
    /// `struct handover_page`: value of map `book`.
    handover_page => HandoverPage {
        pages: u32,
        len: u32,
        bytes: [u8; HANDOVER_PAGE_LEN],
    }
}

enumerators! {
    /// Threads of one core.
    DISTANCE_SMT = 0,
    /// Cores of one last-level cache.
    DISTANCE_CORE = 1,
    /// Last-level caches of one NUMA node.
    DISTANCE_LLC = 2,
    /// NUMA nodes.
    DISTANCE_NUMA = 3,
    /// The distance is unknown.
    DISTANCE_UNKNOWN = 4,
    /// Number of distances.
    DISTANCES = 5,
    /// The time of an exited thread is lost: `retired` is full.
    DROP_RETIRED_FULL = 0,
    /// A thread state could not be created.
    DROP_MARK_FULL = 1,
    /// `vms` or `vm_mms` is full: a VM is missing.
    DROP_VM_FULL = 2,
    /// The name of an exited thread is lost, its time is kept.
    DROP_RETIRED_NAMES = 3,
    /// A cgroup is too deep: its path is unknown.
    DROP_CGROUP_DEPTH = 4,
    /// A vCPU's time on a pCPU is lost.
    DROP_RESIDENCY_FULL = 5,
    /// The thread that ran when a quota was exhausted is lost.
    DROP_HITS_FULL = 6,
    /// The wall time of a throttling is lost.
    DROP_WALLS_FULL = 7,
    /// A VM has too many memslots.
    DROP_MEMSLOTS = 8,
    /// Two threads of a VMM made large discards at once.
    DROP_DISCARDS_AT_ONCE = 9,
    /// KVM's counters of an exited vCPU thread are lost.
    DROP_ENDED_VCPUS_FULL = 10,
    /// KVM's last counts of a vCPU may be lost: the exit program missed its thread.
    DROP_ENDED_VCPUS_MISSED = 11,
    /// The time after a thread's exit is lost, or all of its time.
    DROP_MARK_UNREAD = 12,
    /// The kernel did not look up a thread state.
    DROP_MARK_BUSY = 13,
    /// The time of a renamed process's threads moves to another role.
    DROP_PROCESS_RENAMED = 14,
    /// Number of reasons.
    DROP_REASONS = 15,
    /// Changes of `retired` and `ended_vcpus`.
    CHANGE_RETIRED = 0,
    /// Changes of `levels` and `throttle_hits`.
    CHANGE_THROTTLE = 1,
    /// Changes of the keys of `vms`.
    CHANGE_VMS = 2,
    /// Number of change counts.
    CHANGES = 3,
}
