/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits the cgroups of a task, each once per pass.
 */
#ifndef VIRTLENS_CGROUP_RECORD_BPF_H
#define VIRTLENS_CGROUP_RECORD_BPF_H

#include "cgroup.bpf.h"
#include "pass_cache.bpf.h"
#include "memory.bpf.h"

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

/* Buffer for a cgroup name. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cgroup_name_record);
} name_buffer SEC(".maps");

/* Fills in a cgroup's memory usage and limit. On v1 the memory controller has a separate
 * hierarchy. */
static __always_inline void fill_cgroup_memory(struct cgroup_record *record,
					       struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css;
	struct mem_cgroup *memory;
	__u64 limit;

	record->memory_bytes = record->memory_limit_bytes = UNKNOWN;
	if (cfg.cgroup_v1 || !bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return;
	css = cgroup->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)];
	if (!css)
		return;
	memory = (void *)css - bpf_core_field_offset(struct mem_cgroup, css);
	record->memory_bytes = bytes_of(READ_OR(0, memory->memory.usage.counter));
	limit = READ_OR(PAGE_COUNTER_MAX, memory->memory.max);
	if (limit < PAGE_COUNTER_MAX)
		record->memory_limit_bytes = limit * PAGE_SIZE;
}

/* Emits one cgroup; false if this pass has already emitted it. */
static __noinline bool tell_cgroup(void *out, struct cgroup *cgroup,
				   struct task_group *group, __u32 tid,
				   const struct control *control)
{
	struct cgroup_record record = { .head = { RECORD_CGROUP, sizeof(record) } };
	struct told fresh = { .pass = control->pass, .session = control->session, .tid = tid };
	struct cgroup_name_record *name;
	struct told *told;
	const char *text;
	__u32 zero = 0;

	record.id = cgroup_id(cgroup);
	told = bpf_map_lookup_elem(&told_cgroups, &record.id);
	if (told && told->pass == control->pass && told->tid != tid)
		return false;
	record.parent = cgroup_id(cgroup_parent(cgroup));
	if (group && HAS_LIMITS(group)) {
		record.quota_ns = group->cfs_bandwidth.quota;
		record.period_ns = group->cfs_bandwidth.period;
		record.burst_ns = burst_ns(group);
		record.periods = (__u32)group->cfs_bandwidth.nr_periods;
		record.throttled_periods = (__u32)group->cfs_bandwidth.nr_throttled;
		record.throttled_ns = group->cfs_bandwidth.throttled_time;
	}
	fill_cgroup_memory(&record, cgroup);
	tell(out, &record, sizeof(record));

	fresh.named_pass = told ? told->named_pass : 0;
	if (!told || told->session != control->session || told->named_pass == control->pass) {
		name = bpf_map_lookup_elem(&name_buffer, &zero);
		if (!name)
			return true;
		name->head.kind = RECORD_CGROUP_NAME;
		name->head.size = sizeof(*name);
		name->id = record.id;
		text = cgroup->kn->name;
		bpf_probe_read_kernel_str(name->name, sizeof(name->name), text);
		tell(out, name, sizeof(*name));
		fresh.named_pass = control->pass;
	}
	if (told)
		*told = fresh;
	else
		bpf_map_update_elem(&told_cgroups, &record.id, &fresh, BPF_ANY);
	return true;
}

/* Emits the cgroups from the task's own up to the root. If one was already emitted, so
 * were its ancestors. */
static __always_inline void tell_cgroups(void *out, struct task_struct *task,
					 struct cgroup *cgroup, const struct control *control)
{
	struct task_group *group = task_group(task), *own;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			return;
		/* On v2 the cpu controller may be enabled only above this cgroup. */
		own = NULL;
		if (group && group->css.cgroup == cgroup) {
			own = group;
			group = group->parent;
		}
		if (!tell_cgroup(out, cgroup, own, task->pid, control))
			return;
		cgroup = cgroup_parent(cgroup);
	}
	if (cgroup)
		count_drop(DROP_CGROUP_DEPTH);
}

/* Emits the task's cgroups, unless the previous task was in the same cgroup. Returns the
 * id of the task's cgroup. */
static __always_inline __u64 tell_own_cgroups(void *out, struct task_struct *task,
					      struct neighbour *last,
					      const struct control *control)
{
	struct cgroup *cgroup = task_cgroup(task);

	if (last->cgroup != (__u64)cgroup || last->cgroup_tid == (__u32)task->pid) {
		last->cgroup = (__u64)cgroup;
		last->cgroup_id = cgroup_id(cgroup);
		last->cgroup_tid = task->pid;
		tell_cgroups(out, task, cgroup, control);
	}
	return last->cgroup_id;
}

#endif
