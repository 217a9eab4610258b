/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All state that the programs keep, and what bounds it. Names are at most 15
 * characters, so that bpftool shows them whole.
 */
#ifndef VIRTLENS_MAPS_BPF_H
#define VIRTLENS_MAPS_BPF_H

#include "compat.bpf.h"
#include "memory_abi.h"

const volatile struct config cfg = {};

/* What the programs remember of a thread. What each pass asks for comes first:
 * it is one cache line, or two. */
struct mark {
	struct owner owner;
	/* Its kvm_vcpu, 0 if it runs none. */
	__u64 vcpu;
	__u32 vcpu_id;
	__u32 vcpu_idx;
	/* It has begun to exit, and `retired` has counted it. */
	__u32 has_exited;
	/* How often its class changed, and the low bits of the pass since which it last did. */
	__u32 class_changes;
	__u32 changed_pass;
	__u32 pad;
	/* Its CPU time that `residency` holds, or that nobody saw the place of. */
	__u64 placed_ns;
	/* The most exits of no kind that were emitted, and the exits of all kinds. */
	__u64 other_exits;
	__u64 kinds;
	/* The session and the pass that emitted its guest's CPUID leaves. */
	__u64 cpuid_session;
	__u64 cpuid_pass;
	/* The task_struct of its VM's timer, once that was learned by it. */
	__u64 pit;
	/* Its times that `retired` holds already. */
	struct retired retired;
	/* The level at which it exited. */
	__u64 retired_level;
	/* The name of its process at its exit: the first thread may be freed before this one. */
	char leader_comm[COMM_LEN];
	/* Which memslots of its VM were told, and when. */
	__u64 slots_generation;
	__u64 slots_session;
	__u64 slots_pass;
};

/* Only vCPU threads, kernel threads, threads whose class has changed and those that are
 * just exiting are marked. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mark);
} marks SEC(".maps");

/* The same before v5.11, where there is no task storage. 512 VMs of 64
 * vCPUs. By the task's address, since a thread that execs takes its leader's tid
 * (de_thread, fs/exec.c); the start time tells an address that is used again. */
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

/* 4096 VMs: some ten times the pods that a kubelet admits (110 to 500). With them the
 * processes that a pod's have started and that sit elsewhere: mostly there is none, and
 * of libvirt's VMs one for each virtiofs share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct vm);
} vms SEC(".maps");

/* The same VMs by mm_struct: a vhost kernel thread runs on its VMM's. And by the
 * task_struct of the kernel thread that is the VM's timer. */
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

/* What the agent keeps for the next one: mostly a page or two of each VM. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct book_key);
	__type(value, struct book_page);
} book SEC(".maps");

/* Which pod a cgroup belongs to: what the walk up from it found. A cache. */
struct membership {
	/* 0: none that is watched. */
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

/* Which cgroups this pass has told of. Losing an entry tells one twice. */
struct told {
	__u64 pass;
	__u64 session;
	__u64 named_pass;
	/* The thread for which it was told: where the stream's buffer was full
	 * the kernel drops what was told and shows the same thread again. */
	__u32 tid;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct told);
} told_cgroups SEC(".maps");

/* vCPU threads found by their file descriptors; consumed when marked. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} vcpu_of_tid SEC(".maps");

/* Where the fields of vhost devices are; set by the agent once it knows. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vhost_fields);
} vhost_fields SEC(".maps");

/* Which CPU is where. As many as a mask has bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MASK_WORDS_MAX * 64);
	__type(key, __u32);
	__type(value, struct cpu_place);
} places SEC(".maps");

/* Every vCPU on every pCPU where it ever was; the agent sets the size by the
 * host's CPUs and removes VMs that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct residency_key);
	__type(value, __u64);
} residency SEC(".maps");

/* vCPUs whose threads have ended, until the agent forgets their VMs: 64 VMs of 64
 * vCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct vcpu_key);
	__type(value, struct vcpu_record);
} ended_vcpus SEC(".maps");

/* Its value before it is there: too large for the stack. Threads do not end in
 * interrupts, and a program that runs at a raw tracepoint is not begun again by the
 * same CPU (kernel/trace/bpf_trace.c: __bpf_trace_run; before v6.1 it cannot be
 * preempted there). */
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

/* The cgroups of VMs that can have a limit; the agent sets them. Five a VM is
 * more than any runtime makes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct level);
} levels SEC(".maps");

/* Up to NAMES_PER_OWNER names each; the agent removes those of owners that
 * are gone. 512 VMs with all their names, thousands with the usual ten. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct thread_class);
	__type(value, struct retired);
} retired SEC(".maps");

/* Up to when wall time of a level is counted, and the last times before that in
 * which no run queue stood: one that is set free late may have stood in some.
 * 32 periods are seconds. */
