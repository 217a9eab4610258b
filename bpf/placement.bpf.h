/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The CPU time of a vCPU per pCPU, and the CPU topology that a guest sees in CPUID.
 */
#ifndef VIRTLENS_PLACEMENT_BPF_H
#define VIRTLENS_PLACEMENT_BPF_H

#include "stream.bpf.h"
#include "thread_state.bpf.h"

/* CPU time of each vCPU on each pCPU that it has used. The agent sets the size by the
 * host's CPUs and removes former VMs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct residency_key);
	__type(value, __u64);
} residency SEC(".maps");

/* Buffer for a guest's CPUID leaves. */
struct cpuid_buffer {
	struct cpuid_record record;
	struct cpuid_leaf leaves[CPUID_LEAVES_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpuid_buffer);
} cpuid_buffer SEC(".maps");
_Static_assert(sizeof(struct cpuid_buffer) <= RECORD_MAX, "the largest record fits");

/* Charges the pCPU of `task` with the CPU time that the vCPU used since the last charge.
 * Charges of one thread never overlap: it is migrated, exits, or has exited. */
static __always_inline void charge_pcpu(struct task_struct *task, struct thread_state *state)
{
	__u64 run_ns = task->se.sum_exec_runtime, used_ns = run_ns - state->placed_ns, *sum;
	struct residency_key key = { .owner = state->owner, .vcpu_id = state->vcpu_id };

	if (!state->vcpu || !used_ns)
		return;
	key.pcpu = task_pcpu(task);
	state->placed_ns = run_ns;
	sum = bpf_map_lookup_elem(&residency, &key);
	if (sum)
		__sync_fetch_and_add(sum, used_ns);
	else if (bpf_map_update_elem(&residency, &key, &used_ns, BPF_NOEXIST))
		count_drop(DROP_RESIDENCY_FULL);
}

/* Emits a guest's CPUID leaves once per session, for its first vCPU only: the others
 * differ only in their APIC id, which is their vcpu_id. KVM may replace the leaves
 * without RCU (kvm_set_cpuid, arch/x86/kvm/cpuid.c), though not once the vCPU has run, so
 * the agent validates the copy. */
static __always_inline void emit_cpuid(struct output *out, struct thread_state *state,
				       const struct control *control)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)state->vcpu;
	struct cpuid_buffer *buffer;
	__u32 zero = 0, size;
	void *leaves;

	/* The record of this pass is emitted again for the same task, because the kernel
	 * may have dropped it. */
	if (state->vcpu_idx ||
	    (state->cpuid_session == control->session && state->cpuid_pass != control->pass))
		return;
	buffer = bpf_map_lookup_elem(&cpuid_buffer, &zero);
	size = READ_OR(0, vcpu->arch.cpuid_nent) * sizeof(struct cpuid_leaf);
	leaves = READ_OR(NULL, vcpu->arch.cpuid_entries);
	if (!buffer || !size || size > sizeof(buffer->leaves) || !leaves ||
	    bpf_probe_read_kernel(buffer->leaves, size, leaves))
		return;
	size += sizeof(buffer->record);
	/* The verifiers of 5.10 and 6.1 track the bounds of a register, not of its copy
	 * on the stack. */
	barrier_var(size);
	if (size > sizeof(*buffer))
		return;
	buffer->record.head.kind = RECORD_CPUID;
	buffer->record.head.size = size;
	buffer->record.owner = state->owner;
	emit(out, buffer, size);
	state->cpuid_session = control->session;
	state->cpuid_pass = control->pass;
}

#endif
