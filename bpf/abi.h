/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the BPF programs and the agent: what the programs
 * write, what they are told, and how they count what they lost.
 *
 * Only fixed-width plain integers, no pointers, no implicit padding. Enums
 * give values; fields that hold them are __u32. crates/abi mirrors every
 * struct and enum here, and a test compares both by the objects' BTF.
 *
 * Times are nanoseconds. UNKNOWN means that this kernel does not tell.
 */
#ifndef VIRTLENS_ABI_H
#define VIRTLENS_ABI_H

#define UNKNOWN (~0ULL)
#define COMM_LEN 16
/* NAME_MAX of the VFS and a NUL. */
#define CGROUP_NAME_LEN 256
/* 2048 CPUs; a larger host has no affinity in its records, and says so. */
#define MASK_WORDS_MAX 32
/* KVM_MAX_CPUID_ENTRIES, 256 since v5.11 (arch/x86/include/asm/kvm_host.h). */
#define CPUID_LEAVES_MAX 256

/* Told once, before the programs are loaded (.rodata). */
struct config {
	/* The cpu controller is in a v1 hierarchy. */
	__u32 cgroup_v1;
	/* 64-bit words of an affinity mask; 0: masks are too long to be told. */
	__u32 mask_words;
	/* Marks live in task storage (since v5.11), not in a hash. */
	__u32 task_storage;
	/* A pass walks by itself, and tells in map `stream`. */
	__u32 walks;
	/* Each thread in `retired` that is not freed yet has its mark: one without is not in
	 * there. Not so where other programs kept their marks elsewhere. */
	__u32 marks_all;
	/* Where struct kvm_pit has its worker, bytes; 0: not known. */
	__u32 pit_worker;
	/* By how much a process's resident memory may be off where each CPU keeps some of
	 * it aside (since v6.2). */
	__u64 rss_error_bytes;
	/* Which programs these are: they count while the map `active` says so. */
	__u64 programs;
};

/* A field that this kernel does not have. */
#define NO_FIELD (~0U)

/* Where the kernel has the fields that lead from a vhost device to the threads of its
 * workers, bytes (map `vhost_fields`, one entry). Not in `config`, because the module
 * vhost may be loaded long after the programs. */
struct vhost_fields {
	/* 0: not known yet. */
	__u32 is_known;
	/* In struct vhost_dev. Without `vqs` a device has one worker (before v6.5). */
	__u32 mm;
	__u32 vqs;
	__u32 nvqs;
	/* In struct vhost_virtqueue, or in struct vhost_dev without `vqs`: the pointer to the
	 * worker. NO_FIELD: the fields of the worker are in struct vhost_dev itself. */
	__u32 worker;
	/* In the worker: its task_struct, its vhost_task. Of two the one is set that is used. */
	__u32 task;
	__u32 vtsk;
	/* In struct vhost_task: its task_struct. */
	__u32 vtsk_task;
};

/* A pass that walks by itself (program `walk_tasks`): where it goes on, and what it
 * changes it to. */
struct walk {
	/* Its next thread; 0: from the beginning, or at the end. */
	__u32 tid;
	__u32 pad;
	/* When that thread began, ns since boot. */
	__u64 start_ns;
	/* Tasks that this run has been at. Without one, and not at the end: the thread with
	 * which it should go on has ended. */
	__u64 seen;
};

/* No record is longer. */
#define RECORD_MAX (16 << 10)

/* Of as many bytes some 1800 threads with vCPUs are told at once, or 3800 others, where
 * an affinity mask is one word. */
#define STREAM_BYTES (512 << 10)

/* What such a pass tells (map `stream`, one entry). */
struct stream {
	__u64 used;
	/* Room for one more record, whatever a verifier believes. */
	__u8 bytes[STREAM_BYTES + RECORD_MAX];
};

/* Told before each pass (map `control`, one entry). */
struct control {
	/* Changes when the agent has forgotten cgroup names. */
	__u64 session;
	/* Changes with each pass, and with each repetition of one. */
	__u64 pass;
	/* Changes with each change of `watched`. */
	__u32 epoch;
	/* How many cgroups are watched. */
	__u32 watched;
	/* A pass over open files was just before: it may have found vCPUs that this one
	 * marks. */
	__u32 after_files;
	/* The low bits of `pass` of the last reading, and when it began, ns since boot: of
	 * a thread that began later nothing was shown. 0: nothing was shown yet. */
	__u32 shown_pass;
	__u64 shown_ns;
	/* When the newest pass began, ns since boot. */
	__u64 begun_ns;
};

/*
 * Whose a thread is. A VM: its process's start (ns since boot) and tgid.
 * A pod: its cgroup's id, and tgid 0.
 */
struct owner {
	__u64 id;
	__u32 tgid;
	__u32 pad;
};

/* Value of map `watched`, key: the id of a cgroup below which all is read. */
struct watch {
	/* The cgroup id of the pod that its members belong to. */
	__u64 pod;
	/* Names under which threads of this pod have retired. */
	__u32 names;
	/* The low bits of the pass after which it was watched. */
	__u32 since_pass;
};

