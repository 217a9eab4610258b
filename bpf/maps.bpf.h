/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All state that the programs keep, and its bounds. Names have at most 15 characters, so
 * that bpftool shows them in full.
 */
#ifndef VIRTLENS_MAPS_BPF_H
#define VIRTLENS_MAPS_BPF_H

#include "compat.bpf.h"
#include "memory_abi.h"

const volatile struct config cfg = {};

/* State of a thread: its mark. The fields that each pass reads come first: they are one
 * cache line, or two. */
struct mark {
	struct owner owner;
	/* Address of its kvm_vcpu, 0 if it runs no vCPU. */
	__u64 vcpu;
	__u32 vcpu_id;
	__u32 vcpu_idx;
	/* It has begun to exit, and `retired` includes it. */
	__u32 has_exited;
	/* Number of class changes, and the low bits of the pass at the last one. */
	__u32 class_changes;
	__u32 changed_pass;
	__u32 pad;
	/* CPU time that is in `residency`, or was used at an unknown place, ns. */
	__u64 placed_ns;
	/* Highest number of unclassified exits emitted, and the sum of classified
	 * exits. */
	__u64 other_exits;
	__u64 kinds;
	/* The session and the pass that emitted the guest's CPUID leaves. */
	__u64 cpuid_session;
	__u64 cpuid_pass;
	/* The task_struct of its VM's timer thread, once this vCPU has recorded it. */
	__u64 pit;
	/* Its times that are in `retired`. */
	struct retired retired;
	/* The nearest cgroup in `levels` at its exit. */
	__u64 retired_level;
	/* The name of its process at its exit: the thread group leader may be freed
	 * before this thread. */
	char leader_comm[COMM_LEN];
	/* Generation of the VM's memslots that was emitted last, and when. */
	__u64 slots_generation;
	__u64 slots_session;
	__u64 slots_pass;
};

/* Only vCPU threads, kernel threads, threads whose class has changed and exiting threads
 * are marked. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mark);
} marks SEC(".maps");

/* The same before v5.11, where there is no task storage. 512 VMs of 64 vCPUs. The key is
 * the task's address, since a thread that execs takes its leader's tid (de_thread,
 * fs/exec.c); the start time detects a reused address. */
struct mark_key {
	__u64 start_ns;
	__u64 task;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct mark_key);
	__type(value, struct mark);
} marks_hash SEC(".maps");

/* 4096 VMs: about ten times the pods that a kubelet admits (110 to 500). Includes the
 * child processes of pods that are in other cgroups: mostly there are none, and with
 * libvirt one for each virtiofs share of a VM. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct vm);
} vms SEC(".maps");

/* The same VMs by mm_struct, because a vhost kernel thread runs on its VMM's address
 * space, and by the task_struct of the VM's timer thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct owner);
} vm_mms SEC(".maps");

/* A VM has at most two watched cgroups: its pod's and an overhead one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct watch);
} watched SEC(".maps");

/* State that the agent keeps for the next agent: mostly one or two pages per VM. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct book_key);
	__type(value, struct book_page);
} book SEC(".maps");

/* Cache of find_pod: the pod of each cgroup. */
struct membership {
	/* 0: no watched pod. */
	__u64 pod;
	__u32 epoch;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct membership);
} memberships SEC(".maps");

/* The cgroups that this pass has emitted. If an entry is evicted, its cgroup is emitted
 * twice. */
struct told {
	__u64 pass;
	__u64 session;
	__u64 named_pass;
	/* The thread for which the cgroup was emitted: if the stream's buffer is full,
	 * the kernel drops that output and calls the program for the same thread
	 * again. */
	__u32 tid;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct told);
} told_cgroups SEC(".maps");

