/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * KVM's counters of a vCPU: read while its thread lives, and when the thread exits.
 */
#ifndef VIRTLENS_VCPU_BPF_H
#define VIRTLENS_VCPU_BPF_H

#include "thread_state.bpf.h"
#include "record_abi.h"

/* vCPUs whose threads have exited, until the agent removes their VMs: 64 VMs of 64
 * vCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct vcpu_key);
	__type(value, struct vcpu_record);
} ended_vcpus SEC(".maps");

/* Bytes from the first of KVM's x86 counters to beyond the last: see STAT_OFFSET. */
#define STAT_SPAN 256

/* Buffer for a value of `ended_vcpus`, which is too large for the stack. Threads do not
 * exit in interrupts, and a CPU does not start a raw tracepoint program that it is
 * already running (kernel/trace/bpf_trace.c: __bpf_trace_run; before v6.1 the program
 * cannot be preempted there). */
struct ended_buffer {
	struct vcpu_record record;
	__u64 span[STAT_SPAN / 8];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ended_buffer);
} ended_buffer SEC(".maps");

/* Whether the vCPU at `vcpu` is alive and `task` was the last thread to run it. Data read
 * through `vcpu` is valid only if this returns true. */
static __always_inline bool runs_vcpu(struct task_struct *task, struct kvm_vcpu *vcpu)
{
	struct pid *pid = NULL;

	if (!vcpu)
		return false;
	if (bpf_rdonly_cast)
		pid = CAST_READ(vcpu, kvm_vcpu, pid);
	else
		bpf_core_read(&pid, sizeof(pid), &vcpu->pid);
	return pid && pid == FOLLOW(task->thread_pid);
}

/* The x86 counters are contiguous (struct kvm_vcpu_stat, after the generic ones). Where
 * each read needs a helper call, one call reads the span from the first counter to beyond
 * the last. */
#define STAT_OFFSET(field) bpf_core_field_offset(struct kvm_vcpu, stat.field)

/* Reads one counter from the span, or with a separate call where a kernel has it outside
 * the span. */
#define STAT(span, start, vcpu, field)                                         \
	(bpf_rdonly_cast ? (__u64)CAST_READ(vcpu, kvm_vcpu, stat.field) :           \
	 STAT_OFFSET(field) >= (start) && STAT_OFFSET(field) - (start) <= STAT_SPAN - 8 ? \
		 *(__u64 *)((void *)(span) + (STAT_OFFSET(field) - (start))) : \
		 READ_OR(UNKNOWN, (vcpu)->stat.field))

/* `span` is a buffer of STAT_SPAN bytes that is not on the stack: old verifiers limit the
 * stack of all functions together to 512 bytes. */
static __always_inline void fill_counters(struct vcpu_record *record, struct kvm_vcpu *vcpu,
					  __u64 *span)
{
	const __u32 start = HAS_PF_TAKEN(vcpu) ? STAT_OFFSET(pf_taken) :
									 STAT_OFFSET(pf_fixed);
	struct halt_stats halts;

	record->exits = UNKNOWN;
	if (!bpf_rdonly_cast && bpf_probe_read_kernel(span, STAT_SPAN, (void *)vcpu + start))
		return;
	read_halts(&halts, vcpu);
	record->halt_poll_success_ns = halts.poll_success_ns;
	record->halt_poll_fail_ns = halts.poll_fail_ns;
	record->halt_wait_ns = halts.wait_ns;
	record->halt_wakeups = halts.wakeups;
	record->polls_attempted = halts.polls_attempted;
	record->polls_successful = halts.polls_successful;
	record->polls_invalid = halts.polls_invalid;
	record->exits = STAT(span, start, vcpu, exits);
	record->io_exits = STAT(span, start, vcpu, io_exits);
	record->mmio_exits = STAT(span, start, vcpu, mmio_exits);
	record->halt_exits = STAT(span, start, vcpu, halt_exits);
	record->irq_exits = STAT(span, start, vcpu, irq_exits);
	record->irq_window_exits = STAT(span, start, vcpu, irq_window_exits);
	record->hypercalls = STAT(span, start, vcpu, hypercalls);
	record->pf_fixed = STAT(span, start, vcpu, pf_fixed);
	record->pf_taken = UNKNOWN;
	if (HAS_PF_TAKEN(vcpu))
		record->pf_taken = STAT(span, start, vcpu, pf_taken);
	record->yields_attempted = record->yields_successful = UNKNOWN;
	if (HAS_YIELDS(vcpu)) {
		record->yields_attempted = STAT(span, start, vcpu, directed_yield_attempted);
		record->yields_successful = STAT(span, start, vcpu, directed_yield_successful);
	}
	record->preemptions_reported = UNKNOWN;
	if (HAS_PREEMPTIONS(vcpu))
		record->preemptions_reported = STAT(span, start, vcpu, preemption_reported);
}

/* Resets the state of a thread whose vCPU was replaced by a new one at the same address:
 * the VM was created again, and KVM counts from zero. */
static __always_inline void reset_vcpu(struct thread_state *state, struct kvm_vcpu *vcpu)
{
	state->other_exits = 0;
	state->cpuid_session = 0;
	state->slots_session = 0;
	state->pit = 0;
	state->vcpu_id = READ_OR(~0U, vcpu->vcpu_id);
	state->vcpu_idx = READ_OR(~0U, vcpu->vcpu_idx);
}

/* Makes the number of unclassified exits monotonic. KVM increments `exits` before the
 * counter of the exit's kind (vcpu_enter_guest, arch/x86/kvm/x86.c). A reader between the
 * two, while the vCPU is preempted there, sees one unclassified exit too many. So the
 * thread state keeps the highest number emitted. It is at most one exit too high, until
 * the next unclassified exit. */
static __always_inline void keep_other_exits(struct vcpu_record *record, struct thread_state *state,
					     struct kvm_vcpu *vcpu)
{
	const __u64 counts[] = { record->io_exits,	   record->mmio_exits,
				 record->halt_exits,	   record->irq_exits,
				 record->irq_window_exits, record->hypercalls };
	__u64 kinds = 0;

	if (record->exits == UNKNOWN)
		return;
	for (int kind = 0; kind < 6; kind++) {
		if (counts[kind] == UNKNOWN) {
			record->exits = UNKNOWN;
			return;
		}
		kinds += counts[kind];
	}
	if (kinds < state->kinds)
		reset_vcpu(state, vcpu);
	state->kinds = kinds;
	if (record->exits > kinds && record->exits - kinds > state->other_exits)
		state->other_exits = record->exits - kinds;
	record->exits = kinds + state->other_exits;
}

/* Stores the counters of the vCPU that `task` ran, when the thread exits: KVM frees them
 * with the VM's last thread. The VM still exists here, because the thread has not closed
 * its files yet (do_exit, kernel/exit.c). */
static __always_inline void store_counters(struct task_struct *task, struct thread_state *state)
{
	struct vcpu_key key = { .owner = state->owner, .vcpu_id = state->vcpu_id };
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)state->vcpu;
	struct ended_buffer *buffer;
	__u32 zero = 0;

	if (!runs_vcpu(task, vcpu))
		return;
	buffer = bpf_map_lookup_elem(&ended_buffer, &zero);
	if (!buffer)
		return;
	buffer->record.id = state->vcpu_id;
	buffer->record.instance = state->vcpu;
	fill_counters(&buffer->record, vcpu, buffer->span);
	keep_other_exits(&buffer->record, state, vcpu);
	if (bpf_map_update_elem(&ended_vcpus, &key, &buffer->record, BPF_ANY))
		count_drop(DROP_ENDED_VCPUS_FULL);
}

#endif
