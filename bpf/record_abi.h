/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records that a pass emits, by the rules of abi.h. crates/abi/src/record.rs mirrors it.
 */
#ifndef VIRTLENS_RECORD_ABI_H
#define VIRTLENS_RECORD_ABI_H

#include "abi.h"
#include "map_abi.h"

/* NAME_MAX of the VFS and a NUL. */
#define CGROUP_NAME_LEN 256
/* KVM_MAX_CPUID_ENTRIES, 256 since v5.11 (arch/x86/include/asm/kvm_host.h). */
#define CPUID_LEAVES_MAX 256

/* Maximum size of a record, bytes. */
#define RECORD_MAX (16 << 10)

/* A run ends TASK_OUTPUT_MAX before its end: enough for about 1390 vCPU threads or 3180 other
 * threads, if an affinity mask is one word. */
#define STREAM_BYTES (512 << 10)

/* Output of a run of `walk_tasks` (map `stream`, one entry). */
struct stream {
	__u64 used;
	/* RECORD_MAX more bytes, so that the verifier accepts a write at any `used`. */
	__u8 bytes[STREAM_BYTES + RECORD_MAX];
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
	RECORD_LEVEL = 9,
	RECORD_VM = 10,
	RECORD_HALTS = 11,
	RECORD_SLEPT = 12,
};

/* Head of each record of the stream. `size` is the size of the whole record with its head,
 * in bytes, and a multiple of 8. */
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
 * A live thread of a VM or a watched cgroup. Its times and counts exclude what `retired`
 * already holds: they count since its last class change, or since it began to exit. A vcpu_record
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
	/* sched_info.pcount: how often the thread was put on a CPU. */
	__u64 timeslices;
	/* task->nivcsw: how often it left the CPU although it was runnable. */
	__u64 involuntary_switches;
	__u64 cgroup;
	__u32 pcpu;
	__u32 flags;
	/* Number of class changes, see bpf/retire.bpf.h. */
	__u32 class_changes;
	/* task->policy, SCHED_* in include/uapi/linux/sched.h. */
	__u32 policy;
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
	/* Halts that ended with a wake-up, and polls at the start of a halt: attempted,
	 * successful, and ended by a wake-up without an event for the vCPU. */
	__u64 halt_wakeups;
	__u64 polls_attempted;
	__u64 polls_successful;
	__u64 polls_invalid;
	/* A vCPU that spins or sends an interrupt yields to another vCPU. UNKNOWN before
	 * v5.13. */
	__u64 yields_attempted;
	__u64 yields_successful;
	/* How often KVM reported to the guest that this vCPU is preempted. UNKNOWN before
	 * v5.19, except in stable kernels. */
	__u64 preemptions_reported;
	/* CPU time that is in `residency`, or that was used before the vCPU was first
	 * seen, ns. Time beyond it was used on the present pCPU. */
	__u64 placed_ns;
	__u32 preempted;
	__u32 pad;
};

/* Threads that have not run since the former pass, which emitted them one after another: their
 * records of that pass are still right (bpf/slept.bpf.h). They stand for as many records of
 * threads. */
struct slept_record {
	struct record_head head;
	/* Position of the first of them among the threads of the former pass. */
	__u32 from;
	/* Its position among the threads of this pass. */
	__u32 at;
	__u32 count;
	__u32 pad;
};

/* Number of buckets of a histogram of KVM: HALT_POLL_HIST_COUNT (include/linux/kvm_types.h).
 * Bucket i > 0 counts times in [2^(i-1), 2^i) ns, the last one also all longer times. */
#define HALT_BUCKETS 32

/* Kind of time that a halted vCPU spends: index into halts_record.counts. */
enum halt_kind {
	/* Polling that ended with a wake-up. */
	HALT_POLL_SUCCESS = 0,
	/* Polling that did not. */
	HALT_POLL_FAIL = 1,
	/* Sleeping, after polling. */
	HALT_WAIT = 2,
	HALT_KINDS = 3,
};

/* Histograms of the halts of a vCPU, emitted if control.halts is set. The counts of a kind
 * are UNKNOWN if the kernel does not have it (before v5.15). */
struct halts_record {
	struct record_head head;
	struct owner owner;
	__u64 instance;
	__u32 vcpu_id;
	__u32 pad;
	__u64 counts[HALT_KINDS][HALT_BUCKETS];
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

/* Pressure stall information of a cgroup: index into level_record.stalled_ns. SOME: at
 * least one task was stalled on the resource, FULL: all tasks that were not idle. */
enum pressure {
	PRESSURE_CPU_SOME = 0,
	/* UNKNOWN before v5.13. */
	PRESSURE_CPU_FULL = 1,
	PRESSURE_MEMORY_SOME = 2,
	PRESSURE_MEMORY_FULL = 3,
	PRESSURE_IO_SOME = 4,
	PRESSURE_IO_FULL = 5,
	/* UNKNOWN before v6.1 and without CONFIG_IRQ_TIME_ACCOUNTING. */
	PRESSURE_IRQ_FULL = 6,
	PRESSURES = 7,
};

/* An event of a cgroup's memory and of those below it: index into
 * level_record.memory_events. */
enum memory_event {
	/* Its usage was over memory.high. */
	MEMORY_EVENT_HIGH = 0,
	/* Its usage was about to exceed memory.max. */
	MEMORY_EVENT_MAX = 1,
	/* Memory could not be allocated within memory.max. */
	MEMORY_EVENT_OOM = 2,
	/* A process was killed for lack of memory. */
	MEMORY_EVENT_OOM_KILL = 3,
	MEMORY_EVENTS = 4,
};

/* Further values of a cgroup of map `levels`; on v2 only. */
struct level_record {
	struct record_head head;
	__u64 id;
	/* Time in each state of enum pressure since the cgroup was created, as of the
	 * last time that the kernel summed it up over the CPUs (psi_avgs_work,
	 * kernel/sched/psi.c): every 2 s while tasks run, or when a pressure file is
	 * read. All are UNKNOWN if the kernel does not count pressure. */
	__u64 stalled_ns[PRESSURES];
	/* By enum memory_event, as in file memory.events. All are UNKNOWN if the memory
	 * controller is not enabled here. */
	__u64 memory_events[MEMORY_EVENTS];
};

/* The name of a cgroup, emitted once per session. */
struct cgroup_name_record {
	struct record_head head;
	__u64 id;
	char name[CGROUP_NAME_LEN];
};

/* KVM's page tables of the VMs of a process, as KVM counts them. */
struct mmu_stats {
	/* Entries that map guest memory with pages of 4 KiB, 2 MiB and 1 GiB. UNKNOWN before
	 * v5.15. */
	__u64 pages[3];
	/* Huge pages that are split, because the guest executes code in them and the CPU
	 * has the bug "iTLB multihit". */
	__u64 nx_splits;
	/* How often KVM interrupted running vCPUs to flush the TLBs of all vCPUs. */
	__u64 tlb_flushes;
};

/* A process with a VM. */
struct vm_record {
	struct record_head head;
	struct owner owner;
	/* Number of vCPUs that KVM has for it. */
	__u32 vcpus;
	__u32 pad;
	struct mmu_stats mmu;
	/* As in struct vm. All are UNKNOWN if map `vms` has no entry for it. */
	__u64 moves[DISTANCES];
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
	/* The VM of the device. */
	struct owner owner;
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

#endif
