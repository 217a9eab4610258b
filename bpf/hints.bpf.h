/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hints for prefetching: the addresses of the objects that a walk has read for a process with an
 * owner. The objects refer to each other, so without the hints the next walk would wait for
 * each of them before it knows where the next one is:
 *
 *   leader ── mm ── notifiers ── VM ── vCPU
 *     └─ css_set ── cgroup of the container ── cgroup of the pod
 *
 * The hints of a process are found by its position among all processes with an owner. If
 * processes have started or exited since, they are those of a neighbour, or of an object that was
 * freed. Values read through them are not used. All of them are in memory that the kernel
 * keeps mapped (slabs, maps), never in vmalloc space, where an address can later be a device's:
 * so the VM itself, which KVM allocates there, is found through the objects of a process that
 * is alive.
 */
#ifndef VIRTLENS_HINTS_BPF_H
#define VIRTLENS_HINTS_BPF_H

#include "pass_cache.bpf.h"
#include "vm.bpf.h"

/* Processes that have hints. */
#define HINTS_MAX 4096
/* Cgroups of a process that other processes are mostly not in: the container, the pod. */
#define HINT_CGROUPS 2

/* An entry of a hash map: its value, its head, and what refers to it: its bucket, or another entry
 * of that. A lookup reads these. */
struct entry_hints {
	__u64 value;
	__u64 head;
	__u64 former;
};

struct cgroup_hints {
	__u64 cgroup;
	__u64 node;
	__u64 group;
	__u64 memory;
	/* In the map `emitted_cgroups`. */
	struct entry_hints emitted;
};

struct hints {
	__u64 leader;
	__u64 pid;
	__u64 mm;
	__u64 notifiers;
	/* The node of the VM's vCPUs, and the first of them. */
	__u64 vcpus;
	__u64 first_vcpu;
	__u64 css_set;
	/* The task storage and the thread state of the thread of its first vCPU. */
	__u64 storage;
	__u64 state;
	/* In the map `vms`. */
	struct entry_hints vm;
	/* Number of its cgroups so far. */
	__u64 found;
	struct cgroup_hints cgroups[HINT_CGROUPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HINTS_MAX);
	__type(key, __u32);
	__type(value, struct hints);
} hints SEC(".maps");

/* Returns the hints of the process that is `ahead` processes after the one that is visited. */
static __always_inline struct hints *hints_ahead(const struct pass_cache *cache, __u32 ahead)
{
	__u32 process = cache->processes + ahead;

	return cfg.walks && process < HINTS_MAX ? bpf_map_lookup_elem(&hints, &process) : NULL;
}

/* Returns those of the process that is visited. */
static __always_inline struct hints *own_hints(void)
{
	struct pass_cache *cache;
	__u32 zero = 0;

	cache = bpf_map_lookup_elem(&pass_cache, &zero);
	return cache ? hints_ahead(cache, 0) : NULL;
}

/* Begins those of the process whose leader is at `address`. */
ONCE int begin_hints(__u64 address)
{
	struct task_struct *leader = (void *)address;
	struct hints *its = own_hints();

	if (!its)
		return 0;
	its->found = 0;
	its->leader = address;
	its->pid = (__u64)READ_WORD(leader->thread_pid);
	its->css_set = (__u64)READ_WORD(leader->cgroups);
	return 0;
}

/* Keeps the addresses of an entry with a key of up to eight bytes, whose value is at `value`. */
static __always_inline void hint_entry(struct entry_hints *its, __u64 value)
{
	its->value = value;
	if (!value)
		return;
	its->head = value - 8 - bpf_core_field_offset(struct htab_elem, key);
	its->former = word_at(its->head + bpf_core_field_offset(struct htab_elem, hash_node.pprev));
}

/* Keeps those of the VM that vcpus_of_mm has found in the address space at `mm`, which has an entry
 * of the map `vms` at `entry`. */
ONCE int hint_vm(__u64 mm, __u64 entry)
{
	struct hints *its = own_hints();
	struct pass_cache *cache;
	__u32 zero = 0;

	cache = bpf_map_lookup_elem(&pass_cache, &zero);
	if (!its || !cache)
		return 0;
	its->mm = mm;
	its->notifiers = notifiers_of(mm);
	its->vcpus = vcpus_node(cache->kvm);
	its->first_vcpu = first_vcpu(cache->kvm);
	hint_entry(&its->vm, entry);
	return 0;
}

/* Keeps those of the thread of the first vCPU. */
ONCE int hint_state(__u64 storage, __u64 state)
{
	struct hints *its = own_hints();

	if (!its)
		return 0;
	its->storage = storage;
	its->state = state;
	return 0;
}

#endif
