/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Output of a pass. An iterator program writes to its seq_file, which the kernel copies
 * twice; the program `walk_tasks` (walk.bpf.c) writes to a map that the agent has mapped.
 */
#ifndef VIRTLENS_STREAM_BPF_H
#define VIRTLENS_STREAM_BPF_H

#include "maps.bpf.h"
#include "memory_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream);
} stream SEC(".maps");

/* Buffer for a thread's record: one write of contiguous parts costs less than three.
 * Without a vCPU the mask follows `thread` directly. */
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

/* Maximum output of one task, bytes: a walk stops if less space is left. */
#define TASK_OUTPUT_MAX (64 << 10)
_Static_assert(2 * RECORD_MAX + sizeof(struct memory_record) + sizeof(struct thread_buffer) +
			       16 * (sizeof(struct cgroup_record) +
				     sizeof(struct cgroup_name_record)) <=
		       TASK_OUTPUT_MAX,
	       "the output of a task fits");

/* Address of the next record of a walk. The mask is for the verifier: the walk stops
 * before that limit. */
static __always_inline void *next_record(struct stream *to)
{
	return to->bytes + (to->used & (STREAM_BYTES - 1));
}

/* Emits a record: `out` is the iterator's `struct seq_file`, or `struct stream`. */
static __always_inline void emit(void *out, const void *record, __u32 size)
{
	struct stream *to = out;

	if (!cfg.walks) {
		bpf_seq_write(out, record, size);
		return;
	}
	/* A helper call, because the verifier would check a copy loop on each path that
	 * leads here. */
	bpf_probe_read_kernel(next_record(to), size, record);
	to->used += size;
}

/* Returns the buffer for a thread's record; emit_reserved emits it. */
static __always_inline struct thread_buffer *reserve_thread(void *out)
{
	__u32 zero = 0;

	return cfg.walks ? next_record(out) : bpf_map_lookup_elem(&thread_buffer, &zero);
}

static __always_inline void emit_reserved(void *out, struct thread_buffer *buffer, __u32 size)
{
	struct stream *to = out;

	if (cfg.walks)
		to->used += size;
	else
		bpf_seq_write(out, buffer, size);
}

#endif