#define WALL_GAPS 32
struct wall_gap {
	__u64 from_ns;
	__u64 to_ns;
};
struct wall {
	/* Held where several CPUs may count at once. */
	struct bpf_spin_lock lock;
	__u32 gaps_made;
	__u64 until_ns;
	struct wall_gap gaps[WALL_GAPS];
};
/* The agent makes the entry of a level before that level's own: the programs run with a
 * run queue locked, where none may be allocated, and preallocated they are 9 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct wall);
} walls SEC(".maps");

/* A run queue that is just being set free by this CPU. */
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

/* How often threads ran when a quota ran out. The agent removes those of
 * owners that are gone. */
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

/* Which programs count, by cfg.programs. An agent that takes over the maps of
 * one before it attaches its own programs beside the old ones, and then has them
 * count instead, at once: nothing counts twice, and nothing is missed. */
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

/* What the pass has found of the threads just before: neighbours mostly share
 * a process and sit in the same cgroup. With the thread for which something was
 * told: see `told`. */
struct neighbour {
	__u64 pass;
	__u64 cgroup;
	__u64 cgroup_id;
	__u32 cgroup_tid;
	/* The process of which it was told how many vCPUs it has. */
	__u32 vm_tgid;
	__u32 vm_tid;
	/* A process that is no VM's, and a cgroup that is in no watched one. */
	__u32 other_tgid;
	__u64 other_cgroup;
	/* A task that is in no watched pod: its children get no owner by it. */
	__u64 other_parent;
	/* The VM of a process, and the first pass that sees all of its threads. */
	struct owner vm;
	__u32 vm_since_pass;
	/* Of the thread at hand: whether it runs the vCPU of its mark, and its owners. Here
	 * and not on the stack, so that the verifier does not follow each way to them. */
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

/* A guest's CPUID leaves on their way to the stream. */
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

/* A cgroup name on its way to the stream. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cgroup_name_record);
} name_buffer SEC(".maps");

/* Where the RAM of VMs lies; the agent tells it. Arrays, which cost less than a
 * hash, as each page of a balloon asks for its VM's, and each advice of any process
 * whether it is a VM's. */
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

/* What was discarded of it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct discards);
} discards SEC(".maps");

/* What is told of a VM's memory, on its way to the stream. */
struct memory_buffer {
	struct memory_record memory;
	struct memslots_record record;
	struct memslot slots[MEMSLOTS_MAX];
	/* Here and not on the stack, so that the verifier forgets what it knows of
	 * them: it would follow each number by itself. */
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

	/* A program of the same CPU may come in between. */
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline struct control *get_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Whether this program counts: asked by all that are attached to something. */
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
		/* Of most tasks of a host nobody remembers anything. */
		if (!task->bpf_storage)
			return NULL;
		return bpf_task_storage_get(&marks, task, NULL, 0);
	}
	key = key_of(task);
	return bpf_map_lookup_elem(&marks_hash, &key);
}

/* Whether a task of which no mark was found may have one. */
static __always_inline bool may_have_mark(struct task_struct *task)
{
	return cfg.task_storage && !always_finds_storage() && task->bpf_storage;
}

/* Whether a thread of a VM has a mark, by the kernel's cache of what is
 * stored at it: others may store something there, too. */
static __noinline bool has_mark(struct task_struct *task)
{
	const void *cache, *data;
	struct owner owner;

	cache = (void *)task->bpf_storage + bpf_core_field_offset(struct bpf_local_storage, cache);
	for (int at = 0; at < STORAGE_CACHE; at++) {
		if (bpf_probe_read_kernel(&data, sizeof(data), cache + at * sizeof(data)) || !data)
			continue;
		data += bpf_core_field_offset(struct bpf_local_storage_data, data);
		/* A mark begins with it. */
		if (!bpf_probe_read_kernel(&owner, sizeof(owner), data) &&
		    owner.tgid == (__u32)task->tgid &&
		    owner.id == task->group_leader->start_boottime)
			return true;
	}
	return false;
}

/* The mark of `task`. Counts where a thread of a VM has one and the kernel did not look:
 * before v6.2 it does not while this CPU is about any other task storage
 * (bpf_task_storage_trylock, kernel/bpf/bpf_task_storage.c). */
static __always_inline struct mark *mark_or_miss(struct task_struct *task)
{
	struct mark *mark = mark_of(task);

	if (!mark && may_have_mark(task) && has_mark(task))
		count_drop(DROP_MARK_BUSY);
	return mark;
}

/* The mark of `task`, made anew if it has none; NULL (counted) if it cannot
 * be made. A function, for the room that a whole mark takes on the stack. */
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

	/* Task storage ends with its task. */
	if (cfg.task_storage)
		return;
	key = key_of(task);
	bpf_map_delete_elem(&marks_hash, &key);
}

#endif
