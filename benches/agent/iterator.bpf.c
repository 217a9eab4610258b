/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Passes that only count: the kernel's own cost to iterate over all tasks, or all open
 * files. */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static int count(const void *object)
{
	__u32 zero = 0;
	__u64 *objects = bpf_map_lookup_elem(&seen, &zero);

	if (object && objects)
		*objects += 1;
	return 0;
}

SEC("iter/task")
int count_tasks(struct bpf_iter__task *ctx)
{
	return count(ctx->task);
}

SEC("iter/task_file")
int count_files(struct bpf_iter__task_file *ctx)
{
	return count(ctx->file);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
