/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between the BPF programs and the agent: the records that the programs
 * emit, the values that the agent sets, and the counters of losses.
 *
 * Only fixed-width plain integers, no pointers, no implicit padding. Enums give values;
 * fields that hold them are __u32. crates/abi mirrors every struct and enum here, and a
 * test compares both by the objects' BTF.
 *
 * Times are nanoseconds. UNKNOWN: this kernel does not provide the value.
 */
#ifndef VIRTLENS_ABI_H
#define VIRTLENS_ABI_H

#define UNKNOWN (~0ULL)
#define COMM_LEN 16
/* NAME_MAX of the VFS and a NUL. */
#define CGROUP_NAME_LEN 256
/* 2048 CPUs. On a larger host the records carry no affinity, and the agent reports
 * that. */
#define MASK_WORDS_MAX 32
/* KVM_MAX_CPUID_ENTRIES, 256 since v5.11 (arch/x86/include/asm/kvm_host.h). */
#define CPUID_LEAVES_MAX 256

/* Constants of the programs, set once before they are loaded (.rodata). */
struct config {
	/* The cpu controller is in a v1 hierarchy. */
	__u32 cgroup_v1;
	/* 64-bit words of an affinity mask; 0: the mask is too long to be emitted. */
	__u32 mask_words;
	/* Marks (`struct mark`: the state of a thread) are in task storage (since v5.11),
	 * not in a hash. */
	__u32 task_storage;
	/* A pass runs as the program `walk_tasks` and writes to map `stream`. */
	__u32 walks;
	/* Every thread that is counted in `retired` and not freed yet has a mark, so a
	 * thread without a mark is not in `retired`. 0 if `retired` was taken over
	 * without the marks of the programs that wrote it. */
	__u32 marks_all;
	/* Offset of the worker in struct kvm_pit, bytes; 0: unknown. */
	__u32 pit_worker;
	/* Maximum error of a process's resident memory where each CPU batches its updates
	 * (since v6.2). */
	__u64 rss_error_bytes;
	/* Fingerprint of these programs: they count only while map `active` holds it. */
	__u64 programs;
};

/* A field that this kernel does not have. */
#define NO_FIELD (~0U)

/* Byte offsets of the fields that lead from a vhost device to the threads of its workers
 * (map `vhost_fields`, one entry). Not in `config`, because the module vhost may be
 * loaded long after the programs. */
struct vhost_fields {
	/* 0: the offsets are not known yet. */
	__u32 is_known;
	/* In struct vhost_dev. `vqs` is NO_FIELD where a device has one worker (before
	 * v6.5). */
	__u32 mm;
	__u32 vqs;
	__u32 nvqs;
	/* The pointer to the worker: in struct vhost_virtqueue, or in struct vhost_dev
	 * if `vqs` is NO_FIELD. NO_FIELD: struct vhost_dev itself has the worker's
	 * fields. */
	__u32 worker;
	/* In the worker: the pointers to its task_struct and its vhost_task. If both
	 * exist, only the one in use is not NULL. */
	__u32 task;
	__u32 vtsk;
	/* In struct vhost_task: the pointer to its task_struct. */
	__u32 vtsk_task;
};

/* Position of a pass in the task list: argument and result of each run of the program
 * `walk_tasks`. */
struct walk {
	/* Thread to resume at. Input 0: start at the first task. Output 0: the pass is
	 * complete. */
	__u32 tid;
	__u32 pad;
	/* Start time of that thread, ns since boot. */
	__u64 start_ns;
	/* Tasks visited by this run; 0 with `tid` set means that the resume thread has
	 * exited. */
	__u64 seen;
};

/* Maximum size of a record, bytes. */
#define RECORD_MAX (16 << 10)

/* Enough for about 1800 vCPU threads or 3800 other threads per run, if an affinity mask
 * is one word. */
#define STREAM_BYTES (512 << 10)

/* Output of a run of `walk_tasks` (map `stream`, one entry). */
struct stream {
	__u64 used;
	/* RECORD_MAX more bytes, so that the verifier accepts a write at any `used`. */
	__u8 bytes[STREAM_BYTES + RECORD_MAX];
};

