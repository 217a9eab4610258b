/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One accessor for each difference between kernels that matters to these programs, except
 * the layouts of the tracepoint kvm_exit (kvm_exit.bpf.h). They test the kernel's type
 * information (BTF), never its version; the versions in comments say where a difference
 * comes from.
 */
#ifndef VIRTLENS_COMPAT_BPF_H
#define VIRTLENS_COMPAT_BPF_H

#include "read.bpf.h"
#include "abi.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Before v5.16 x86 had the field in task_struct: bcf9033e5449 ("sched: move CPU field
 * back into thread_info if THREAD_INFO_IN_TASK=y"). */
struct task_struct___cpu {
	unsigned int cpu;
};

/* Before v5.14: 2f064a59a11f ("sched: Change task_struct::state"). */
struct task_struct___state {
	volatile long state;
};

/* Before v5.14 the halt polling counters were in kvm_vcpu_stat itself: 0193cc908b5a
 * ("KVM: stats: Separate generic stats from architecture specific ones"). */
struct kvm_vcpu_stat___flat {
	__u64 halt_successful_poll;
	__u64 halt_attempted_poll;
	__u64 halt_poll_invalid;
	__u64 halt_wakeup;
	__u64 halt_poll_success_ns;
	__u64 halt_poll_fail_ns;
};
struct kvm_vm_stat___flat {
	__u64 remote_tlb_flush;
};

/* Since v6.4 kernel workers can be threads of a user process: 54e6842d0775 ("fork/vm:
 * Move common PF_IO_WORKER behavior to new flag"). The bit was another flag before. */
struct kernel_clone_args {
	__u32 user_worker : 1;
};

/* Before v6.2: f1a7941243c1 ("mm: convert mm's rss stats into
 * percpu_counter"). */
struct mm_rss_stat___atomic {
	atomic_long_t count[4];
};
struct mm_struct___atomic {
	struct mm_rss_stat___atomic rss_stat;
};

/* Since v6.18 (see throttle.bpf.c). */
struct task_struct___throttled {
	bool throttled;
};

/* Before v5.17: a54d806688fe ("KVM: Keep memslots in tree-based structures
 * instead of array-based ones"). */
struct kvm_memslots___array {
	int used_slots;
	struct kvm_memory_slot memslots[1];
};

/* v5.15 has an array of vCPUs, v6.1 an xarray (include/linux/kvm_host.h). */
struct kvm___array {
	struct kvm_vcpu *vcpus[1];
};

/* v5.10 and v5.15 have the pressure in struct cgroup itself, v6.1 a pointer to it, NULL if
 * it is not counted (include/linux/cgroup-defs.h). */
struct cgroup___psi {
	struct psi_group psi;
};

#pragma clang attribute pop

static __always_inline __u32 task_pcpu(struct task_struct *task)
{
	struct task_struct___cpu *old = (void *)task;

	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return BPF_CORE_READ(old, cpu);
}

/* State of a task: 0 is running or runnable, otherwise the kind of sleep or exit. */
static __always_inline __u32 task_state(struct task_struct *task)
{
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ(old, state);
}

/* Whether the task is running or waits for a CPU. */
static __always_inline bool is_runnable(struct task_struct *task)
{
	return !task_state(task);
}

/* Whether the kernel throttles single threads, and shows which. */
#define HAS_THROTTLED_TASKS(task)                                              \
	bpf_core_field_exists(((struct task_struct___throttled *)(task))->throttled)
static __always_inline bool is_task_throttled(struct task_struct *task)
{
	struct task_struct___throttled *fields = (void *)task;

	return HAS_THROTTLED_TASKS(task) && BPF_CORE_READ(fields, throttled);
}

static __always_inline bool is_user_worker(unsigned int task_flags)
{
	return bpf_core_field_exists(struct kernel_clone_args, user_worker) &&
	       task_flags & PF_USER_WORKER;
}

/* Whether a lookup in task storage also succeeds while this CPU is in an operation on
 * another task's storage: since e8b02296a6b8 ("bpf: Avoid taking spinlock in
 * bpf_task_storage_get if potential deadlock is detected", v6.2). BTF shows it by a
 * helper that was added in the same version: c4bcfb38a95e ("bpf: Implement cgroup storage
 * available to non-cgroup-attached bpf progs"). */
