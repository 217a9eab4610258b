/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the VMs of a process by its address space. KVM registers a notifier for the mm that
 * created a VM, embedded in the VM itself (kvm_init_mmu_notifier, virt/kvm/kvm_main.c):
 *
 *   mm_struct ── notifier_subscriptions ──► list of mmu_notifier ──► struct kvm
 *
 * So a VM is found also while its vCPUs are in user space, are paused or have never run.
 * Other users of notifiers, such as RDMA and GPU drivers, embed them in other structures: it
 * is a VM if the structure's `mm` is this mm, and its first vCPU refers back to it.
 */
#ifndef VIRTLENS_VM_OF_MM_BPF_H
#define VIRTLENS_VM_OF_MM_BPF_H

#include "hints.bpf.h"
#include "stream.bpf.h"
#include "vm.bpf.h"

/* Maximum number of notifiers of an address space that are looked at. A VM has one, or two if
 * it tracks guest page tables for a GPU; a device adds one. */
#define NOTIFIERS_MAX 16

/* Whether a file of a vCPU is open: each has a reference to its VM, and the VM's own file has
 * one (kvm_create_vm, create_vcpu_fd, virt/kvm/kvm_main.c). A VMM that closes its vCPUs has
 * ended its VM, even if it keeps the VM's file. */
static __always_inline bool is_used(__u64 kvm)
{
	return (__s32)word_at(kvm + bpf_core_field_offset(struct kvm, users_count.refs.counter)) > 1;
}

/* Adds KVM's counts of the page tables of the VM at `kvm`. */
static __always_inline void add_mmu_stats(struct mmu_stats *sum, __u64 kvm)
{
	__u64 pages = kvm + bpf_core_field_offset(struct kvm, stat.pages);
	struct kvm *typed = NULL;

	if (HAS_PAGES_BY_SIZE(typed)) {
		sum->pages[0] += word_at(pages);
		sum->pages[1] += word_at(pages + 8);
		sum->pages[2] += word_at(pages + 16);
	} else {
		sum->pages[0] = sum->pages[1] = sum->pages[2] = UNKNOWN;
	}
	sum->nx_splits += word_at(kvm + bpf_core_field_offset(struct kvm, stat.nx_lpage_splits));
	sum->tlb_flushes += tlb_flushes_of(kvm);
}

/* Number of vCPUs of the VMs of the address space at `mm`; 0 if it has no VM with vCPUs.
 * Stores the sums of their counts and the address of the last one in the cache: before v5.12 a
 * global function cannot take a pointer. */
ONCE __u32 vcpus_of_mm(__u64 mm)
{
	__u64 list = notifiers_of(mm), link, kvm;
	struct pass_cache *cache;
	__u32 vcpus = 0, zero = 0;

	cache = bpf_map_lookup_elem(&pass_cache, &zero);
	if (!list || !cache)
		return 0;
	__builtin_memset(&cache->mmu, 0, sizeof(cache->mmu));
	link = word_at(list + bpf_core_field_offset(struct mmu_notifier_subscriptions, list.first));
	for (int seen = 0; seen < NOTIFIERS_MAX && link; seen++) {
		kvm = vm_of_notifier(link);
		if (word_at(kvm + bpf_core_field_offset(struct kvm, mm)) == mm && is_used(kvm) &&
		    word_at(first_vcpu(kvm) + bpf_core_field_offset(struct kvm_vcpu, kvm)) == kvm) {
			vcpus += (__u32)word_at(
				kvm + bpf_core_field_offset(struct kvm, online_vcpus.counter));
			add_mmu_stats(&cache->mmu, kvm);
			cache->kvm = kvm;
		}
		link = word_at(link + bpf_core_field_offset(struct hlist_node, next));
	}
	return vcpus;
}

/* Whether the address space `mm` of `task` belongs to the process of `task`. A child of
 * vfork uses its parent's until it execs another program. */
static __always_inline bool is_own_mm(struct task_struct *task, struct mm_struct *mm)
{
	struct task_struct *owner;

	if (!HAS_OWNER(mm))
		return true;
	owner = FOLLOW(mm->owner);
	return !owner || owner->tgid == task->tgid;
}

/* Records the VM of the process of `task`, if it has one, and emits its number of vCPUs and
 * their migrations, which are in the entry that add_vm returns. Called for the first thread of
 * a process that has an address space. */
static __noinline void visit_mm(struct output *out, struct task_struct *task,
				const struct control *control, struct pass_cache *cache)
{
	struct vm_record record = { .head = { RECORD_VM, sizeof(record) } };
	struct mm_struct *mm = FOLLOW(task->mm);
	struct vm *vm;

	if (!mm || !FOLLOW(mm->notifier_subscriptions))
		return;
	record.vcpus = vcpus_of_mm(address_of(mm));
	if (!record.vcpus || !is_own_mm(task, mm))
		return;
	record.mmu = cache->mmu;
	vm_owner(task, &record.owner);
	vm = add_vm(task, &record.owner, control);
	if (cfg.walks)
		hint_vm(address_of(mm), address_of(vm));
	for (int class = 0; class < DISTANCES; class++)
		record.moves[class] = vm ? vm->moves[class] : UNKNOWN;
	emit(out, &record, sizeof(record));
}

#endif