/* Set by the agent before each pass (map `control`, one entry). */
struct control {
	/* Changes when the agent has forgotten the cgroup names: they are emitted
	 * again. */
	__u64 session;
	/* Changes with each pass, and with each repetition of one. */
	__u64 pass;
	/* Changes with each change of `watched`. */
	__u32 epoch;
	/* Number of watched cgroups. */
	__u32 watched;
	/* A pass over open files ran just before: this pass may mark the vCPUs that it
	 * found. */
	__u32 after_files;
	/* Low bits of `pass` at the last completed reading. `shown_ns` is when that pass
	 * began, ns since boot: a thread that started later was in no reading. 0: no
	 * reading yet. */
	__u32 shown_pass;
	__u64 shown_ns;
	/* When the latest pass began, ns since boot. */
	__u64 begun_ns;
};

/*
 * The owner of a thread. VM: the start time (ns since boot) and the tgid of its process.
 * Pod: the id of its cgroup, and tgid 0.
 */
struct owner {
	__u64 id;
	__u32 tgid;
	__u32 pad;
};

/* Value of map `watched`, key: a cgroup id. All threads in that subtree are read. */
struct watch {
	/* Cgroup id of the pod to which the threads are charged. */
	__u64 pod;
	/* Distinct names under which threads of this pod were added to `retired`. */
	__u32 names;
	/* Low bits of the last pass before it was watched. */
	__u32 since_pass;
};

/* Topological distance between two CPUs: index into vm.moves. */
enum distance {
	/* Threads of one core. */
	DISTANCE_SMT = 0,
	/* Cores of one last-level cache. */
	DISTANCE_CORE = 1,
	/* Last-level caches of one NUMA node. */
	DISTANCE_LLC = 2,
	DISTANCE_NUMA = 3,
	/* The location of one of them is unknown. */
	DISTANCE_UNKNOWN = 4,
	DISTANCES = 5,
};

/* Value of map `vms`, key: tgid. A VM, or a child of a pod's process that is itself in no
 * watched cgroup. */
struct vm {
	__u64 start_ns;
	/* 0: a VM. Otherwise a child process: the cgroup id of its parent's pod. */
	__u64 pod;
	/* Its address space, key of `vm_mms`: changes if the VMM execs another
	 * program. */
	__u64 mm;
	/* Distinct names under which threads of this VM were added to `retired`. */
	__u32 names;
	/* Low bits of the first pass that sees all of its threads. */
	__u32 since_pass;
	/* Migrations of its vCPUs between pCPUs, by enum distance. */
	__u64 moves[DISTANCES];
};

/* Value of array `places`, index: pCPU. Ids are unique on the host and start at 1; 0:
 * unknown. */
struct cpu_place {
	__u32 core;
	__u32 llc;
	__u32 node;
	__u32 pad;
};

/* Key of map `residency`: a vCPU on a pCPU. Its value, __u64: CPU time used there until
 * the last migration, ns. */
struct residency_key {
	struct owner owner;
	__u32 vcpu_id;
	__u32 pcpu;
};

/* Key of map `ended_vcpus`: a vCPU. Its value: a `vcpu_record` with KVM's counters as of
 * the last exit of its thread. Only the counters, `id` and `instance` are set. */
struct vcpu_key {
	struct owner owner;
	__u32 vcpu_id;
	__u32 pad;
};

enum record_kind {
	RECORD_THREAD = 1,
	RECORD_CGROUP = 2,
	RECORD_CGROUP_NAME = 3,
	RECORD_VCPU_FD = 4,
	RECORD_CPUID = 5,
	RECORD_MEMORY = 6,
	RECORD_MEMSLOTS = 7,
	RECORD_VHOST_WORKER = 8,
};

/* Head of each record of the stream. `size` is the size of the whole record, bytes, a
 * multiple of 8. */
struct record_head {
	__u32 kind;
	__u32 size;
};

enum thread_flag {
	/* A vcpu_record follows. */
	THREAD_VCPU = 1,
	THREAD_KTHREAD = 2,
	THREAD_USER_WORKER = 4,
	THREAD_IO_WORKER = 8,
	/* The thread has begun to exit and is counted in `retired`. */
	THREAD_RETIRED = 16,
	/* Its class changed since this pass began: a snapshot of `retired` taken before
	 * the pass may lack the time that it used before the change. */
	THREAD_CHANGED = 32,
};

/*
 * A live thread of a VM or a watched cgroup. Its times exclude what `retired` already
 * holds: they count since its last class change, or since it began to exit. A vcpu_record
 * follows if THREAD_VCPU is set, then config.mask_words words of affinity.
 */
