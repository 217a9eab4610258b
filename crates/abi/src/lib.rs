//! Rust mirror of `bpf/abi.h`, the only interface between the BPF programs and the agent:
//! the same names in the same order. The header documents the fields.
//!
//! [`memory`] mirrors `bpf/memory_abi.h` in the same way, [`trace`] `bpf/trace_abi.h`.
//!
//! [`STRUCTS`] and [`ENUMERATORS`] list the layout of this mirror; a test compares them
//! with the type information of the compiled object.

#![forbid(unsafe_code)]

/// Value of a field that this kernel does not provide.
pub const UNKNOWN: u64 = u64::MAX;
/// Size of a thread's name with its NUL, bytes.
pub const COMM_LEN: usize = 16;
/// Size of a cgroup's name with its NUL, bytes.
pub const CGROUP_NAME_LEN: usize = 256;
/// The longest affinity mask, in 64-bit words.
pub const MASK_WORDS_MAX: usize = 32;
/// Maximum number of CPUID leaves that KVM stores for a vCPU.
pub const CPUID_LEAVES_MAX: usize = 256;
/// Number of buckets of throttle durations.
pub const THROTTLE_DURATIONS: usize = 9;
/// Capacity of the map `stream`, which a run of `walk_tasks` fills, bytes.
pub const STREAM_BYTES: usize = 512 << 10;
/// Maximum size of a record, bytes.
pub const RECORD_MAX: usize = 16 << 10;
/// Payload of a page of map `book`, bytes.
pub const BOOK_PAGE_LEN: usize = 1016;

/// Offset of a field that this kernel does not have.
pub const NO_FIELD: u32 = u32::MAX;

/// A field of a struct: its name, offset and size in bytes.
pub type Field = (&'static str, usize, usize);

/// The layout of one struct in this mirror.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The struct's name in `abi.h`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// Declares the structs once: as Rust types, and as [`Layout`]s.
macro_rules! mirror {
    ($($(#[$doc:meta])* $c:ident => $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "the fields are documented in the header")]
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
            #[derive(zerocopy::KnownLayout, zerocopy::Immutable)]
            pub struct $name { $(pub $field: $type,)* }
        )*

        /// Every struct of the interface.
        pub const STRUCTS: &[$crate::Layout] = &[$($crate::Layout {
            name: stringify!($c),
            size: size_of::<$name>(),
            fields: &[$((
                stringify!($field),
                std::mem::offset_of!($name, $field),
                size_of::<$type>(),
            ),)*],
        },)*];
    };
}

/// Declares the enumerators once: as constants, and as [`ENUMERATORS`].
macro_rules! enumerators {
    ($($(#[$doc:meta])* $name:ident = $value:expr,)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*

        /// Every enumerator of the interface: its name and value.
        pub const ENUMERATORS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

pub mod memory;
pub mod trace;

mirror! {
    /// `struct config`: set once before the programs are loaded.
    config => Config {
        cgroup_v1: u32,
        mask_words: u32,
        task_storage: u32,
        walks: u32,
        marks_all: u32,
        pit_worker: u32,
        rss_error_bytes: u64,
        programs: u64,
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
    /// `struct walk`: position of a pass in the task list.
    walk => Walk {
        tid: u32,
        pad: u32,
        start_ns: u64,
        seen: u64,
    }
    /// `struct stream`: output of a run of `walk_tasks`.
    stream => Stream {
        used: u64,
        bytes: [u8; STREAM_BYTES + RECORD_MAX],
    }
    /// `struct control`: set before each pass.
    control => Control {
        session: u64,
        pass: u64,
        epoch: u32,
        watched: u32,
        after_files: u32,
        shown_pass: u32,
        shown_ns: u64,
        begun_ns: u64,
    }
    /// `struct owner`: the owner of a thread.
    owner => Owner {
        id: u64,
        tgid: u32,
        pad: u32,
    }
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
        cgroup: u64,
        pcpu: u32,
        flags: u32,
        class_changes: u32,
        pad: u32,
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
        placed_ns: u64,
        preempted: u32,
        online_vcpus: u32,
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
    /// `struct cgroup_name_record`.
    cgroup_name_record => CgroupNameRecord {
        head: RecordHead,
        id: u64,
        name: [u8; CGROUP_NAME_LEN],
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
    }
    /// `struct book_key`: key of map `book`.
    book_key => BookKey {
        start_ns: u64,
        tgid: u32,
        edition: u32,
        page: u32,
        pad: u32,
    }
    /// `struct book_page`: value of map `book`.
    book_page => BookPage {
        pages: u32,
        len: u32,
        bytes: [u8; BOOK_PAGE_LEN],
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
    /// A [`memory::MemoryRecord`].
    RECORD_MEMORY = 6,
    /// A [`memory::MemslotsRecord`].
    RECORD_MEMSLOTS = 7,
    /// A [`VhostWorkerRecord`].
    RECORD_VHOST_WORKER = 8,
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
    /// A worker of `/dev/vhost-net`.
    VHOST_NET = 1,
    /// A worker of `/dev/vhost-vsock`.
    VHOST_VSOCK = 2,
    /// The time of an exited thread is lost: `retired` is full.
    DROP_RETIRED_FULL = 0,
    /// A thread's mark could not be created.
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
    /// The kernel did not look up a thread's mark.
    DROP_MARK_BUSY = 13,
    /// The time of a renamed process's threads moves to another role.
    DROP_PROCESS_RENAMED = 14,
    /// Number of reasons.
    DROP_REASONS = 15,
}
