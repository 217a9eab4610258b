/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cache of a pass: results for the previous tasks, because consecutive tasks mostly
 * share a process and a cgroup.
 */
#ifndef VIRTLENS_PASS_CACHE_BPF_H
#define VIRTLENS_PASS_CACHE_BPF_H

#include "maps.bpf.h"
#include "record_abi.h"

/* The `_tid` fields hold the thread for which a record was emitted: for this thread it is
 * emitted again, as in struct emitted_cgroup. */
struct pass_cache {
	__u64 pass;
	__u64 cgroup;
	__u64 cgroup_id;
	__u32 cgroup_tid;
	/* The process whose address space was visited. */
	__u32 mm_tgid;
	__u32 mm_tid;
	/* The process whose leader has an owner. */
	__u32 owned_tgid;
	__u32 pad;
	/* A process that belongs to no VM, and a cgroup that is in no watched one. */
	__u32 unowned_tgid;
	__u64 unowned_cgroup;
	/* A task in no watched pod: its children inherit no owner from it. */
	__u64 unowned_parent;
	/* The VM of a process, and the first pass that sees all of its threads. */
	struct owner vm;
	__u32 vm_since_pass;
	/* The current thread: whether the vCPU of its state is valid (runs_vcpu), its owner
	 * and its owner before. Kept here and not on the stack, so that the verifier does
	 * not follow each path to them. */
	__u32 is_vcpu_valid;
	struct owner owner;
	struct owner former_owner;
	/* The VMs of the address space that was visited last: the sums of their counts, and the
	 * address of one. */
	struct mmu_stats mmu;
	__u64 kvm;
	/* The current thread runs the first vCPU of its VM. */
	__u32 is_first_vcpu;
	/* References to the former pass (slept.bpf.h): its number of threads, 0 if there can
	 * be none; the position behind the last thread found in it; whether the threads of
	 * this process may be references. */
	__u32 former_threads;
	__u32 former;
	__u32 refers;
	/* Number of threads that this pass has emitted. */
	__u32 threads;
	/* The threads of the former pass below this position are prefetched. */
	__u32 prefetched;
	/* The position of the process that a walk visits among all processes with an owner
	 * (hints.bpf.h). */
	__u32 processes;
	/* The map `strays` has entries. */
	__u32 has_strays;
	/* Where the last reference is in the stream, and where it ends. */
	__u32 slept_at;
	__u64 slept_end;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pass_cache);
} pass_cache SEC(".maps");

/* Returns the cache of this pass, cleared at its start. */
static __always_inline struct pass_cache *get_pass_cache(const struct control *control)
{
	struct pass_cache *cache;
	__u32 zero = 0;

	cache = bpf_map_lookup_elem(&pass_cache, &zero);
	if (cache && cache->pass != control->pass) {
		__builtin_memset(cache, 0, sizeof(*cache));
		cache->pass = control->pass;
	}
	return cache;
}

#endif