struct thread_record {
	struct record_head head;
	struct owner owner;
	__u32 tid;
	__u32 tgid;
	__u64 start_ns;
	__u64 run_ns;
	__u64 wait_ns;
	__u64 guest_ns;
	__u64 cgroup;
	__u32 pcpu;
	__u32 flags;
	/* Number of class changes, see bpf/retire.bpf.h. */
	__u32 class_changes;
	__u32 pad;
	char comm[COMM_LEN];
	char leader_comm[COMM_LEN];
};

/* The vCPU that a thread runs. The counters are UNKNOWN while KVM's structure cannot be
 * trusted. */
struct vcpu_record {
	__u32 id;
	__u32 index;
	/* Address of the kvm_vcpu: the counters of another instance start at 0. */
	__u64 instance;
	__u64 halt_poll_success_ns;
	__u64 halt_poll_fail_ns;
	__u64 halt_wait_ns;
	/* Includes the highest number of unclassified exits emitted so far: see
	 * keep_other_exits. */
	__u64 exits;
	__u64 io_exits;
	__u64 mmio_exits;
	__u64 halt_exits;
	__u64 irq_exits;
	__u64 irq_window_exits;
	__u64 hypercalls;
	__u64 pf_fixed;
	__u64 pf_taken;
	/* CPU time that is in `residency`, or that was used before the vCPU was first
	 * seen, ns. Time beyond it was used on the present pCPU. */
	__u64 placed_ns;
	__u32 preempted;
	/* Number of vCPUs of its VM, 0 if unknown. */
	__u32 online_vcpus;
};

/* A cgroup in the hierarchy above a thread, from the thread's cgroup to the root. */
struct cgroup_record {
	struct record_head head;
	__u64 id;
	/* 0 for the root. */
	__u64 parent;
	/* period_ns 0: the cpu controller is not enabled here. quota_ns UNKNOWN: no
	 * limit. */
	__u64 quota_ns;
	__u64 period_ns;
	/* UNKNOWN before v5.14. */
	__u64 burst_ns;
	__u64 periods;
	__u64 throttled_periods;
	__u64 throttled_ns;
	/* Memory usage; UNKNOWN on v1, and where the memory controller is not enabled. */
	__u64 memory_bytes;
	/* UNKNOWN: no limit, or unknown. */
	__u64 memory_limit_bytes;
};

/* The name of a cgroup, emitted once per session. */
struct cgroup_name_record {
	struct record_head head;
	__u64 id;
	char name[CGROUP_NAME_LEN];
};

/* An open file of a vCPU, from the pass over open files. */
struct vcpu_fd_record {
	struct record_head head;
	struct owner owner;
	__u64 instance;
	__u32 vcpu_id;
	/* The last thread that ran it, 0 if it has never run. */
	__u32 tid;
};

/* Device type of a vhost worker. */
enum vhost_device {
	VHOST_NET = 1,
	VHOST_VSOCK = 2,
};

/* A vhost worker, from the pass over open files. */
struct vhost_worker_record {
	struct record_head head;
	/* Start time of its thread, ns since boot. */
	__u64 start_ns;
	__u32 tid;
	/* enum vhost_device */
	__u32 device;
};

/* A CPUID leaf that user space has set in KVM: struct kvm_cpuid_entry2,
 * arch/x86/include/uapi/asm/kvm.h. */
struct cpuid_leaf {
	__u32 function;
	__u32 index;
	__u32 flags;
	__u32 eax;
	__u32 ebx;
	__u32 ecx;
	__u32 edx;
	__u32 padding[3];
};

/* CPUID of a VM's first vCPU, emitted once per session; the leaves follow. */
struct cpuid_record {
	struct record_head head;
	struct owner owner;
};

/* Upper bounds of the buckets of throttle durations, ms; the last bucket has none. */
#define THROTTLE_BOUNDS_MS { 1, 5, 10, 25, 50, 100, 250, 1000 }
#define THROTTLE_DURATIONS 9

/* Value of map `levels`, key: the id of a VM's cgroup that can have a limit. Counted
 * since the entry was created. */
