/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cache of a pass over the tasks.
 */
#ifndef VIRTLENS_PASS_CACHE_BPF_H
#define VIRTLENS_PASS_CACHE_BPF_H

#include "maps.bpf.h"

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

/* Returns the cache of this pass, cleared at its start. */
static __always_inline struct neighbour *get_neighbour(const struct control *control)
{
	struct neighbour *last;
	__u32 zero = 0;

	last = bpf_map_lookup_elem(&neighbours, &zero);
	if (last && last->pass != control->pass) {
		__builtin_memset(last, 0, sizeof(*last));
		last->pass = control->pass;
	}
	return last;
}

#endif