static __always_inline bool always_finds_storage(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_cgrp_storage_get);
}

/* Since v6.17 a kernel may be built without a PIT: 628a27731e3f ("KVM: x86: Add
 * CONFIG_KVM_IOAPIC to allow disabling in-kernel I/O APIC"). */
#define HAS_PIT(kvm) bpf_core_field_exists((kvm)->arch.vpit)

/* Whether KVM's counters that all architectures have are in a structure of their own. */
#define HAS_GENERIC(vcpu) bpf_core_field_exists((vcpu)->stat.generic)
#define HALT_OFFSET(field) bpf_core_field_offset(struct kvm_vcpu, stat.generic.field)

/* Time that a halted vCPU spent, by kind (ns), and how often. In the order of
 * struct kvm_vcpu_stat_generic. */
struct halt_stats {
	__u64 polls_successful;
	__u64 polls_attempted;
	__u64 polls_invalid;
	__u64 wakeups;
	__u64 poll_success_ns;
	__u64 poll_fail_ns;
	__u64 wait_ns;
};

/* v5.15 has halt_wait_ns in struct kvm_vcpu_stat_generic (include/linux/kvm_types.h),
 * directly after the others; v5.10 does not have it. */
static __always_inline void read_halts(struct halt_stats *halts, struct kvm_vcpu *vcpu)
{
	struct kvm_vcpu_stat___flat *flat = (void *)&vcpu->stat;

	if (bpf_rdonly_cast) {
		halts->polls_successful =
			(__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_successful_poll);
		halts->polls_attempted =
			(__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_attempted_poll);
		halts->polls_invalid =
			(__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_poll_invalid);
		halts->wakeups = (__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_wakeup);
		halts->poll_success_ns =
			(__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_poll_success_ns);
		halts->poll_fail_ns = (__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_poll_fail_ns);
		halts->wait_ns = (__u64)CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_wait_ns);
	} else if (HAS_GENERIC(vcpu) &&
		   HALT_OFFSET(halt_wait_ns) - HALT_OFFSET(halt_successful_poll) ==
			   __builtin_offsetof(struct halt_stats, wait_ns)) {
		/* One read of all costs a seventh of seven reads. */
		if (bpf_core_read(halts, sizeof(*halts), &vcpu->stat.generic.halt_successful_poll))
			__builtin_memset(halts, 0xff, sizeof(*halts));
	} else if (HAS_GENERIC(vcpu)) {
		halts->polls_successful = READ_OR(UNKNOWN, vcpu->stat.generic.halt_successful_poll);
		halts->polls_attempted = READ_OR(UNKNOWN, vcpu->stat.generic.halt_attempted_poll);
		halts->polls_invalid = READ_OR(UNKNOWN, vcpu->stat.generic.halt_poll_invalid);
		halts->wakeups = READ_OR(UNKNOWN, vcpu->stat.generic.halt_wakeup);
		halts->poll_success_ns = READ_OR(UNKNOWN, vcpu->stat.generic.halt_poll_success_ns);
		halts->poll_fail_ns = READ_OR(UNKNOWN, vcpu->stat.generic.halt_poll_fail_ns);
		halts->wait_ns = READ_OR(UNKNOWN, vcpu->stat.generic.halt_wait_ns);
	} else {
		halts->polls_successful = READ_OR(UNKNOWN, flat->halt_successful_poll);
		halts->polls_attempted = READ_OR(UNKNOWN, flat->halt_attempted_poll);
		halts->polls_invalid = READ_OR(UNKNOWN, flat->halt_poll_invalid);
		halts->wakeups = READ_OR(UNKNOWN, flat->halt_wakeup);
		halts->poll_success_ns = READ_OR(UNKNOWN, flat->halt_poll_success_ns);
		halts->poll_fail_ns = READ_OR(UNKNOWN, flat->halt_poll_fail_ns);
		halts->wait_ns = UNKNOWN;
	}
}