/* How far apart two CPUs are: index into vm.moves. */
enum distance {
	/* Threads of one core. */
	DISTANCE_SMT = 0,
	/* Cores of one last-level cache. */
	DISTANCE_CORE = 1,
	/* Last-level caches of one NUMA node. */
	DISTANCE_LLC = 2,
	DISTANCE_NUMA = 3,
	/* The host does not tell where one of them is. */
	DISTANCE_UNKNOWN = 4,
	DISTANCES = 5,
};

/* Value of map `vms`, key: tgid. Beside VMs there are processes whose parents belong to
 * a pod, and that sit in no watched cgroup themselves. */
struct vm {
	__u64 start_ns;
	/* 0: it is a VM. Else such a process; the cgroup id of its parent's pod. */
	__u64 pod;
	/* Its address space, as `vm_mms` has it: a VMM may become another program. */
	__u64 mm;
	/* Names under which threads of this VM have retired. */
	__u32 names;
	/* The low bits of the first pass that sees all of its threads. */
	__u32 since_pass;
	/* Moves of its vCPUs from one pCPU to another, by enum distance. */
	__u64 moves[DISTANCES];
};

/* Value of array `places`, index: pCPU. Numbers are unique on the host and
 * begin with 1; 0: not known. */
struct cpu_place {
	__u32 core;
	__u32 llc;
	__u32 node;
	__u32 pad;
};

/* Key of map `residency`: a vCPU on a pCPU. Its value, __u64: CPU time that
 * was used there, ns, up to the last move. */
struct residency_key {
	struct owner owner;
	__u32 vcpu_id;
	__u32 pcpu;
};

/* Key of map `ended_vcpus`: a vCPU. Its value, a `vcpu_record`: what KVM had counted
 * when a thread of it ended; of that only the counters, `id` and `instance`. */
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

/* Each record of the stream begins so; `size` counts all of it, in bytes, a
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
	/* It has begun to exit. */
	THREAD_RETIRED = 16,
	/* Its class changed since this pass began: what was read of `retired` before may be
	 * without what it used until then. */
	THREAD_CHANGED = 32,
};

/*
 * A living thread of a VM or a watched cgroup. Its times are what `retired` does not hold
 * of them: what it used since its class changed, or since it began to exit. Behind it: a vcpu_record if
 * THREAD_VCPU, then config.mask_words words of affinity.
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
	/* How often its class changed: see bpf/retire.bpf.h. */
	__u32 class_changes;
	__u32 pad;
	char comm[COMM_LEN];
	char leader_comm[COMM_LEN];
};

/* The vCPU that a thread runs. The counters are UNKNOWN while KVM's structure
 * cannot be believed. */
struct vcpu_record {
	__u32 id;
	__u32 index;
	/* Names the kvm_vcpu: another instance's counters start anew. */
	__u64 instance;
	__u64 halt_poll_success_ns;
	__u64 halt_poll_fail_ns;
	__u64 halt_wait_ns;
	/* With as many of no kind as were ever told: see keep_other_exits. */
	__u64 exits;
	__u64 io_exits;
	__u64 mmio_exits;
	__u64 halt_exits;
	__u64 irq_exits;
	__u64 irq_window_exits;
	__u64 hypercalls;
	__u64 pf_fixed;
	__u64 pf_taken;
	/* CPU time that `residency` holds, or that was used before the vCPU was
	 * first seen: what is beyond was used on the present pCPU. */
	__u64 placed_ns;
	__u32 preempted;
	/* vCPUs that its VM holds, 0 if not known. */
	__u32 online_vcpus;
};

/* A cgroup on the path of a thread in this pass. */
struct cgroup_record {
	struct record_head head;
	__u64 id;
	/* 0 at the root. */
	__u64 parent;
	/* period_ns 0: no cpu controller here. quota_ns UNKNOWN: no limit. */
	__u64 quota_ns;
	__u64 period_ns;
	/* UNKNOWN before v5.14. */
	__u64 burst_ns;
	__u64 periods;
	__u64 throttled_periods;
	__u64 throttled_ns;
	/* What it uses of memory; UNKNOWN on v1, and where it has no memory
	 * controller. */
	__u64 memory_bytes;
	/* UNKNOWN: no limit, or not known. */
	__u64 memory_limit_bytes;
};

/* The name of a cgroup, once in a session. */
struct cgroup_name_record {
	struct record_head head;
	__u64 id;
	char name[CGROUP_NAME_LEN];
};

/* A file descriptor of a vCPU, from the pass over open files. */
struct vcpu_fd_record {
	struct record_head head;
	struct owner owner;
	__u64 instance;
	__u32 vcpu_id;
	/* The thread that ran it last, 0 if none ever did. */
	__u32 tid;
};

/* What a vhost worker serves. */
enum vhost_device {
	VHOST_NET = 1,
	VHOST_VSOCK = 2,
};

