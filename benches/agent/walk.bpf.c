/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A pass that does nothing: what the kernel itself takes to go from one task to
 * the next. It counts, so that it can be seen to have run.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>

__u64 seen = 0;

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	if (ctx->task)
		seen += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
