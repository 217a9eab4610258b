/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * KVM's types, as in kernel.bpf.h: include/linux/kvm_host.h,
 * arch/x86/include/asm/kvm_host.h.
 */
#ifndef VIRTLENS_KVM_BPF_H
#define VIRTLENS_KVM_BPF_H

#include "kernel.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kvm_memory_slot {
	unsigned long npages;
	unsigned long userspace_addr;
	__u32 flags;
	struct {
		struct file *file;
	} gmem;
	struct hlist_node id_node[2];
};
struct kvm_memslots {
	__u64 generation;
	struct hlist_head id_hash[128];
	int node_idx;
};
struct kvm_arch {
	/* Its type, struct kvm_pit, is defined inside KVM only. */
	void *vpit;
};
struct kvm_vm_stat_generic {
	__u64 remote_tlb_flush;
};
struct kvm_vm_stat {
	struct kvm_vm_stat_generic generic;
	/* Entries of KVM's page tables for 4 KiB, 2 MiB and 1 GiB. */
	atomic_long_t pages[3];
	__u64 nx_lpage_splits;
};
struct kvm {
	struct mm_struct *mm;
	struct {
		int counter;
	} online_vcpus;
	struct {
		struct {
			int counter;
		} refs;
	} users_count;
	struct kvm_memslots *memslots[1];
	struct mmu_notifier mmu_notifier;
	struct xarray vcpu_array;
	struct kvm_vm_stat stat;
	struct kvm_arch arch;
};
struct preempt_notifier {
	struct hlist_node link;
};
struct kvm_vcpu_stat_generic {
	__u64 halt_successful_poll;
	__u64 halt_attempted_poll;
	__u64 halt_poll_invalid;
	__u64 halt_wakeup;
	__u64 halt_poll_success_ns;
	__u64 halt_poll_fail_ns;
	__u64 halt_wait_ns;
	__u64 halt_poll_success_hist[32];
	__u64 halt_poll_fail_hist[32];
	__u64 halt_wait_hist[32];
};
struct kvm_vcpu_stat {
	struct kvm_vcpu_stat_generic generic;
	__u64 pf_taken;
	__u64 pf_fixed;
	__u64 exits;
	__u64 io_exits;
	__u64 mmio_exits;
	__u64 irq_window_exits;
	__u64 nmi_window_exits;
	__u64 halt_exits;
	__u64 irq_exits;
	__u64 hypercalls;
	__u64 directed_yield_attempted;
	__u64 directed_yield_successful;
	__u64 preemption_reported;
};
struct kvm_vcpu_arch {
	int cpuid_nent;
	void *cpuid_entries;
};
struct kvm_vcpu {
	struct kvm *kvm;
	struct preempt_notifier preempt_notifier;
	int vcpu_id;
	int vcpu_idx;
	struct pid *pid;
	bool preempted;
	unsigned int halt_poll_ns;
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
};

/* arch/x86/include/asm/svm.h, arch/x86/kvm/svm/svm.h: kvm_vcpu is the first member, as
 * KVM itself asserts. */
struct vmcb_control_area {
	__u32 exit_code;
};
struct vmcb {
	struct vmcb_control_area control;
};
struct vcpu_svm {
	struct vmcb *vmcb;
};
/* arch/x86/kvm/vmx/vmx.h, common.h: likewise. */
union vmx_exit_reason {
	__u32 full;
};
struct vcpu_vt {
	union vmx_exit_reason exit_reason;
};
struct vcpu_vmx {
	struct vcpu_vt vt;
};

#pragma clang attribute pop

#endif