/* A vhost worker, from the pass over open files. */
struct vhost_worker_record {
	struct record_head head;
	/* When its thread started, ns since boot. */
	__u64 start_ns;
	__u32 tid;
	/* enum vhost_device */
	__u32 device;
};

/* A CPUID leaf as KVM holds it and user space set it: struct kvm_cpuid_entry2,
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

/* What a VM's guest is told by its first vCPU, once in a session; the leaves
 * follow. */
struct cpuid_record {
	struct record_head head;
	struct owner owner;
};

/* Upper bounds of the durations that are told apart, ms; the last kind has none. */
#define THROTTLE_BOUNDS_MS { 1, 5, 10, 25, 50, 100, 250, 1000 }
#define THROTTLE_DURATIONS 9

/* Value of map `levels`, key: the id of a cgroup of a VM that can have a limit.
 * What is counted began with its entry. */
struct level {
	/* Run queues of CPUs that were throttled. */
	__u64 throttles;
	/* Wall time in which at least one of them stood. Of one that stands
	 * nothing is counted yet. */
	__u64 wall_ns;
	/* How often a run queue was set free, by how long it had stood; and the
	 * sum: what the kernel adds to cpu.stat. */
	__u64 durations[THROTTLE_DURATIONS];
	__u64 duration_sum_ns;
};

/* Threads that count alike: key of the maps `retired` and `throttle_hits`. */
struct thread_class {
	struct owner owner;
	/* In `retired` the first cgroup of `levels` from its own upwards, 0 if
	 * there is none; in `throttle_hits` the one that was throttled. */
	__u64 level;
	/* THREAD_KTHREAD, _USER_WORKER, _IO_WORKER, or 0. */
	__u32 flags;
	/* ~0 if it ran none. */
	__u32 vcpu_id;
	char comm[COMM_LEN];
	char leader_comm[COMM_LEN];
};

/* Value of map `retired`: what they had used, summed, as they ended or as their class
 * changed. */
struct retired {
	/* That ended. */
	__u64 threads;
	__u64 run_ns;
	__u64 wait_ns;
	__u64 guest_ns;
};

/* Index into map `drops`: what was lost, and why. */
enum drop_reason {
	/* A thread ended and `retired` had no room, not even for its owner. */
	DROP_RETIRED_FULL = 0,
	/* A thread's mark could not be made: a vCPU is then one of the emulator's threads,
	 * and one that exits is missing until it is freed. */
	DROP_MARK_FULL = 1,
	/* A VM could not be remembered: its other threads are not found. */
	DROP_VM_FULL = 2,
	/* A thread ended under a name beyond its owner's share of `retired`: its
	 * time is kept, its role is not. */
	DROP_RETIRED_NAMES = 3,
	/* A cgroup lies deeper than the walk goes: its path is not known. */
	DROP_CGROUP_DEPTH = 4,
	/* A vCPU's time on a pCPU found no room in `residency`. */
	DROP_RESIDENCY_FULL = 5,
	/* Who ran when a quota ran out found no room in `throttle_hits`. */
	DROP_HITS_FULL = 6,
	/* A throttled cgroup found no room in `walls`: its wall time is lost. */
	DROP_WALLS_FULL = 7,
	/* A VM has more memslots than MEMSLOTS_MAX: of the rest nothing is known. */
	DROP_MEMSLOTS = 8,
	/* Two threads of a VMM made large discards at once: of the first one's
	 * neither time nor what it released is known. */
	DROP_DISCARDS_AT_ONCE = 9,
	/* What KVM had counted of a vCPU that ended found no room in `ended_vcpus`. */
	DROP_ENDED_VCPUS_FULL = 10,
	/* A vCPU's thread exited while the program for it was interrupted: what KVM had
	 * counted since it was last told may be lost. */
	DROP_ENDED_VCPUS_MISSED = 11,
	/* A thread was freed and its mark could not be read: what it used after its exit
	 * is lost, or all of it if it had not retired then. */
	DROP_MARK_UNREAD = 12,
	/* A thread of a VM has a mark that the kernel did not look up: a vCPU's move is then
	 * not counted, a hit is the emulator's, or a pass takes it for the emulator's. */
	DROP_MARK_BUSY = 13,
	/* A process of a pod that has several threads was renamed: what the others had used
	 * moves to the role that they have now. */
	DROP_PROCESS_RENAMED = 14,
	DROP_REASONS = 15,
};

/* Key of map `book`: a page of what the agent keeps of a VM for the next one. */
struct book_key {
	/* When its process started, ns since boot. */
	__u64 start_ns;
	__u32 tgid;
	/* Of two editions that are whole the higher one counts. */
	__u32 edition;
	/* From 0. Page 0 is written last: where it is, all are. */
	__u32 page;
	__u32 pad;
};

#define BOOK_PAGE_LEN 1016

/* Value of map `book`. No program reads it. */
struct book_page {
	/* How many pages this edition has. */
	__u32 pages;
	/* How many of the bytes are used. */
	__u32 len;
	__u8 bytes[BOOK_PAGE_LEN];
};

#endif