struct level {
	/* How often a CPU's run queue of this cgroup was throttled. */
	__u64 throttles;
	/* Wall time in which at least one run queue was throttled. A throttling is
	 * counted when it ends. */
	__u64 wall_ns;
	/* Unthrottled run queues by duration of the throttling, and the sum of the
	 * durations, which the kernel adds to cpu.stat. */
	__u64 durations[THROTTLE_DURATIONS];
	__u64 duration_sum_ns;
};

/* Class of threads that are counted together: key of the maps `retired` and
 * `throttle_hits`. */
struct thread_class {
	struct owner owner;
	/* In `retired`: the nearest ancestor cgroup in `levels`, including its own, 0 if
	 * there is none. In `throttle_hits`: the cgroup that was throttled. */
	__u64 level;
	/* THREAD_KTHREAD, _USER_WORKER, _IO_WORKER, or 0. */
	__u32 flags;
	/* ~0 if it runs no vCPU. */
	__u32 vcpu_id;
	char comm[COMM_LEN];
	char leader_comm[COMM_LEN];
};

/* Value of map `retired`: times summed over threads, up to their exit or class change. */
struct retired {
	/* Threads that have exited. */
	__u64 threads;
	__u64 run_ns;
	__u64 wait_ns;
	__u64 guest_ns;
};

/* Index into map `drops`: kind and reason of a loss. */
enum drop_reason {
	/* A thread exited, and `retired` had no free entry, not even the one for its
	 * owner without names: its time is lost. */
	DROP_RETIRED_FULL = 0,
	/* A thread's mark could not be created: a vCPU then counts as an emulator thread,
	 * and an exiting thread is missing until it is freed. */
	DROP_MARK_FULL = 1,
	/* `vms` or `vm_mms` was full: the VM's other threads are not found. */
	DROP_VM_FULL = 2,
	/* A thread exited with a name beyond its owner's share of `retired`: its time is
	 * kept, its role is lost. */
	DROP_RETIRED_NAMES = 3,
	/* A cgroup is deeper than MAX_CGROUP_DEPTH: its path is unknown. */
	DROP_CGROUP_DEPTH = 4,
	/* `residency` was full: a vCPU's time on a pCPU is lost. */
	DROP_RESIDENCY_FULL = 5,
	/* `throttle_hits` was full: the thread that ran when a quota was exhausted is
	 * lost. */
	DROP_HITS_FULL = 6,
	/* A throttled cgroup has no entry in `walls`: its wall time is lost. */
	DROP_WALLS_FULL = 7,
	/* A VM has more memslots than MEMSLOTS_MAX: the others are not emitted. */
	DROP_MEMSLOTS = 8,
	/* Two threads of a VMM made large discards at once: the time and the released
	 * memory of the first one are lost. */
	DROP_DISCARDS_AT_ONCE = 9,
	/* `ended_vcpus` was full: KVM's counters of an exited vCPU thread are lost. */
	DROP_ENDED_VCPUS_FULL = 10,
	/* The exit program did not run for a vCPU thread, because another run of it was
	 * interrupted: KVM's counts since the last record may be lost. */
	DROP_ENDED_VCPUS_MISSED = 11,
	/* The mark of a freed thread could not be read: the time that it used after its
	 * exit is lost, or all of its time if it was not in `retired` yet. */
	DROP_MARK_UNREAD = 12,
	/* The kernel did not look up the mark of a VM's thread: a vCPU's migration is not
	 * counted, or a throttle hit or a pass attributes the thread to the emulator. */
	DROP_MARK_BUSY = 13,
	/* A multi-threaded process of a pod was renamed: the time of its other threads
	 * moves to their new role. */
	DROP_PROCESS_RENAMED = 14,
	DROP_REASONS = 15,
};

/* Key of map `book`: a page of the state of a VM that the agent keeps for the next
 * agent. */
struct book_key {
	/* Start time of the VM's process, ns since boot. */
	__u64 start_ns;
	__u32 tgid;
	/* The highest complete edition is valid. */
	__u32 edition;
	/* Starts at 0. Page 0 is written last: an edition with page 0 is complete. */
	__u32 page;
	__u32 pad;
};

#define BOOK_PAGE_LEN 1016

/* Value of map `book`. BPF programs never read it. */
struct book_page {
	/* Number of pages of this edition. */
	__u32 pages;
	/* Number of valid bytes in `bytes`. */
	__u32 len;
	__u8 bytes[BOOK_PAGE_LEN];
};

#endif
