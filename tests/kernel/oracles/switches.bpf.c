/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Residency of one thread from every context switch, to check the agent, which does not
 * trace switches. At a switch the CPU time of the thread that leaves is final
 * (__schedule, kernel/sched/core.c).
 */
#include "compat.bpf.h"

const volatile __s32 watched_tid = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, __u64);
} ran_ns SEC(".maps");

__u64 seen_ns = 0;

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 pcpu = bpf_get_smp_processor_id();
	__u64 run_ns, *sum;

	if (prev->pid != watched_tid)
		return 0;
	run_ns = prev->se.sum_exec_runtime;
	sum = bpf_map_lookup_elem(&ran_ns, &pcpu);
	if (sum && seen_ns)
		*sum += run_ns - seen_ns;
	seen_ns = run_ns;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
