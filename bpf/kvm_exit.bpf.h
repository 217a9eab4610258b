/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decodes a VM exit, as the tracepoint kvm_exit reports it. Its arguments changed between
 * v5.15 and v6.1, and the location of the exit reason with the kernel and the vendor.
 */
#ifndef VIRTLENS_KVM_EXIT_BPF_H
#define VIRTLENS_KVM_EXIT_BPF_H

#include "compat.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* In v6.12 the field is in vcpu_vmx itself, in v7.2 in struct vcpu_vt, which TDX uses
 * too. */
struct vcpu_vmx___own {
	union vmx_exit_reason exit_reason;
};

#pragma clang attribute pop

/* A VM exit, as reported by the tracepoint kvm_exit. */
struct kvm_exit {
	struct kvm_vcpu *vcpu;
	__u32 reason;
	bool is_svm;
	/* Whether `reason` is known. */
	bool is_known;
};

/* arch/x86/kvm/trace.h: the `isa` argument on AMD; 1 is Intel. */
#define KVM_ISA_SVM 2

/* The tracepoint's arguments in v5.10 and v5.15: (reason, vcpu, isa). */
static __always_inline void read_exit_of_3(struct kvm_exit *exit,
					   struct bpf_raw_tracepoint_args *ctx)
{
	exit->reason = ctx->args[0];
	exit->vcpu = (void *)ctx->args[1];
	exit->is_svm = (__u32)ctx->args[2] == KVM_ISA_SVM;
	exit->is_known = true;
}

/* From v6.1 on: (vcpu, isa). */
static __always_inline void read_exit_of_2(struct kvm_exit *exit,
					   struct bpf_raw_tracepoint_args *ctx)
{
	struct vcpu_vmx___own *vmx_own;
	struct vcpu_vmx *vmx;
	struct vcpu_svm *svm;

	exit->vcpu = (void *)ctx->args[0];
	exit->is_svm = (__u32)ctx->args[1] == KVM_ISA_SVM;
	exit->is_known = true;
	exit->reason = 0;
	svm = (void *)exit->vcpu;
	vmx = (void *)exit->vcpu;
	vmx_own = (void *)exit->vcpu;
	if (exit->is_svm && bpf_core_field_exists(svm->vmcb))
		exit->reason = BPF_CORE_READ(svm, vmcb, control.exit_code);
	else if (!exit->is_svm && bpf_core_field_exists(vmx->vt.exit_reason.full))
		exit->reason = BPF_CORE_READ(vmx, vt.exit_reason.full);
	else if (!exit->is_svm && bpf_core_field_exists(vmx_own->exit_reason.full))
		exit->reason = BPF_CORE_READ(vmx_own, exit_reason.full);
	else
		exit->is_known = false;
}

#endif