/* vCPU threads found through their open files. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} vcpu_of_tid SEC(".maps");

/* Field offsets of vhost devices; set by the agent once they are known. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vhost_fields);
} vhost_fields SEC(".maps");

/* Topology of each CPU; as many entries as an affinity mask has bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MASK_WORDS_MAX * 64);
	__type(key, __u32);
	__type(value, struct cpu_place);
} places SEC(".maps");

/* CPU time of each vCPU on each pCPU that it has used. The agent sets the size by the
 * host's CPUs and removes former VMs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct residency_key);
	__type(value, __u64);
} residency SEC(".maps");

/* vCPUs whose threads have exited, until the agent removes their VMs: 64 VMs of 64
 * vCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct vcpu_key);
	__type(value, struct vcpu_record);
} ended_vcpus SEC(".maps");

/* Buffer for a value of `ended_vcpus`, which is too large for the stack. Threads do not
 * exit in interrupts, and a CPU does not start a raw tracepoint program that it is
 * already running (kernel/trace/bpf_trace.c: __bpf_trace_run; before v6.1 the program
 * cannot be preempted there). */
#define STAT_SPAN 200
struct ended_buffer {
	struct vcpu_record record;
	__u64 span[STAT_SPAN / 8];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ended_buffer);
} ended_buffer SEC(".maps");

/* The cgroups of VMs that can have a limit; the agent sets them. Five per VM is more than
 * any runtime creates. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct level);
} levels SEC(".maps");

/* Up to NAMES_PER_OWNER names per owner; the agent removes former owners. Enough for 512
 * VMs with all their names, thousands with the usual ten. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct thread_class);
	__type(value, struct retired);
} retired SEC(".maps");

/* The end of the counted wall time of a level, and the last gaps before it in which no
 * run queue was throttled: a run queue that is unthrottled late may have been throttled
 * during some of them. 32 periods are seconds. */
#define WALL_GAPS 32
struct wall_gap {
	__u64 from_ns;
	__u64 to_ns;
};
struct wall {
	/* Held if several CPUs may count at once. */
	struct bpf_spin_lock lock;
	__u32 gaps_made;
	__u64 until_ns;
	struct wall_gap gaps[WALL_GAPS];
};
/* The agent creates the entry of a level before the level itself: the programs run with a
 * run queue locked, where they must not allocate, and preallocated entries would take 9
 * MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct wall);
} walls SEC(".maps");

/* The run queue that this CPU is unthrottling. */
struct unthrottling {
	__u64 queue;
	__u64 stood_clock;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unthrottling);
} unthrottling SEC(".maps");

/* How often threads were running when a quota was exhausted. The agent removes the
 * entries of former owners. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct thread_class);
	__type(value, __u64);
} throttle_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* The programs that count, by cfg.programs. An agent that takes over the maps of a former
 * agent attaches its programs while the old ones are still attached, and then switches
 * between them with one write here: nothing is counted twice, and nothing is missed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* Cache of a pass: results of the previous threads, because consecutive threads mostly
 * share a process and a cgroup. The `_tid` fields hold the thread for which a record was
 * emitted: see `told`. */
struct neighbour {
	__u64 pass;
	__u64 cgroup;
	__u64 cgroup_id;
	__u32 cgroup_tid;
	/* The process whose number of vCPUs was emitted. */
	__u32 vm_tgid;
	__u32 vm_tid;
	/* A process that belongs to no VM, and a cgroup that is in no watched one. */
	__u32 other_tgid;
	__u64 other_cgroup;
	/* A task in no watched pod: its children inherit no owner from it. */
	__u64 other_parent;
	/* The VM of a process, and the first pass that sees all of its threads. */
	struct owner vm;
	__u32 vm_since_pass;
	/* The current thread: whether it runs the vCPU of its mark, and its owners. Kept
	 * here and not on the stack, so that the verifier does not follow each path to
	 * them. */
	__u32 is_alive;
	struct owner owner;
	struct owner before;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

/* Buffer for a guest's CPUID leaves. */
struct cpuid_buffer {
	struct cpuid_record record;
	struct cpuid_leaf leaves[CPUID_LEAVES_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpuid_buffer);
} cpuid_buffer SEC(".maps");

/* Buffer for a cgroup name. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cgroup_name_record);
} name_buffer SEC(".maps");

/* Location of the RAM of VMs, set by the agent. Arrays, which are cheaper than a hash:
 * each page of a balloon looks up its VM's RAM, and each madvise of any process tests
 * whether the process is a VMM. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct ram_bucket);
} ram_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct ram);
} ram SEC(".maps");

/* Discard counters of that RAM. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct discards);
} discards SEC(".maps");

/* Buffer for the records of a VM's memory. */
struct memory_buffer {
	struct memory_record memory;
	struct memslots_record record;
	struct memslot slots[MEMSLOTS_MAX];
	/* Kept here and not on the stack, so that the verifier does not track their
	 * values: it would check each number separately. */
	__u32 count;
	__u32 bucket;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct memory_buffer);
} memory_buffer SEC(".maps");

