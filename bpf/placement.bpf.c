/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Migrations of vCPUs between pCPUs. The kernel calls the tracepoint before it migrates a
 * thread, and only migrates threads that are not running: their CPU time is final and
 * belongs to the pCPU that they leave (set_task_cpu, kernel/sched/core.c). So the CPU
 * time per pCPU is exact without a program at each context switch.
 *
 * This runs for every thread migration of the host, with a run queue locked.
 */
#include "placement.bpf.h"

/* Topology of each CPU; as many entries as an affinity mask has bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MASK_WORDS_MAX * 64);
	__type(key, __u32);
	__type(value, struct cpu_place);
} places SEC(".maps");

static __always_inline __u32 distance(__u32 from, __u32 to)
{
	struct cpu_place *a = bpf_map_lookup_elem(&places, &from);
	struct cpu_place *b = bpf_map_lookup_elem(&places, &to);

	if (!a || !b || !a->core || !b->core)
		return DISTANCE_UNKNOWN;
	if (a->core == b->core)
		return DISTANCE_SMT;
	if (a->llc && a->llc == b->llc)
		return DISTANCE_CORE;
	if (!a->node || !b->node)
		return DISTANCE_UNKNOWN;
	if (a->node != b->node)
		return DISTANCE_NUMA;
	return a->llc && b->llc ? DISTANCE_LLC : DISTANCE_UNKNOWN;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int dest_cpu)
{
	struct thread_state *state = state_or_miss(task);
	struct vm *vm;
	__u32 tgid, class;

	if (!state || !state->vcpu || !is_active())
		return 0;
	charge_pcpu(task, state);
	tgid = state->owner.tgid;
	vm = bpf_map_lookup_elem(&vms, &tgid);
	class = distance(task_pcpu(task), dest_cpu);
	if (vm && class < DISTANCES)
		__sync_fetch_and_add(&vm->moves[class], 1);
	return 0;
}
