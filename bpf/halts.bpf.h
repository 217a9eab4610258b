/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * KVM's histograms of halts: twelve more cache lines per vCPU, so they are emitted on request
 * only.
 */
#ifndef VIRTLENS_HALTS_BPF_H
#define VIRTLENS_HALTS_BPF_H

#include "stream.bpf.h"
#include "vcpu.bpf.h"

_Static_assert(sizeof(((struct kvm_vcpu_stat_generic *)0)->halt_wait_hist) ==
		       HALT_BUCKETS * sizeof(__u64),
	       "a histogram has HALT_BUCKETS counts");

/* Buffer for a record, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct halts_record);
} halts_buffer SEC(".maps");

/* Copies a histogram; its counts are UNKNOWN if they cannot be read. */
#define COPY_HISTOGRAM(record, kind, vcpu, field)                                   \
	if (bpf_core_read((record)->counts[kind], sizeof((record)->counts[kind]),   \
			  &(vcpu)->stat.generic.field))                             \
	__builtin_memset((record)->counts[kind], 0xff, sizeof((record)->counts[kind]))

/* Emits the histograms of the vCPU of a thread, which must be valid (runs_vcpu). */
static __noinline void emit_halts(struct output *out, const struct thread_state *state)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)state->vcpu;
	struct halts_record *record;
	__u32 zero = 0;

	if (!HAS_HALT_HISTOGRAMS(vcpu))
		return;
	record = bpf_map_lookup_elem(&halts_buffer, &zero);
	if (!record)
		return;
	record->head.kind = RECORD_HALTS;
	record->head.size = sizeof(*record);
	record->owner = state->owner;
	record->instance = state->vcpu;
	record->vcpu_id = state->vcpu_id;
	COPY_HISTOGRAM(record, HALT_POLL_SUCCESS, vcpu, halt_poll_success_hist);
	COPY_HISTOGRAM(record, HALT_POLL_FAIL, vcpu, halt_poll_fail_hist);
	COPY_HISTOGRAM(record, HALT_WAIT, vcpu, halt_wait_hist);
	emit(out, record, sizeof(*record));
}

#endif
