/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads further values of the cgroups that can have a limit: their pressure
 * and the events of their memory.
 */
#ifndef VIRTLENS_LEVEL_RECORD_BPF_H
#define VIRTLENS_LEVEL_RECORD_BPF_H

#include "cgroup.bpf.h"
#include "stream.bpf.h"

/* Number of words that can be copied from the start of mem_cgroup.memory_events: v5.10 has
 * as many, later kernels more. A power of 2, so that the verifier accepts an index. */
#define MEMCG_WORDS 8

/* The count of an event among the words of mem_cgroup.memory_events. */
#define MEMCG_EVENT(words, event)                                                   \
	(words)[bpf_core_enum_value(enum memcg_memory_event, event) & (MEMCG_WORDS - 1)]

/* Buffer for copies of the kernel's counters. */
struct level_buffer {
	__u64 psi[PSI_WORDS];
	__u64 events[MEMCG_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct level_buffer);
} level_buffer SEC(".maps");

static __always_inline void fill_pressure(struct level_record *record,
					  struct level_buffer *buffer, __u64 cgroup)
{
	__u64 group = psi_of(cgroup), *stalled = record->stalled_ns;

	for (int state = 0; state < PRESSURES; state++)
		stalled[state] = UNKNOWN;
	/* One helper call for all states. The first array is PSI_AVGS, the sums that the
	 * pressure files show. */
	if (!group ||
	    bpf_probe_read_kernel(buffer->psi, sizeof(buffer->psi),
				  (const void *)(group +
						 bpf_core_field_offset(struct psi_group, total))))
		return;
	stalled[PRESSURE_CPU_SOME] = PSI_TOTAL(buffer->psi, PSI_CPU_SOME);
	stalled[PRESSURE_CPU_FULL] = PSI_TOTAL(buffer->psi, PSI_CPU_FULL);
	stalled[PRESSURE_MEMORY_SOME] = PSI_TOTAL(buffer->psi, PSI_MEM_SOME);
	stalled[PRESSURE_MEMORY_FULL] = PSI_TOTAL(buffer->psi, PSI_MEM_FULL);
	stalled[PRESSURE_IO_SOME] = PSI_TOTAL(buffer->psi, PSI_IO_SOME);
	stalled[PRESSURE_IO_FULL] = PSI_TOTAL(buffer->psi, PSI_IO_FULL);
	stalled[PRESSURE_IRQ_FULL] = PSI_TOTAL(buffer->psi, PSI_IRQ_FULL);
}

static __always_inline void fill_memory_events(struct level_record *record,
					       struct level_buffer *buffer, __u64 cgroup)
{
	struct mem_cgroup *memory = cgroup_memory_at((void *)cgroup);
	__u64 *counts = record->memory_events;

	for (int event = 0; event < MEMORY_EVENTS; event++)
		counts[event] = UNKNOWN;
	if (!memory || !bpf_core_enum_value_exists(enum memcg_memory_event, MEMCG_OOM_KILL))
		return;
	/* One helper call for all events. */
	if (bpf_probe_read_kernel(
		    buffer->events, sizeof(buffer->events),
		    (void *)memory + bpf_core_field_offset(struct mem_cgroup, memory_events)))
		return;
	counts[MEMORY_EVENT_HIGH] = MEMCG_EVENT(buffer->events, MEMCG_HIGH);
	counts[MEMORY_EVENT_MAX] = MEMCG_EVENT(buffer->events, MEMCG_MAX);
	counts[MEMORY_EVENT_OOM] = MEMCG_EVENT(buffer->events, MEMCG_OOM);
	counts[MEMORY_EVENT_OOM_KILL] = MEMCG_EVENT(buffer->events, MEMCG_OOM_KILL);
}

/* Fills in the level record of the cgroup at an address. Returns false if the buffer cannot
 * be found. */
static __always_inline bool fill_level(struct level_record *record, __u64 cgroup, __u64 id)
{
	struct level_buffer *buffer;
	__u32 zero = 0;

	buffer = bpf_map_lookup_elem(&level_buffer, &zero);
	if (!buffer)
		return false;
	record->head.kind = RECORD_LEVEL;
	record->head.size = sizeof(*record);
	record->id = id;
	fill_pressure(record, buffer, cgroup);
	fill_memory_events(record, buffer, cgroup);
	return true;
}

#endif
