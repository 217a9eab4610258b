/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records VMs and the child processes of pods, and finds them by a process, an address space
 * or a timer thread: the maps `vms` and `vm_mms`.
 */
#ifndef VIRTLENS_VM_BPF_H
#define VIRTLENS_VM_BPF_H

#include "thread_state.bpf.h"

static __always_inline void vm_owner(struct task_struct *task, struct owner *owner)
{
	owner->id = FOLLOW(task->group_leader)->start_boottime;
	owner->tgid = task->tgid;
	owner->pad = 0;
}

static __always_inline void pod_owner(__u64 pod, struct owner *owner)
{
	owner->id = pod;
	owner->tgid = 0;
	owner->pad = 0;
}

/* Length of the prefix of a VM's timer thread: KVM names the kernel thread "kvm-pit/%d"
 * with the pid of the process (kvm_create_pit, arch/x86/kvm/i8254.c). Users cannot create
 * kernel threads. */
#define PIT_NAME_LEN 8
union pit_name {
	char text[COMM_LEN];
	__u64 first8;
};

/* Finds the VM of a timer thread by the number in its name. Used where no type
 * information has the offset of KVM's pointer to the thread. The number is a pid in the
 * VMM's own pid namespace, so this finds only VMMs that share the host's. */
static __always_inline bool pit_by_name(struct task_struct *task, const union pit_name *name,
					struct owner *owner)
{
	__u32 tgid = 0;
	struct vm *vm;

#pragma unroll
	for (int at = PIT_NAME_LEN; at < COMM_LEN - 1; at++) {
		if (name->text[at] < '0' || name->text[at] > '9')
			break;
		tgid = tgid * 10 + (name->text[at] - '0');
	}
	vm = bpf_map_lookup_elem(&vms, &tgid);
	if (!vm || vm->pod || vm->start_ns > task->start_boottime)
		return false;
	owner->id = vm->start_ns;
	owner->tgid = tgid;
	owner->pad = 0;
	return true;
}

/* Whether a kernel thread works for a known VM: it runs on the VM's address space, or is
 * its timer. */
static __noinline bool works_for_vm(struct task_struct *task, struct owner *owner)
{
	union pit_name name, pit = { .text = "kvm-pit/" };
	__u64 key = (__u64)FOLLOW(task->mm);
	struct owner *known;

	if (!key) {
		__builtin_memcpy(name.text, task->comm, COMM_LEN);
		if (name.first8 != pit.first8)
			return false;
		if (!cfg.pit_worker)
			return pit_by_name(task, &name, owner);
		key = (__u64)task;
	}
	known = bpf_map_lookup_elem(&vm_mms, &key);
	if (known)
		*owner = *known;
	return known != NULL;
}

/* Returns the pod of a process that is in `vms` because of its parent, 0 if the pod is no
 * longer watched. */
static __always_inline __u64 pod_of_child(const struct vm *child)
{
	__u64 pod = child->pod;

	return pod && bpf_map_lookup_elem(&watched, &pod) ? pod : 0;
}

/* Records that the process of `task` is the child of a process of a pod, because the
 * child of an exited parent is given another parent. pod_by_parent does not call this
 * function: both on one call path would exceed the stack of a pass. */
static __noinline void add_child(struct task_struct *task, __u64 pod)
{
	struct vm fresh = {}, *known;
	__u32 tgid = task->tgid;

	fresh.start_ns = FOLLOW(task->group_leader)->start_boottime;
	fresh.pod = pod;
	known = bpf_map_lookup_elem(&vms, &tgid);
	/* Entries of VMs that have exited are removed by the agent only. */
	if (known && !known->pod)
		return;
	if (bpf_map_update_elem(&vms, &tgid, &fresh, BPF_ANY))
		count_drop(DROP_VM_FULL);
	else
		count_change(CHANGE_VMS);
}

/* Removes a process that was recorded because of its parent when its thread group leader
 * is freed, which is its last thread. */
static __always_inline void delete_child(struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct vm *known;

	if ((__u32)task->pid != tgid)
		return;
	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->pod && known->start_ns == task->start_boottime) {
		bpf_map_delete_elem(&vms, &tgid);
		count_change(CHANGE_VMS);
	}
}

/* Records the VM whose vCPU `task` runs; returns its entry, NULL (counted) if there is no
 * room. Not inlined, because its stack would add to that of pod_by_parent: a pass may use 512
 * bytes. */
static __noinline struct vm *add_vm(struct task_struct *task, const struct owner *owner,
				const struct control *control)
{
	__u64 mm = (__u64)FOLLOW(task->mm), former;
	/* The present pass has already visited some of its threads. */
	struct vm fresh = { .start_ns = owner->id, .since_pass = control->pass + 1, .mm = mm };
	struct vm *known;
	__u32 tgid = owner->tgid;

	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->start_ns == owner->id && !known->pod) {
		former = known->mm;
		if (!mm || mm == former)
			return known;
		/* The process has exec'ed another program (exec_mmap, fs/exec.c). */
		bpf_map_delete_elem(&vm_mms, &former);
		known->mm = mm;
	} else if (bpf_map_update_elem(&vms, &tgid, &fresh, BPF_ANY)) {
		count_drop(DROP_VM_FULL);
		return NULL;
	} else {
		count_change(CHANGE_VMS);
		known = bpf_map_lookup_elem(&vms, &tgid);
	}
	if (mm && bpf_map_update_elem(&vm_mms, &mm, owner, BPF_ANY))
		count_drop(DROP_VM_FULL);
	return known;
}

/* Records the kernel thread that is the timer of the VM whose vCPU is at `vcpu`: the
 * thread is in the root cgroup, and its name has a pid of the VMM's pid namespace. A VMM
 * creates its timer before its vCPUs run. */
static __noinline void add_pit(struct thread_state *state, struct kvm_vcpu *vcpu)
{
	struct kthread_worker *worker = NULL;
	struct owner owner = state->owner;
	struct kvm *kvm = NULL;
	void *pit;
	__u64 task = 0;

	if (state->pit || !cfg.pit_worker || !HAS_PIT(kvm))
		return;
	kvm = READ_WORD(vcpu->kvm);
	pit = READ_WORD(kvm->arch.vpit);
	if (!pit || bpf_probe_read_kernel(&worker, sizeof(worker), pit + cfg.pit_worker) || !worker)
		return;
	if (bpf_core_read(&task, sizeof(task), &worker->task) || !task)
		return;
	state->pit = task;
	if (bpf_map_update_elem(&vm_mms, &task, &owner, BPF_ANY))
		count_drop(DROP_VM_FULL);
}

/* Address of the notifiers of the address space at `mm`, 0 if it never had any. */
static __always_inline __u64 notifiers_of(__u64 mm)
{
	return word_at(mm + bpf_core_field_offset(struct mm_struct, notifier_subscriptions));
}

/* Address of the VM whose notifier is linked at `link`, if it is a VM's. */
static __always_inline __u64 vm_of_notifier(__u64 link)
{
	return link - bpf_core_field_offset(struct kvm, mmu_notifier) -
	       bpf_core_field_offset(struct mmu_notifier, hlist);
}

#endif
