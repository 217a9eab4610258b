/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The state of a thread: its owner, its vCPU, and its times that `retired` already holds.
 * Only vCPU threads, kernel threads, threads whose class has changed and exiting threads
 * have one.
 */
#ifndef VIRTLENS_THREAD_STATE_BPF_H
#define VIRTLENS_THREAD_STATE_BPF_H

#include "maps.bpf.h"

/* The fields that each pass reads come first: they are one cache line, or two. */
struct thread_state {
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

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} marks SEC(".maps");

/* The same before v5.11, where there is no task storage. 512 VMs of 64 vCPUs. The key is
 * the task's address, since a thread that execs takes its leader's tid (de_thread,
 * fs/exec.c); the start time detects a reused address. */
struct thread_state_key {
	__u64 start_ns;
	__u64 task;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct thread_state_key);
	__type(value, struct thread_state);
} marks_hash SEC(".maps");

static __always_inline struct thread_state_key state_key(struct task_struct *task)
{
	return (struct thread_state_key){ .start_ns = task->start_boottime, .task = (__u64)task };
}

static __always_inline struct thread_state *state_of(struct task_struct *task)
{
	struct thread_state_key key;

	if (cfg.task_storage) {
		/* Most tasks of a host have no storage at all. */
		if (!task->bpf_storage)
			return NULL;
		return bpf_task_storage_get(&marks, task, NULL, 0);
	}
	key = state_key(task);
	return bpf_map_lookup_elem(&marks_hash, &key);
}

/* Whether a task may have a state although its lookup found none. */
static __always_inline bool may_have_state(struct task_struct *task)
{
	return cfg.task_storage && !always_finds_storage() && task->bpf_storage;
}

/* Whether a thread of a VM has a state, read from the cache in the kernel's task storage:
 * other programs may have storage there too. */
static __noinline bool has_state(struct task_struct *task)
{
	const void *cache, *data;
	struct owner owner;

	cache = (void *)task->bpf_storage + bpf_core_field_offset(struct bpf_local_storage, cache);
	for (int at = 0; at < STORAGE_CACHE; at++) {
		if (bpf_probe_read_kernel(&data, sizeof(data), cache + at * sizeof(data)) || !data)
			continue;
		data += bpf_core_field_offset(struct bpf_local_storage_data, data);
		/* The owner is the first field of the state. */
		if (!bpf_probe_read_kernel(&owner, sizeof(owner), data) &&
		    owner.tgid == (__u32)task->tgid &&
		    owner.id == FOLLOW(task->group_leader)->start_boottime)
			return true;
	}
	return false;
}

/* Returns the state of `task`. Counts a miss if a thread of a VM has one and the kernel
 * did not look it up: before v6.2 it does not while this CPU is in any other task storage
 * operation (bpf_task_storage_trylock, kernel/bpf/bpf_task_storage.c). */
static __always_inline struct thread_state *state_or_miss(struct task_struct *task)
{
	struct thread_state *state = state_of(task);

	if (!state && may_have_state(task) && has_state(task))
		count_drop(DROP_MARK_BUSY);
	return state;
}

/* Returns the state of `task`, and creates it if necessary; NULL (counted) if it cannot be
 * created. A separate function, because a whole state takes stack space. */
static __noinline struct thread_state *make_state(struct task_struct *task,
						  const struct owner *owner)
{
	struct thread_state fresh = { .owner = *owner, .vcpu_id = ~0U };
	struct thread_state_key key;
	struct thread_state *state;

	if (cfg.task_storage) {
		state = bpf_task_storage_get(&marks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	} else {
		key = state_key(task);
		bpf_map_update_elem(&marks_hash, &key, &fresh, BPF_NOEXIST);
		state = bpf_map_lookup_elem(&marks_hash, &key);
	}
	if (!state)
		count_drop(DROP_MARK_FULL);
	return state;
}

static __always_inline void delete_state(struct task_struct *task)
{
	struct thread_state_key key;

	/* Task storage is freed with its task. */
	if (cfg.task_storage)
		return;
	key = state_key(task);
	bpf_map_delete_elem(&marks_hash, &key);
}

#endif
