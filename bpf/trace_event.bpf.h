/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The traced threads and cgroups, and the events of a trace: how a program reserves and
 * submits one, and how losses are counted.
 */
#ifndef VIRTLENS_TRACE_EVENT_BPF_H
#define VIRTLENS_TRACE_EVENT_BPF_H

#include "compat.bpf.h"
#include "trace_abi.h"

/* The traced threads, one bit per tid. The agent sets those of the VM, and a new thread
 * of a traced process is added at its first wakeup. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} traced_bits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACED_MAX);
	__type(key, __u32);
	__type(value, struct traced);
} traced_threads SEC(".maps");

/* The cgroups whose quotas apply to the VM. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} traced_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} trace_events SEC(".maps");

/* Lost events, including those of threads that `traced_threads` does not have. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} trace_lost SEC(".maps");

static __always_inline __u64 *word_of(__u32 tid)
{
	__u32 word = tid / 64;

	return bpf_map_lookup_elem(&traced_bits, &word);
}

static __always_inline bool is_traced(__u32 tid)
{
	__u64 *word = word_of(tid);

	return word && *word >> tid % 64 & 1;
}

/* v5.10 has no atomic operation except addition. A tid belongs to one thread only, so
 * each bit is set once and cleared once. */
static __always_inline void set_traced(__u32 tid, bool traced)
{
	__u64 *word = word_of(tid), bit = 1ULL << tid % 64;

	if (word)
		__sync_fetch_and_add(word, traced ? bit : -bit);
}

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&trace_lost, &zero);

	if (lost)
		*lost += 1;
}

static __always_inline bool is_guest_event(__u32 kind)
{
	return kind == TRACE_EXIT || kind == TRACE_ENTRY || kind == TRACE_TO_VMM ||
	       kind == TRACE_HALT_END;
}

static __always_inline void count_lost_event(struct traced *thread, __u32 kind)
{
	count_lost();
	if (!thread)
		return;
	if (is_guest_event(kind))
		thread->lost_exits += 1;
	else
		thread->lost_states += 1;
}

/* Reserves an event and fills in the common fields; NULL (counted) if the ring buffer is
 * full. */
static __always_inline struct trace_event *reserve_event(__u32 kind, __u32 tid, __u32 cpu,
							 __u64 time_ns)
{
	struct traced *thread = tid ? bpf_map_lookup_elem(&traced_threads, &tid) : NULL;
	struct trace_event *event = bpf_ringbuf_reserve(&trace_events, sizeof(*event), 0);

	if (!event) {
		count_lost_event(thread, kind);
		return NULL;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = time_ns;
	event->tid = tid;
	event->kind = kind;
	event->cpu = cpu;
	if (thread) {
		event->lost_states = thread->lost_states;
		event->lost_exits = thread->lost_exits;
	}
	return event;
}

/* Submits without a wakeup: the reader polls. */
static __always_inline void submit_event(struct trace_event *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif
