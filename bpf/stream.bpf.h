/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How a pass tells: by the stream of its iterator, which the kernel copies twice, or,
 * where the pass walks by itself (walk.bpf.c), in a map that the agent has mapped.
 */
#ifndef VIRTLENS_STREAM_BPF_H
#define VIRTLENS_STREAM_BPF_H

#include "maps.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream);
} stream SEC(".maps");

/* A thread on its way to the stream: one write of what lies one behind the
 * other costs less than three. Without a vCPU the mask takes its place. */
struct thread_buffer {
	struct thread_record thread;
	struct vcpu_record vcpu;
	__u64 mask[MASK_WORDS_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread_buffer);
} thread_buffer SEC(".maps");

_Static_assert(sizeof(struct cpuid_buffer) <= RECORD_MAX, "leaves find room");
_Static_assert(sizeof(struct memory_buffer) <= RECORD_MAX, "memslots find room");

/* What one task tells at most: a walk stops where there is less room. */
#define TASK_TELLS_MAX (64 << 10)
_Static_assert(2 * RECORD_MAX + sizeof(struct memory_record) + sizeof(struct thread_buffer) +
			       16 * (sizeof(struct cgroup_record) +
				     sizeof(struct cgroup_name_record)) <=
		       TASK_TELLS_MAX,
	       "a task finds room");

/* Where a walk tells next. The mask is for the verifier: it stops before that. */
static __always_inline void *next_place(struct stream *to)
{
	return to->bytes + (to->used & (STREAM_BYTES - 1));
}

/* Tells a record: `out` is the iterator's `struct seq_file`, or `struct stream`. */
static __always_inline void tell(void *out, const void *record, __u32 size)
{
	struct stream *to = out;

	if (!cfg.walks) {
		bpf_seq_write(out, record, size);
		return;
	}
	/* A call: single words are verified on each way that leads here. */
	bpf_probe_read_kernel(next_place(to), size, record);
	to->used += size;
}

/* Where a thread is written, to be told by tell_thread_in. */
static __always_inline struct thread_buffer *thread_room(void *out)
{
	__u32 zero = 0;

	return cfg.walks ? next_place(out) : bpf_map_lookup_elem(&thread_buffer, &zero);
}

static __always_inline void tell_thread_in(void *out, struct thread_buffer *buffer, __u32 size)
{
	struct stream *to = out;

	if (cfg.walks)
		to->used += size;
	else
		bpf_seq_write(out, buffer, size);
}

#endif
