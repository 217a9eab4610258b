//! Rust mirror of `bpf/record_abi.h`: the records that a pass emits.

use crate::map::DISTANCES;
use crate::{COMM_LEN, Owner};

/// Size of a cgroup's name with its NUL, bytes.
pub const CGROUP_NAME_LEN: usize = 256;
/// Maximum number of CPUID leaves that KVM stores for a vCPU.
pub const CPUID_LEAVES_MAX: usize = 256;
/// Number of buckets of a histogram of KVM.
pub const HALT_BUCKETS: usize = 32;
/// Maximum size of a record, bytes.
pub const RECORD_MAX: usize = 16 << 10;
/// Capacity of the map `stream`, which a run of `walk_tasks` fills, bytes.
pub const STREAM_BYTES: usize = 512 << 10;

mirror! {
    /// `struct stream`: output of a run of `walk_tasks`.
    stream => Stream {
        used: u64,
        bytes: [u8; STREAM_BYTES + RECORD_MAX],
    }
    /// `struct record_head`: head of each record.
    record_head => RecordHead {
        kind: u32,
        size: u32,
    }
    /// `struct thread_record`.
    thread_record => ThreadRecord {
        head: RecordHead,
        owner: Owner,
        tid: u32,
        tgid: u32,
        start_ns: u64,
        run_ns: u64,
        wait_ns: u64,
        guest_ns: u64,
        timeslices: u64,
        involuntary_switches: u64,
        cgroup: u64,
        pcpu: u32,
        flags: u32,
        class_changes: u32,
        policy: u32,
        comm: [u8; COMM_LEN],
        leader_comm: [u8; COMM_LEN],
    }
    /// `struct vcpu_record`: follows a thread record with [`THREAD_VCPU`].
    vcpu_record => VcpuRecord {
        id: u32,
        index: u32,
        instance: u64,
        halt_poll_success_ns: u64,
        halt_poll_fail_ns: u64,
        halt_wait_ns: u64,
        exits: u64,
        io_exits: u64,
        mmio_exits: u64,
        halt_exits: u64,
        irq_exits: u64,
        irq_window_exits: u64,
        hypercalls: u64,
        pf_fixed: u64,
        pf_taken: u64,
        halt_wakeups: u64,
        polls_attempted: u64,
        polls_successful: u64,
        polls_invalid: u64,
        yields_attempted: u64,
        yields_successful: u64,
        preemptions_reported: u64,
        placed_ns: u64,
        preempted: u32,
        pad: u32,
    }
    /// `struct slept_record`.
    slept_record => SleptRecord {
        head: RecordHead,
        from: u32,
        at: u32,
        count: u32,
        pad: u32,
    }
    /// `struct halts_record`: histograms of the halts of a vCPU.
    halts_record => HaltsRecord {
        head: RecordHead,
        owner: Owner,
        instance: u64,
        vcpu_id: u32,
        pad: u32,
        counts: [[u64; HALT_BUCKETS]; HALT_KINDS as usize],
    }
    /// `struct cgroup_record`.
    cgroup_record => CgroupRecord {
        head: RecordHead,
        id: u64,
        parent: u64,
        quota_ns: u64,
        period_ns: u64,
        burst_ns: u64,
        periods: u64,
        throttled_periods: u64,
        throttled_ns: u64,
        memory_bytes: u64,
        memory_limit_bytes: u64,
    }
    /// `struct level_record`.
    level_record => LevelRecord {
        head: RecordHead,
        id: u64,
        stalled_ns: [u64; PRESSURES as usize],
        memory_events: [u64; MEMORY_EVENTS as usize],
    }
    /// `struct cgroup_name_record`.
    cgroup_name_record => CgroupNameRecord {
        head: RecordHead,
        id: u64,
        name: [u8; CGROUP_NAME_LEN],
    }
    /// `struct mmu_stats`: KVM's page tables of the VMs of a process.
    mmu_stats => MmuStats {
        pages: [u64; 3],
        nx_splits: u64,
        tlb_flushes: u64,
    }
    /// `struct vm_record`: a process with a VM.
    vm_record => VmRecord {
        head: RecordHead,
        owner: Owner,
        vcpus: u32,
        pad: u32,
        mmu: MmuStats,
        moves: [u64; DISTANCES as usize],
    }
    /// `struct vcpu_fd_record`.
    vcpu_fd_record => VcpuFdRecord {
        head: RecordHead,
        owner: Owner,
        instance: u64,
        vcpu_id: u32,
        tid: u32,
    }
    /// `struct vhost_worker_record`.
    vhost_worker_record => VhostWorkerRecord {
        head: RecordHead,
        owner: Owner,
        start_ns: u64,
        tid: u32,
        device: u32,
    }
    /// `struct cpuid_leaf`: a CPUID leaf of a vCPU in KVM.
    cpuid_leaf => CpuidLeaf {
        function: u32,
        index: u32,
        flags: u32,
        eax: u32,
        ebx: u32,
        ecx: u32,
        edx: u32,
        padding: [u32; 3],
    }
    /// `struct cpuid_record`: CPUID of a VM's guest; [`CpuidLeaf`]s follow.
    cpuid_record => CpuidRecord {
        head: RecordHead,
        owner: Owner,
    }
}

enumerators! {
    /// A [`ThreadRecord`].
    RECORD_THREAD = 1,
    /// A [`CgroupRecord`].
    RECORD_CGROUP = 2,
    /// A [`CgroupNameRecord`].
    RECORD_CGROUP_NAME = 3,
    /// A [`VcpuFdRecord`].
    RECORD_VCPU_FD = 4,
    /// A [`CpuidRecord`].
    RECORD_CPUID = 5,
    /// A [`crate::memory::MemoryRecord`].
    RECORD_MEMORY = 6,
    /// A [`crate::memory::MemslotsRecord`].
    RECORD_MEMSLOTS = 7,
    /// A [`VhostWorkerRecord`].
    RECORD_VHOST_WORKER = 8,
    /// A [`LevelRecord`].
    RECORD_LEVEL = 9,
    /// A [`VmRecord`].
    RECORD_VM = 10,
    /// A [`HaltsRecord`].
    RECORD_HALTS = 11,
    /// A [`SleptRecord`].
    RECORD_SLEPT = 12,
    /// A [`VcpuRecord`] follows.
    THREAD_VCPU = 1,
    /// A kernel thread.
    THREAD_KTHREAD = 2,
    /// A kernel worker in a user process.
    THREAD_USER_WORKER = 4,
    /// An `io_uring` worker.
    THREAD_IO_WORKER = 8,
    /// The thread has begun to exit.
    THREAD_RETIRED = 16,
    /// The thread's class changed since this pass began.
    THREAD_CHANGED = 32,
    /// Polling that ended with a wake-up.
    HALT_POLL_SUCCESS = 0,
    /// Polling that did not.
    HALT_POLL_FAIL = 1,
    /// Sleeping.
    HALT_WAIT = 2,
    /// Number of kinds of halted time.
    HALT_KINDS = 3,
    /// Some task was stalled on CPU.
    PRESSURE_CPU_SOME = 0,
    /// All tasks were stalled on CPU.
    PRESSURE_CPU_FULL = 1,
    /// Some task was stalled on memory.
    PRESSURE_MEMORY_SOME = 2,
    /// All tasks were stalled on memory.
    PRESSURE_MEMORY_FULL = 3,
    /// Some task was stalled on I/O.
    PRESSURE_IO_SOME = 4,
    /// All tasks were stalled on I/O.
    PRESSURE_IO_FULL = 5,
    /// All tasks were stalled by interrupts.
    PRESSURE_IRQ_FULL = 6,
    /// Number of pressure states.
    PRESSURES = 7,
    /// Usage over `memory.high`.
    MEMORY_EVENT_HIGH = 0,
    /// Usage at `memory.max`.
    MEMORY_EVENT_MAX = 1,
    /// No memory within `memory.max`.
    MEMORY_EVENT_OOM = 2,
    /// A process was killed.
    MEMORY_EVENT_OOM_KILL = 3,
    /// Number of memory events.
    MEMORY_EVENTS = 4,
    /// A worker of `/dev/vhost-net`.
    VHOST_NET = 1,
    /// A worker of `/dev/vhost-vsock`.
    VHOST_VSOCK = 2,
}
