/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits the cgroups of a task, each once per pass.
 */
#ifndef VIRTLENS_CGROUP_RECORD_BPF_H
#define VIRTLENS_CGROUP_RECORD_BPF_H

#include "cgroup.bpf.h"
#include "hints.bpf.h"
#include "memory.bpf.h"
#include "level_record.bpf.h"

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

/* Buffer for the records of one task's cgroups. Space for one more cgroup, so that the
 * verifier accepts a write at any place below CGROUPS_BYTES. */
#define CGROUPS_BYTES (8 << 10)
#define CGROUP_OUTPUT_MAX                                               \
	(sizeof(struct cgroup_record) + sizeof(struct level_record) +      \
	 sizeof(struct cgroup_name_record))
_Static_assert(MAX_CGROUP_DEPTH * CGROUP_OUTPUT_MAX <= CGROUPS_BYTES, "the cgroups of a task fit");
_Static_assert(CGROUPS_BYTES <= RECORD_MAX, "the output fits into a stream");
struct cgroups_buffer {
	__u8 bytes[CGROUPS_BYTES + CGROUP_OUTPUT_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cgroups_buffer);
} cgroups_buffer SEC(".maps");

/* Fills in a cgroup's CPU limit and throttling. On v2 the cpu controller may be enabled
 * only above a cgroup: `group` is NULL then. */
static __always_inline void fill_limit(struct cgroup_record *record, struct task_group *group)
{
	record->quota_ns = record->period_ns = record->burst_ns = 0;
	record->periods = record->throttled_periods = record->throttled_ns = 0;
	if (!group || !HAS_LIMITS(group))
		return;
	record->quota_ns = READ_WORD(group->cfs_bandwidth.quota);
	record->period_ns = READ_WORD(group->cfs_bandwidth.period);
	record->burst_ns = burst_ns(group);
	record->periods = (__u32)READ_WORD(group->cfs_bandwidth.nr_periods);
	record->throttled_periods = (__u32)READ_WORD(group->cfs_bandwidth.nr_throttled);
	record->throttled_ns = READ_WORD(group->cfs_bandwidth.throttled_time);
}

/* Fills in a cgroup's memory usage and limit. */
static __always_inline void fill_cgroup_memory(struct cgroup_record *record,
					       struct cgroup *cgroup)
{
	struct mem_cgroup *memory = cgroup_memory_at(cgroup);
	__u64 limit;

	record->memory_bytes = record->memory_limit_bytes = UNKNOWN;
	if (!memory)
		return;
	record->memory_bytes = bytes_of(READ_WORD(memory->memory.usage.counter));
	limit = READ_OR(PAGE_COUNTER_MAX, memory->memory.max);
	if (limit < PAGE_COUNTER_MAX)
		record->memory_limit_bytes = limit * PAGE_SIZE;
}

/* Keeps the addresses of a cgroup for the next pass. */
ONCE int hint_cgroup(__u64 address, __u64 group, __u64 emitted)
{
	struct cgroup *cgroup = (void *)address;
	struct hints *process = own_hints();
	struct cgroup_hints *its;
	__u32 at;

	if (!process)
		return 0;
	at = process->found;
	if (at >= HINT_CGROUPS)
		return 0;
	process->found = at + 1;
	its = &process->cgroups[at];
	its->cgroup = address;
	its->node = (__u64)READ_WORD(cgroup->kn);
	its->group = group;
	hint_entry(&its->emitted, emitted);
	its->memory = (__u64)cgroup_memory_at(cgroup);
	return 0;
}

/* Appends the records of a cgroup to the buffer, which has `used` bytes. Returns the new
 * length; `used` if this pass has already emitted the cgroup for another thread. */
