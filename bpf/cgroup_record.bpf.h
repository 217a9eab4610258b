/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits the cgroups of a task, each once per pass.
 */
#ifndef VIRTLENS_CGROUP_RECORD_BPF_H
#define VIRTLENS_CGROUP_RECORD_BPF_H

#include "cgroup.bpf.h"
#include "pass_cache.bpf.h"
#include "memory.bpf.h"

/* The last pass that emitted a cgroup, and its session. If an entry is evicted, its cgroup
 * is emitted twice. */
struct emitted_cgroup {
	__u64 pass;
	__u64 session;
	/* The pass that emitted its name. */
	__u64 named_pass;
	/* The thread for which the cgroup was emitted. For the same thread it is emitted
	 * again: if the stream's buffer is full, the kernel drops the output of a thread
	 * and calls the program for it again. */
	__u32 tid;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct emitted_cgroup);
} emitted_cgroups SEC(".maps");

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
static __noinline bool emit_cgroup(struct output *out, struct cgroup *cgroup,
				   struct task_group *group, __u32 tid,
				   const struct control *control)
{
	struct cgroup_record record = { .head = { RECORD_CGROUP, sizeof(record) } };
	struct emitted_cgroup fresh = {
		.pass = control->pass,
		.session = control->session,
		.tid = tid,
	};
	struct cgroup_name_record *name;
	struct emitted_cgroup *emitted;
	const char *text;
	__u32 zero = 0;

	record.id = cgroup_id(cgroup);
	emitted = bpf_map_lookup_elem(&emitted_cgroups, &record.id);
	if (emitted && emitted->pass == control->pass && emitted->tid != tid)
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
	emit(out, &record, sizeof(record));

	fresh.named_pass = emitted ? emitted->named_pass : 0;
	if (!emitted || emitted->session != control->session ||
	    emitted->named_pass == control->pass) {
		name = bpf_map_lookup_elem(&name_buffer, &zero);
		if (!name)
			return true;
		name->head.kind = RECORD_CGROUP_NAME;
		name->head.size = sizeof(*name);
		name->id = record.id;
		text = cgroup->kn->name;
		bpf_probe_read_kernel_str(name->name, sizeof(name->name), text);
		emit(out, name, sizeof(*name));
		fresh.named_pass = control->pass;
	}
	if (emitted)
		*emitted = fresh;
	else
		bpf_map_update_elem(&emitted_cgroups, &record.id, &fresh, BPF_ANY);
	return true;
}

/* Emits the cgroups from the task's own up to the root. If one was already emitted, so
 * were its ancestors. */
static __always_inline void emit_cgroups(struct output *out, struct task_struct *task,
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
		if (!emit_cgroup(out, cgroup, own, task->pid, control))
			return;
		cgroup = cgroup_parent(cgroup);
	}
	if (cgroup)
		count_drop(DROP_CGROUP_DEPTH);
}

/* Emits the task's cgroups, unless the previous task was in the same cgroup. Returns the
 * id of the task's cgroup. */
static __always_inline __u64 emit_own_cgroups(struct output *out, struct task_struct *task,
					      struct pass_cache *cache,
					      const struct control *control)
{
	struct cgroup *cgroup = task_cgroup(task);

	if (cache->cgroup != (__u64)cgroup || cache->cgroup_tid == (__u32)task->pid) {
		cache->cgroup = (__u64)cgroup;
		cache->cgroup_id = cgroup_id(cgroup);
		cache->cgroup_tid = task->pid;
		emit_cgroups(out, task, cgroup, control);
	}
	return cache->cgroup_id;
}

#endif