/* Histograms since v5.15 (struct kvm_vcpu_stat_generic, include/linux/kvm_types.h). */
#define HAS_HALT_HISTOGRAMS(vcpu) bpf_core_field_exists((vcpu)->stat.generic.halt_wait_hist)

/* Since v5.13: 4a7132efff4e ("KVM: X86: Count attempted/successful directed yield"). */
#define HAS_YIELDS(vcpu) bpf_core_field_exists((vcpu)->stat.directed_yield_attempted)

/* Since v5.19, and in stable kernels (Debian's 5.10): 6cd88243c7e0 ("KVM: x86: do not report
 * a vCPU as preempted outside instruction boundaries"). */
#define HAS_PREEMPTIONS(vcpu) bpf_core_field_exists((vcpu)->stat.preemption_reported)

/* Since v5.15 KVM counts pages by size (struct kvm_vm_stat,
 * arch/x86/include/asm/kvm_host.h). */
#define HAS_PAGES_BY_SIZE(kvm) bpf_core_field_exists((kvm)->stat.pages)

/* Number of times that KVM flushed the TLBs of all vCPUs of the VM at `kvm`: v5.10 has the
 * counter in kvm_vm_stat itself. */
static __always_inline __u64 tlb_flushes_of(__u64 kvm)
{
	struct kvm *typed = NULL;

	if (bpf_core_field_exists(typed->stat.generic))
		return word_at(kvm + bpf_core_field_offset(struct kvm, stat.generic.remote_tlb_flush));
	return word_at(kvm + bpf_core_field_offset(struct kvm, stat) +
		       bpf_core_field_offset(struct kvm_vm_stat___flat, remote_tlb_flush));
}

/* Since v6.0: 1075d41efcca ("KVM: x86/mmu: Expand and clean up page fault
 * stats"). */
#define HAS_PF_TAKEN(vcpu) bpf_core_field_exists((vcpu)->stat.pf_taken)

/* Since v6.3 CPUs unthrottle their run queues concurrently: 8ad075c2eb1f ("sched: Async
 * unthrottling for cfs bandwidth"). Before that, one CPU unthrottles all of them, and
 * tracing programs of v5.10 cannot take a lock. */
static __always_inline bool is_unthrottled_at_once(struct cfs_rq *queue)
{
	return bpf_core_field_exists(queue->throttled_csd_list);
}

/* An int before v6.18, a bool since. */
static __always_inline bool is_queue_throttled(struct cfs_rq *queue)
{
	return BPF_CORE_READ_BITFIELD(queue, throttled);
}

/* Returns the task group of the task at an address in the CFS scheduler; NULL without
 * CONFIG_CGROUP_SCHED. */
static __always_inline struct task_group *task_group_at(struct task_struct *task)
{
	if (bpf_core_field_exists(task->sched_task_group))
		return READ_WORD(task->sched_task_group);
	return NULL;
}

/* Whether groups can have limits: without CONFIG_CFS_BANDWIDTH struct cfs_bandwidth is
 * empty (kernel/sched/sched.h). */
#define HAS_LIMITS(group) bpf_core_field_exists((group)->cfs_bandwidth.quota)

/* Since v5.14: f4183717b370 ("sched/fair: Introduce the burstable CFS
 * controller"). */
static __always_inline __u64 burst_ns(struct task_group *group)
{
	if (bpf_core_field_exists(group->cfs_bandwidth.burst))
		return READ_WORD(group->cfs_bandwidth.burst);
	return UNKNOWN;
}

/* Whether the layout of the resident memory counters is supported. Both layouts batch
 * updates: see rss_error_bytes in memory.bpf.h. */
#define RSS_IS_ATOMIC(mm)                                                      \
	bpf_core_field_exists(((struct mm_struct___atomic *)(mm))->rss_stat.count)
#define RSS_IS_PERCPU(mm) bpf_core_field_exists((mm)->rss_stat[0].count)
#define RSS_IS_KNOWN(mm) (RSS_IS_ATOMIC(mm) || RSS_IS_PERCPU(mm))