ONCE __u32 fill_cgroup(__u64 address, __u64 group, __u32 tid, __u32 used)
{
	struct cgroup *cgroup = (void *)address;
	struct control *control = get_control();
	struct emitted_cgroup fresh = { .tid = tid }, *emitted;
	struct cgroup_name_record *name;
	struct cgroups_buffer *buffer;
	struct cgroup_record *record;
	struct kernfs_node *node;
	__u32 zero = 0;
	void *next;
	__u64 id;

	buffer = bpf_map_lookup_elem(&cgroups_buffer, &zero);
	if (!buffer || !control)
		return used;
	id = cgroup_id_at(cgroup);
	emitted = bpf_map_lookup_elem(&emitted_cgroups, &id);
	if (emitted && emitted->pass == control->pass && emitted->tid != tid)
		return used;
	if (cfg.walks)
		hint_cgroup(address, group, address_of(emitted));
	record = (void *)buffer->bytes + (used & (CGROUPS_BYTES - 1));
	record->head.kind = RECORD_CGROUP;
	record->head.size = sizeof(*record);
	record->id = id;
	record->parent = cgroup_id_at(cgroup_parent_at(cgroup));
	fill_limit(record, (void *)group);
	fill_cgroup_memory(record, cgroup);
	used += sizeof(*record);
	next = record + 1;
	if (!cfg.cgroup_v1 && bpf_map_lookup_elem(&levels, &id) &&
	    fill_level(next, address, id)) {
		used += sizeof(struct level_record);
		next += sizeof(struct level_record);
	}

	fresh.pass = control->pass;
	fresh.session = control->session;
	fresh.named_pass = emitted ? emitted->named_pass : 0;
	if (!emitted || emitted->session != control->session ||
	    emitted->named_pass == control->pass) {
		name = next;
		name->head.kind = RECORD_CGROUP_NAME;
		name->head.size = sizeof(*name);
		name->id = id;
		node = READ_WORD(cgroup->kn);
		bpf_probe_read_kernel_str(name->name, sizeof(name->name), READ_WORD(node->name));
		used += sizeof(*name);
		fresh.named_pass = control->pass;
	}
	if (emitted)
		*emitted = fresh;
	else
		bpf_map_update_elem(&emitted_cgroups, &id, &fresh, BPF_ANY);
	return used;
}

/* Fills the buffer with the records of the cgroups of the task at `address`, from its own up
 * to the root. If one was already emitted, so were its ancestors. Returns the length of
 * the records. */
ONCE __u32 fill_cgroups(__u64 address)
{
	struct task_struct *task = (void *)address;
	struct cgroup *cgroup = task_cgroup_at(task);
	struct task_group *group = task_group_at(task), *own;
	__u32 tid = (__u32)READ_WORD(task->pid), used = 0, before;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			return used;
		own = NULL;
		if (group && READ_WORD(group->css.cgroup) == cgroup) {
			own = group;
			group = READ_WORD(group->parent);
		}
		before = used;
		used = fill_cgroup((__u64)cgroup, (__u64)own, tid, used);
		if (used == before)
			return used;
		cgroup = cgroup_parent_at(cgroup);
	}
	if (cgroup)
		count_drop(DROP_CGROUP_DEPTH);
	return used;
}

static __always_inline void emit_cgroups(struct output *out, struct task_struct *task)
{
	struct cgroups_buffer *buffer;
	__u32 zero = 0, size = fill_cgroups(address_of(task));

	buffer = bpf_map_lookup_elem(&cgroups_buffer, &zero);
	/* The verifiers of 5.10 and 6.1 track the bounds of a register, not of its copy on
	 * the stack. */
	barrier_var(size);
	if (buffer && size && size <= CGROUPS_BYTES)
		emit(out, buffer, size);
}

/* Emits the task's cgroups, unless the previous task was in the same cgroup. Returns the
 * id of the task's cgroup. */
static __always_inline __u64 emit_own_cgroups(struct output *out, struct task_struct *task,
					      struct pass_cache *cache)
{
	struct cgroup *cgroup = task_cgroup(task);

	/* A walk visits a thread once. */
	if (cache->cgroup != (__u64)cgroup ||
	    (!cfg.walks && cache->cgroup_tid == (__u32)task->pid)) {
		cache->cgroup = (__u64)cgroup;
		cache->cgroup_id = cgroup_id(cgroup);
		cache->cgroup_tid = task->pid;
		emit_cgroups(out, task);
	}
	return cache->cgroup_id;
}

#endif
