/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the owner of a thread: a VM, a watched pod, or none. Called for every task of the
 * host in each pass and at each exit, so the answer "none" must be cheap: at most two
 * lookups, and two more for a process whose parent is neither init nor the parent of the
 * process before it.
 *
 *   by its process, by the address space it runs on,
 *   by KVM's structures                            a VM
 *   by its cgroup                                  a pod
 *   by its parent, as long as the parent lives     the parent's pod, and from
 *                                                  then on by its process
 */
#ifndef VIRTLENS_OWNER_BPF_H
#define VIRTLENS_OWNER_BPF_H

#include "cgroup.bpf.h"
#include "pass_cache.bpf.h"
#include "vm.bpf.h"

/* Whether the last reading was of pass `since` or of a later one. */
static __always_inline bool was_shown(__u32 since, const struct control *control)
{
	return control->shown_ns && (__s32)(control->shown_pass - since) >= 0;
}

/* Whether the process of `task` is a known VM, or was started by a process of a pod. */
static __always_inline bool by_process(struct task_struct *task, struct pass_cache *cache,
				       struct owner *owner)
{
	__u32 tgid = task->tgid;
	struct vm *vm;
	__u64 pod;

	vm_owner(task, owner);
	if (cache && cache->vm.tgid == tgid && cache->vm.id == owner->id)
		return true;
	vm = bpf_map_lookup_elem(&vms, &tgid);
	/* The pid of a former VM was reused. */
	if (!vm || vm->start_ns != owner->id)
		return false;
	if (vm->pod) {
		pod = pod_of_child(vm);
		pod_owner(pod, owner);
		return pod != 0;
	}
	if (cache) {
		cache->vm = *owner;
		cache->vm_since_pass = vm->since_pass;
	}
	return true;
}

/* Up to this tgid a parent has no owner: init (1), which adopts all orphans, and kthreadd
 * (2). */
#define LAST_SYSTEM_TGID 2

/* Returns the pod of the parent process of `task`, or 0. A manager may put children of a
 * VM's helpers into another cgroup: libvirt moves the virtiofsd that it has started to
 * the VM's cgroup, but virtiofsd's child, which does all the work, stays in the cgroup of
 * libvirt's service. Managers themselves are in no VM's cgroup, so their other children
 * get no owner. */
static __always_inline __u64 pod_of_parent(struct task_struct *task, struct task_struct *parent)
{
	__u32 tgid = parent->tgid;
	struct vm *known;

	if (tgid <= LAST_SYSTEM_TGID)
		return 0;
	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->pod && known->start_ns == FOLLOW(parent->group_leader)->start_boottime)
		return pod_of_child(known);
	/* The parent is in the same cgroups, which have no owner. */
	if (FOLLOW(parent->cgroups) == FOLLOW(task->cgroups))
		return 0;
	return pod_of_task(parent);
}

/* Returns the pod of the parent of `task`, which itself is in no watched cgroup; 0 if the
 * parent is in none either. */
static __noinline __u64 pod_by_parent(struct task_struct *task, struct pass_cache *cache)
{
	struct task_struct *parent = FOLLOW(task->real_parent);
	__u64 pod;

	if (!parent || (cache && cache->unowned_parent == (__u64)parent))
		return 0;
	pod = pod_of_parent(task, parent);
	if (!pod && cache)
		cache->unowned_parent = (__u64)parent;
	return pod;
}

/* Whether a thread whose state names a pod as the owner belongs to a VM by now. A pass may
 * see a vhost thread before its VM, and a process belongs to the pod until it creates its
 * VM. */
static __always_inline bool joined_vm(struct task_struct *task, struct pass_cache *cache,
				       struct owner *owner)
{
	struct owner found = {};

	if (task->flags & PF_KTHREAD ? !works_for_vm(task, &found) : !by_process(task, cache, &found))
		return false;
	if (!found.tgid)
		return false;
	*owner = found;
	return true;
}

/* Fills in `owner` and returns true if the task has an owner. Its state may still name
 * another owner: see follow_owner. `cache` saves repeated lookups for a process or cgroup
 * without an owner; NULL outside of a pass. `has_parent`: the pointer to its parent is
 * still valid. */
static __always_inline bool owner_of(struct task_struct *task, struct thread_state *state,
				     const struct control *control, struct pass_cache *cache,
				     bool has_parent, struct owner *owner)
{
	bool may_be_child = false;
	struct cgroup *cgroup;
	__u64 pod = 0;

	if (state) {
		*owner = state->owner;
		if (!owner->tgid)
			joined_vm(task, cache, owner);
		return true;
	}
	if (task->flags & PF_KTHREAD) {
		if (works_for_vm(task, owner))
			return true;
	} else if (!cache || cache->unowned_tgid != (__u32)task->tgid) {
		if (by_process(task, cache, owner))
			return true;
		if (cache)
			cache->unowned_tgid = task->tgid;
		may_be_child = has_parent;
	}
	if (!control->watched)
		return false;
	cgroup = task_cgroup(task);
	if (!cache || cache->unowned_cgroup != (__u64)cgroup)
		pod = pod_at(address_of(cgroup));
	if (!pod) {
		if (cache)
			cache->unowned_cgroup = (__u64)cgroup;
		if (may_be_child)
			pod = pod_by_parent(task, cache);
		if (!pod)
			return false;
		add_child(task, pod);
		/* From here on its threads are found by their process. */
		if (cache)
			cache->unowned_tgid = 0;
	}
	pod_owner(pod, owner);
	return true;
}

#endif