/* The resident pages of a process, by type, and its private pages in swap. */
struct resident {
	__s64 file;
	__s64 anon;
	__s64 shared;
	__s64 swapped;
};

/* The verifier does not resolve a typedef, which the atomic counters have: those are read
 * with one helper call. */
static __always_inline void read_resident(struct mm_struct *mm, struct resident *pages)
{
	struct mm_struct___atomic *old = (void *)mm;
	long counts[4] = {};

	if (RSS_IS_PERCPU(mm)) {
		pages->file = mm->rss_stat[MM_FILEPAGES].count;
		pages->anon = mm->rss_stat[MM_ANONPAGES].count;
		pages->shared = mm->rss_stat[MM_SHMEMPAGES].count;
		pages->swapped = mm->rss_stat[MM_SWAPENTS].count;
		return;
	}
	bpf_core_read(counts, sizeof(counts), &old->rss_stat.count);
	pages->file = counts[MM_FILEPAGES];
	pages->anon = counts[MM_ANONPAGES];
	pages->shared = counts[MM_SHMEMPAGES];
	pages->swapped = counts[MM_SWAPENTS];
}

/* Whether the memslots are an array. */
#define MEMSLOTS_ARE_ARRAY(slots)                                              \
	bpf_core_field_exists(((struct kvm_memslots___array *)(slots))->used_slots)

/* Number of slots in the array. */
static __always_inline __u32 memslots_in_array(struct kvm_memslots *slots)
{
	return READ_OR(0, ((struct kvm_memslots___array *)slots)->used_slots);
}

static __always_inline struct kvm_memory_slot *memslot_in_array(struct kvm_memslots *slots,
								__u32 index)
{
	return (void *)slots + bpf_core_field_offset(struct kvm_memslots___array, memslots) +
	       index * bpf_core_type_size(struct kvm_memory_slot);
}

/* Since v5.17: returns the slot of a node in a bucket of `id_hash`. Each slot is in two
 * sets of memslots, of which one is active. */
static __always_inline struct kvm_memory_slot *memslot_of_node(struct hlist_node *node,
							       __u32 node_idx)
{
	return (void *)node - bpf_core_field_offset(struct kvm_memory_slot, id_node) -
	       (node_idx & 1) * (bpf_core_field_size(struct kvm_memory_slot, id_node) / 2);
}

/* include/uapi/linux/kvm.h: the guest's private memory is in a file. */
#define KVM_MEM_GUEST_MEMFD (1U << 2)

/* Since v6.8 a memslot can have a guest_memfd: a7800aa80ea4 ("KVM: Add
 * KVM_CREATE_GUEST_MEMFD ioctl() for guest-specific backing memory"). The field exists with
 * CONFIG_KVM_PRIVATE_MEM, which v6.18 renamed: 19a9a1ab5c3d ("KVM: Rename
 * CONFIG_KVM_PRIVATE_MEM to CONFIG_KVM_GUEST_MEMFD"). Returns the page cache of the file;
 * NULL if there is none, or if the VMM has closed the file, after which the slot stays
 * (kvm_gmem_release, virt/kvm/guest_memfd.c). */
static __always_inline struct address_space *guest_memfd_of(struct kvm_memory_slot *slot)
{
	struct file *file;

	if (!bpf_core_field_exists(slot->gmem.file))
		return NULL;
	file = READ_0(slot->gmem.file);
	return file ? READ_0(file->f_mapping) : NULL;
}

/* arch/x86/include/asm/page_64_types.h, without KASAN. Kernel stacks are aligned to this
 * size. */
#define THREAD_SIZE (16 << 10)

/* Reads the first three arguments of the system call whose function was entered with
 * `ctx`. The kernel's BTF has the type of the function's argument, except on 5.10, which
 * only declares it. There the registers are read where entry_SYSCALL_64 stores them: at
 * the top of the stack, on which `ctx` is too (arch_prepare_bpf_trampoline,
 * arch/x86/net/bpf_jit_comp.c). The helper that distinguishes these kernels was added in
 * v5.15: dd6e10fbd9fb ("bpf: Add bpf_task_pt_regs() helper"). */
