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
	struct css_set *set = FOLLOW(task->cgroups);
	struct cgroup_subsys_state *css;

	if (!set)
		return NULL;
	if (!cfg.cgroup_v1)
		return FOLLOW(set->dfl_cgrp);
	css = set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];
	return css ? css->cgroup : NULL;
}

static __always_inline struct cgroup *cgroup_parent(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = FOLLOW(cgroup->self.parent);

	return css ? css->cgroup : NULL;
}

/* task_cgroup, cgroup_id and cgroup_parent for the functions that the verifier checks once
 * (read.bpf.h). */
static __always_inline struct cgroup *task_cgroup_at(struct task_struct *task)
{
	struct css_set *set = READ_WORD(task->cgroups);
	struct cgroup_subsys_state **all, *css;

	if (!cfg.cgroup_v1)
		return READ_WORD(set->dfl_cgrp);
	all = (void *)set + bpf_core_field_offset(struct css_set, subsys);
	css = READ_WORD(all[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)]);
	return READ_WORD(css->cgroup);
}

static __always_inline __u64 cgroup_id_at(struct cgroup *cgroup)
{
	struct kernfs_node *node = READ_WORD(cgroup->kn);

	return READ_WORD(node->id);
}

static __always_inline struct cgroup *cgroup_parent_at(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = READ_WORD(cgroup->self.parent);

	return READ_WORD(css->cgroup);
}

/* The memory controller's part of a cgroup; NULL where the controller is not enabled, and on
 * v1, where it has a separate hierarchy. */
static __always_inline struct mem_cgroup *cgroup_memory_at(struct cgroup *cgroup)
{
	struct cgroup_subsys_state **all, *css;

	if (cfg.cgroup_v1 || !bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return NULL;
	all = (void *)cgroup + bpf_core_field_offset(struct cgroup, subsys);
	css = READ_WORD(all[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)]);
	return css ? (void *)css - bpf_core_field_offset(struct mem_cgroup, css) : NULL;
}

/* Walks up from the cgroup at `address` to the first watched one; returns the pod's id, or
 * 0. */
ONCE __u64 find_pod(__u64 address)
{
	struct cgroup *cgroup = (void *)address;
	struct watch *watch;
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id_at(cgroup);
		watch = bpf_map_lookup_elem(&watched, &id);
		if (watch)
			return watch->pod;
		cgroup = cgroup_parent_at(cgroup);
	}
	return 0;
}

/* Returns the nearest cgroup of the task at `address` that can have a limit, or 0. */
ONCE __u64 find_level(__u64 address)
{
	struct cgroup *cgroup = task_cgroup_at((void *)address);
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id_at(cgroup);
		if (bpf_map_lookup_elem(&levels, &id))
			return id;
		cgroup = cgroup_parent_at(cgroup);
	}
	return 0;
}

/* Whether the CPU time of a task counts towards CPU limits: only the fair class has them
 * (kernel/sched/fair.c). A task that priority inheritance boosts keeps its policy. */
static __always_inline bool has_limits(struct task_struct *task)
{
	__u32 policy = task->policy;

	return policy == SCHED_NORMAL || policy == SCHED_BATCH || policy == SCHED_IDLE;
}

/* The level that is charged for the time of a task, or 0. */
static __always_inline __u64 level_of(struct task_struct *task)
{
	return has_limits(task) ? find_level(address_of(task)) : 0;
}

/* Returns the watched pod to which the cgroup at `address` belongs, or 0. */
ONCE __u64 pod_at(__u64 address)
{
	struct membership fresh = {}, *known;
	struct control *control = get_control();
	__u64 id = cgroup_id_at((void *)address);

	if (!control)
		return 0;
	known = bpf_map_lookup_elem(&memberships, &id);
	if (known && known->epoch == control->epoch)
		return known->pod;
	fresh.pod = find_pod(address);
	fresh.epoch = control->epoch;
	bpf_map_update_elem(&memberships, &id, &fresh, BPF_ANY);
	return fresh.pod;
}

/* The same for the cgroup of a task. */
static __always_inline __u64 pod_of_task(struct task_struct *task)
{
	return pod_at((__u64)task_cgroup_at(task));
}

#endif
