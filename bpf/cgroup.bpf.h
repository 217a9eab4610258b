/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cgroups of a task: its pod, and the nearest one that can have a limit.
 */
#ifndef VIRTLENS_CGROUP_BPF_H
#define VIRTLENS_CGROUP_BPF_H

#include "maps.bpf.h"

/* kubepods.slice/…-burstable.slice/…-pod.slice/scope/container is 5 levels; nested
 * kubelets (kind) and systemd units above them double that. */
#define MAX_CGROUP_DEPTH 16

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

/* Returns the innermost cgroup of a task: in the cpu controller's hierarchy on v1, in the
 * unified hierarchy on v2 (where the cpu controller may be enabled only further up). */
static __always_inline struct cgroup *task_cgroup(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *css;

	if (!set)
		return NULL;
	if (!cfg.cgroup_v1)
		return set->dfl_cgrp;
	css = set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];
	return css ? css->cgroup : NULL;
}

static __always_inline struct cgroup *cgroup_parent(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = cgroup->self.parent;

	return css ? css->cgroup : NULL;
}

/* Walks up from `cgroup` to the first watched one; returns the pod's id, or 0. */
static __noinline __u64 find_pod(struct cgroup *cgroup)
{
	struct watch *watch;
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id(cgroup);
		watch = bpf_map_lookup_elem(&watched, &id);
		if (watch)
			return watch->pod;
		cgroup = cgroup_parent(cgroup);
	}
	return 0;
}

/* Returns the nearest ancestor of `cgroup`, or itself, that can have a limit, or 0. */
static __noinline __u64 find_level(struct cgroup *cgroup)
{
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id(cgroup);
		if (bpf_map_lookup_elem(&levels, &id))
			return id;
		cgroup = cgroup_parent(cgroup);
	}
	return 0;
}

/* Returns the watched pod to which a cgroup belongs, or 0. */
static __always_inline __u64 pod_of(struct cgroup *cgroup, const struct control *control)
{
	struct membership fresh = {}, *known;
	__u64 id = cgroup_id(cgroup);

	known = bpf_map_lookup_elem(&memberships, &id);
	if (known && known->epoch == control->epoch)
		return known->pod;
	fresh.pod = find_pod(cgroup);
	fresh.epoch = control->epoch;
	bpf_map_update_elem(&memberships, &id, &fresh, BPF_ANY);
	return fresh.pod;
}

#endif