struct syscall_args {
	__u64 third;
	__u64 second;
	__u64 first;
};
static __always_inline bool read_syscall_args(const __u64 *ctx, struct syscall_args *args)
{
	struct pt_regs *regs;
	__u64 top;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		regs = (struct pt_regs *)*(const volatile __u64 *)ctx;
		args->third = regs->dx;
		args->second = regs->si;
		args->first = regs->di;
		return true;
	}
	top = (address_of(ctx) | (THREAD_SIZE - 1)) + 1;
	regs = (struct pt_regs *)(top - bpf_core_type_size(struct pt_regs));
	return !bpf_core_read(args, sizeof(*args), &regs->dx);
}

/* Address of the pressure of a cgroup on v2; 0 if the kernel does not count it: without
 * CONFIG_PSI struct psi_group is empty, with psi=0 it has no counters, and root has none
 * (psi_cgroup_alloc, kernel/sched/psi.c). */
static __always_inline __u64 psi_of(__u64 cgroup)
{
	__u64 group = 0;

	if (!bpf_core_field_exists(struct psi_group, total))
		return 0;
	if (bpf_core_field_exists(struct cgroup, psi))
		group = word_at(cgroup + bpf_core_field_offset(struct cgroup, psi));
	else if (bpf_core_field_exists(struct cgroup___psi, psi))
		group = cgroup + bpf_core_field_offset(struct cgroup___psi, psi);
	if (!group || !word_at(group + bpf_core_field_offset(struct psi_group, pcpu)))
		return 0;
	/* Since v6.1 it can be switched off for one cgroup (file cgroup.pressure). */
	if (bpf_core_field_exists(struct psi_group, enabled) &&
	    !(__u8)word_at(group + bpf_core_field_offset(struct psi_group, enabled)))
		return 0;
	return group;
}

/* Number of words that can be copied from the start of psi_group.total: two times five in
 * v5.10, more since. A power of 2, so that the verifier accepts an index. */
#define PSI_WORDS 8

/* The sum of a state among the words of psi_group.total, UNKNOWN if this kernel does not
 * have the state: PSI_CPU_FULL since v5.13, PSI_IRQ_FULL since v6.1 with
 * CONFIG_IRQ_TIME_ACCOUNTING (include/linux/psi_types.h). */
#define PSI_TOTAL(words, state)                                                     \
	(bpf_core_enum_value_exists(enum psi_states, state) ?                       \
		 (words)[bpf_core_enum_value(enum psi_states, state) & (PSI_WORDS - 1)] : \
		 UNKNOWN)

/* Number of levels of an xarray that are followed: each has 6 bits of the index, and KVM has
 * at most 4096 vCPUs (KVM_MAX_VCPUS). */
#define XA_LEVELS 2

/* Address of the node with the vCPUs of the VM at `kvm`, or of its only vCPU. */
static __always_inline __u64 vcpus_node(__u64 kvm)
{
	if (!bpf_core_field_exists(struct kvm, vcpu_array))
		return 0;
	return word_at(kvm + bpf_core_field_offset(struct kvm, vcpu_array.xa_head)) & ~3ULL;
}

/* Address of the first vCPU of the VM at `kvm`, 0 if it has none. An xarray of one entry is
 * that entry, otherwise a node, marked by its lower bits (xa_is_node,
 * include/linux/xarray.h). */
static __always_inline __u64 first_vcpu(__u64 kvm)
{
	__u64 entry;

	if (!bpf_core_field_exists(struct kvm, vcpu_array))
		return word_at(kvm + bpf_core_field_offset(struct kvm___array, vcpus));
	entry = word_at(kvm + bpf_core_field_offset(struct kvm, vcpu_array.xa_head));
	for (int level = 0; level < XA_LEVELS && (entry & 3) == 2; level++)
		entry = word_at(entry - 2 + bpf_core_field_offset(struct xa_node, slots));
	return entry;
}

/* Whether the kernel knows the process that an address space belongs to: mm_struct.owner, with
 * CONFIG_MEMCG. */
#define HAS_OWNER(mm) bpf_core_field_exists((mm)->owner)

#endif
