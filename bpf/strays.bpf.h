/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A single thread of a process without an owner can be in a watched cgroup: in a threaded
 * cgroup, or on cgroup v1. Such processes are in map `strays`; a pass with all_threads finds
 * those that were moved before this program was attached.
 */
#ifndef VIRTLENS_STRAYS_BPF_H
#define VIRTLENS_STRAYS_BPF_H

#include "maps.bpf.h"

/* Processes of which a thread, but not the leader, has an owner. Key: tgid, and ANY_STRAY if there
 * is one at all, so that mostly a pass searches the map once and not for each process. */
#define ANY_STRAY 0
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} strays SEC(".maps");

static __always_inline void add_stray(__u32 tgid)
{
	__u32 any = ANY_STRAY, one = 1;

	if (bpf_map_update_elem(&strays, &tgid, &one, BPF_ANY) ||
	    bpf_map_update_elem(&strays, &any, &one, BPF_ANY))
		count_drop(DROP_VM_FULL);
}

#endif
