/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Output of a pass over the tasks. An iterator program writes to its seq_file, which the
 * kernel copies twice; the program `walk_tasks` (walk.bpf.c) writes to a map that the agent
 * has mapped. The pass over open files is always an iterator: it writes to its seq_file
 * directly.
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
			       sizeof(struct vm_record) + sizeof(struct halts_record) +
			       16 * (sizeof(struct cgroup_record) +
				     sizeof(struct level_record) +
				     sizeof(struct cgroup_name_record)) <=
		       TASK_OUTPUT_MAX,
	       "the output of a task fits");

/* The destination of a pass: a stream if cfg.walks is set, otherwise a seq_file. The type
 * is incomplete, so that only the functions here can use the pointer. A struct with both
 * pointers would take stack space, and cfg.walks is a constant: the verifier removes the
 * branch of the other kind. */
struct output;

static __always_inline struct output *output_to_seq_file(struct seq_file *seq)
{
	return (struct output *)seq;
}

static __always_inline struct output *output_to_stream(struct stream *stream)
{
	return (struct output *)stream;
}

/* The seq_file of an output, valid without cfg.walks. */
static __always_inline struct seq_file *seq_file_of(struct output *out)
{
	return (struct seq_file *)out;
}

/* The stream of an output, valid with cfg.walks. */
static __always_inline struct stream *stream_of(struct output *out)
{
	return (struct stream *)out;
}

/* Address of the next record of a walk. The mask is for the verifier: the walk stops
 * before that limit. */
static __always_inline void *next_record(struct stream *stream)
{
	return stream->bytes + (stream->used & (STREAM_BYTES - 1));
}

/* Emits a record. */
static __always_inline void emit(struct output *out, const void *record, __u32 size)
{
	struct stream *stream = stream_of(out);

	if (!cfg.walks) {
		bpf_seq_write(seq_file_of(out), record, size);
		return;
	}
	/* A helper call, because the verifier would check a copy loop on each path that
	 * leads here. */
	bpf_probe_read_kernel(next_record(stream), size, record);
	stream->used += size;
}

/* Returns the buffer for a thread's record: in the stream itself, so that it is written
 * once, or a scratch buffer. emit_reserved emits it. */
static __always_inline struct thread_buffer *reserve_thread(struct output *out)
{
	__u32 zero = 0;

	if (cfg.walks)
		return next_record(stream_of(out));
	return bpf_map_lookup_elem(&thread_buffer, &zero);
}

/* Emits the first `size` bytes of the reserved buffer. */
static __always_inline void emit_reserved(struct output *out, struct thread_buffer *buffer,
					  __u32 size)
{
	if (cfg.walks)
		stream_of(out)->used += size;
	else
		bpf_seq_write(seq_file_of(out), buffer, size);
}

#endif