static __always_inline void count_drop(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&drops, &reason);

	/* Another program on the same CPU may interrupt this one. */
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline struct control *get_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Whether this program counts: checked by all programs that are attached to a hook. */
static __always_inline bool is_active(void)
{
	__u32 zero = 0;
	__u64 *programs = bpf_map_lookup_elem(&active, &zero);

	return programs && *programs == cfg.programs;
}

static __always_inline struct mark_key key_of(struct task_struct *task)
{
	return (struct mark_key){ .start_ns = task->start_boottime, .task = (__u64)task };
}

static __always_inline struct mark *mark_of(struct task_struct *task)
{
	struct mark_key key;

	if (cfg.task_storage) {
		/* Most tasks of a host have no storage at all. */
		if (!task->bpf_storage)
			return NULL;
		return bpf_task_storage_get(&marks, task, NULL, 0);
	}
	key = key_of(task);
	return bpf_map_lookup_elem(&marks_hash, &key);
}

/* Whether a task whose lookup found no mark may have one. */
static __always_inline bool may_have_mark(struct task_struct *task)
{
	return cfg.task_storage && !always_finds_storage() && task->bpf_storage;
}

/* Whether a thread of a VM has a mark, read from the cache in the kernel's task storage:
 * other programs may have storage there too. */
static __noinline bool has_mark(struct task_struct *task)
{
	const void *cache, *data;
	struct owner owner;

	cache = (void *)task->bpf_storage + bpf_core_field_offset(struct bpf_local_storage, cache);
	for (int at = 0; at < STORAGE_CACHE; at++) {
		if (bpf_probe_read_kernel(&data, sizeof(data), cache + at * sizeof(data)) || !data)
			continue;
		data += bpf_core_field_offset(struct bpf_local_storage_data, data);
		/* The owner is the first field of a mark. */
		if (!bpf_probe_read_kernel(&owner, sizeof(owner), data) &&
		    owner.tgid == (__u32)task->tgid &&
		    owner.id == task->group_leader->start_boottime)
			return true;
	}
	return false;
}

/* Returns the mark of `task`. Counts a miss if a thread of a VM has one and the kernel
 * did not look it up: before v6.2 it does not while this CPU is in any other task storage
 * operation (bpf_task_storage_trylock, kernel/bpf/bpf_task_storage.c). */
static __always_inline struct mark *mark_or_miss(struct task_struct *task)
{
	struct mark *mark = mark_of(task);

	if (!mark && may_have_mark(task) && has_mark(task))
		count_drop(DROP_MARK_BUSY);
	return mark;
}

/* Returns the mark of `task`, and creates it if necessary; NULL (counted) if it cannot be
 * created. A separate function, because a whole mark takes stack space. */
static __noinline struct mark *make_mark(struct task_struct *task, const struct owner *owner)
{
	struct mark fresh = { .owner = *owner, .vcpu_id = ~0U };
	struct mark_key key;
	struct mark *mark;

	if (cfg.task_storage) {
		mark = bpf_task_storage_get(&marks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	} else {
		key = key_of(task);
		bpf_map_update_elem(&marks_hash, &key, &fresh, BPF_NOEXIST);
		mark = bpf_map_lookup_elem(&marks_hash, &key);
	}
	if (!mark)
		count_drop(DROP_MARK_FULL);
	return mark;
}

static __always_inline void forget_mark(struct task_struct *task)
{
	struct mark_key key;

	/* Task storage is freed with its task. */
	if (cfg.task_storage)
		return;
	key = key_of(task);
	bpf_map_delete_elem(&marks_hash, &key);
}

#endif
