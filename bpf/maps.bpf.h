/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that several features share, with their bounds: constants, the VMs and cgroups to
 * count, and the losses. A map of one feature is in that feature's file.
 *
 * Names have at most 15 characters, so that bpftool shows them in full. An agent finds the
 * maps of a former agent by name and layout, so a map with lasting data keeps its name: the
 * thread states are in `marks`, the wall time of levels is in `walls`, the handover is in
 * `book`.
 */
#ifndef VIRTLENS_MAPS_BPF_H
#define VIRTLENS_MAPS_BPF_H

#include "compat.bpf.h"
#include "map_abi.h"

const volatile struct config cfg = {};

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

/* The cgroups of VMs that can have a limit; the agent sets them. Five per VM is more than
 * any runtime creates. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct level);
} levels SEC(".maps");

/* The agent writes it before each pass. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* The programs that count, by cfg.programs; 0: none, because none is attached to a hook. An
 * agent that takes over the maps of a former agent attaches its programs while the old ones
 * are still attached, and then switches between them with one write here: nothing is counted
 * twice, and nothing is missed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} active SEC(".maps");

/* Number of losses, by enum drop_reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* Number of changes, by enum change. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CHANGES);
	__type(key, __u32);
	__type(value, __u64);
} changes SEC(".maps");

/* Number of times that the record of a thread was changed while the thread slept: by a new name,
 * or because another thread runs its vCPU now. */
struct touches {
	__u64 count;
	/* Their number when the last pass began, and the one before it. */
	__u64 seen;
	__u64 seen_before;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct touches);
} touches SEC(".maps");

/* The handover: state of each VM that the agent leaves for the next agent, mostly one or
 * two pages. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct handover_key);
	__type(value, struct handover_page);
} book SEC(".maps");

/* vCPU threads found through their open files. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} vcpu_of_tid SEC(".maps");

static __always_inline void count_drop(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&drops, &reason);

	/* Another program on the same CPU may interrupt this one. */
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Called after the change: see enum change. */
static __always_inline void count_change(__u32 kind)
{
	__u64 *count = bpf_map_lookup_elem(&changes, &kind);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Called before or after the change: see map `touches`. */
static __always_inline void count_touch(void)
{
	__u32 zero = 0;
	struct touches *touched = bpf_map_lookup_elem(&touches, &zero);

	if (touched)
		__sync_fetch_and_add(&touched->count, 1);
}

static __always_inline struct control *get_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Whether this program counts: checked by all programs that are attached to a hook, and by
 * the pass. */
static __always_inline bool is_active(void)
{
	__u32 zero = 0;
	__u64 *programs = bpf_map_lookup_elem(&active, &zero);

	return programs && *programs == cfg.programs;
}

#endif
