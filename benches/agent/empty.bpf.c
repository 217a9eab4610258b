/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program that does nothing: the kernel's own cost to run a program at each migration.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>

SEC("tp_btf/sched_migrate_task")
int empty(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
