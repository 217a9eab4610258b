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

#include "maps.bpf.h"

/* kubepods.slice/…-burstable.slice/…-pod.slice/scope/container is 5 levels; nested
 * kubelets (kind) and systemd units above them double that. */
#define MAX_CGROUP_DEPTH 16

/*
 * The verifier knows the types of a task and of the structures that it points to, so
 * their fields are read directly, at a tenth of the cost of bpf_probe_read_kernel (an
 * invalid pointer reads as 0: PROBE_MEM, kernel/bpf/verifier.c).
 */

/* Returns the innermost cgroup of a task: in the cpu controller's hierarchy on v1, in the
 * unified hierarchy on v2 (where the cpu controller may be enabled only further up). */
static __always_inline struct cgroup *task_cgroup(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *css;

	if (!set)
		return NULL;
	if (!cfg.cgroup_v1)
		return set->dfl_cgrp;
	css = set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];
	return css ? css->cgroup : NULL;
}

static __always_inline struct cgroup *cgroup_parent(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = cgroup->self.parent;

	return css ? css->cgroup : NULL;
}

/* Walks up from `cgroup` to the first watched one; returns the pod's id, or 0. */
static __noinline __u64 find_pod(struct cgroup *cgroup)
{
	struct watch *watch;
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id(cgroup);
		watch = bpf_map_lookup_elem(&watched, &id);
		if (watch)
			return watch->pod;
		cgroup = cgroup_parent(cgroup);
	}
	return 0;
}

/* Returns the nearest ancestor of `cgroup`, or itself, that can have a limit, or 0. */
static __noinline __u64 find_level(struct cgroup *cgroup)
{
	__u64 id;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!cgroup)
			break;
		id = cgroup_id(cgroup);
		if (bpf_map_lookup_elem(&levels, &id))
			return id;
		cgroup = cgroup_parent(cgroup);
	}
	return 0;
}

/* Returns the watched pod to which a cgroup belongs, or 0. */
static __always_inline __u64 pod_of(struct cgroup *cgroup, const struct control *control)
{
	struct membership fresh = {}, *known;
	__u64 id = cgroup_id(cgroup);

	known = bpf_map_lookup_elem(&memberships, &id);
	if (known && known->epoch == control->epoch)
		return known->pod;
	fresh.pod = find_pod(cgroup);
	fresh.epoch = control->epoch;
	bpf_map_update_elem(&memberships, &id, &fresh, BPF_ANY);
	return fresh.pod;
}

static __always_inline void vm_owner(struct task_struct *task, struct owner *owner)
{
	owner->id = task->group_leader->start_boottime;
	owner->tgid = task->tgid;
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
	__u64 key = (__u64)task->mm;
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

/* Whether the last reading was of pass `since` or of a later one. */
static __always_inline bool was_shown(__u32 since, const struct control *control)
{
	return control->shown_ns && (__s32)(control->shown_pass - since) >= 0;
}

static __always_inline void pod_owner(__u64 pod, struct owner *owner)
{
	owner->id = pod;
	owner->tgid = 0;
	owner->pad = 0;
}

/* Returns the pod of a process that is in `vms` because of its parent, 0 if the pod is no
 * longer watched. */
static __always_inline __u64 pod_of_child(const struct vm *child)
{
	__u64 pod = child->pod;

	return pod && bpf_map_lookup_elem(&watched, &pod) ? pod : 0;
}

/* Whether the process of `task` is a known VM, or was started by a process of a pod. */
static __always_inline bool by_process(struct task_struct *task, struct neighbour *last,
				       struct owner *owner)
{
	__u32 tgid = task->tgid;
	struct vm *vm;
	__u64 pod;

	vm_owner(task, owner);
	if (last && last->vm.tgid == tgid && last->vm.id == owner->id)
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
	if (last) {
		last->vm = *owner;
		last->vm_since_pass = vm->since_pass;
	}
	return true;
}

/* Up to this tgid a parent has no owner: init (1), which adopts all orphans, and kthreadd
 * (2). */
#define LAST_OF_NOBODYS 2

/* Returns the pod of the parent process of `task`, or 0. A manager may put children of a
 * VM's helpers into another cgroup: libvirt moves the virtiofsd that it has started to
 * the VM's cgroup, but virtiofsd's child, which does all the work, stays in the cgroup of
 * libvirt's service. Managers themselves are in no VM's cgroup, so their other children
 * get no owner. */
static __always_inline __u64 pod_of_parent(struct task_struct *task, struct task_struct *parent,
					   const struct control *control)
{
	__u32 tgid = parent->tgid;
	struct vm *known;

	if (tgid <= LAST_OF_NOBODYS)
		return 0;
	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->pod && known->start_ns == parent->group_leader->start_boottime)
		return pod_of_child(known);
	/* The parent is in the same cgroups, which have no owner. */
	if (parent->cgroups == task->cgroups)
		return 0;
	return pod_of(task_cgroup(parent), control);
}

/* Returns the pod of the parent of `task`, which itself is in no watched cgroup; 0 if the
 * parent is in none either. */
static __noinline __u64 pod_by_parent(struct task_struct *task, const struct control *control,
				      struct neighbour *last)
{
	struct task_struct *parent = task->real_parent;
	__u64 pod;

	if (!parent || (last && last->other_parent == (__u64)parent))
		return 0;
	pod = pod_of_parent(task, parent, control);
	if (!pod && last)
		last->other_parent = (__u64)parent;
	return pod;
}

/* Records that the process of `task` is the child of a process of a pod, because the
 * child of an exited parent is given another parent. A separate function next to
 * pod_by_parent: if one called the other, both together would exceed the stack that a
 * pass has left. */
static __noinline void remember_child(struct task_struct *task, __u64 pod)
{
	struct vm fresh = {}, *known;
	__u32 tgid = task->tgid;

	fresh.start_ns = task->group_leader->start_boottime;
	fresh.pod = pod;
	known = bpf_map_lookup_elem(&vms, &tgid);
	/* Entries of VMs that have exited are removed by the agent only. */
	if ((!known || known->pod) && bpf_map_update_elem(&vms, &tgid, &fresh, BPF_ANY))
		count_drop(DROP_VM_FULL);
}

/* Removes a process that was recorded because of its parent when its thread group leader
 * is freed, which is its last thread. */
static __always_inline void forget_child(struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct vm *known;

	if ((__u32)task->pid != tgid)
		return;
	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->pod && known->start_ns == task->start_boottime)
		bpf_map_delete_elem(&vms, &tgid);
}

/* Whether a marked thread of a pod belongs to a VM by now. A pass may see a vhost thread
 * before its VM, and a process belongs to the pod until it creates its VM. */
static __always_inline bool became_vms(struct task_struct *task, struct neighbour *last,
				       struct owner *owner)
{
	struct owner found = {};

	if (task->flags & PF_KTHREAD ? !works_for_vm(task, &found) : !by_process(task, last, &found))
		return false;
	if (!found.tgid)
		return false;
	*owner = found;
	return true;
}

/* Fills in `owner` and returns true if the task has an owner. Its mark may still have
 * another owner: see follow_owner. `last` is the cache of the pass: it saves repeated
 * lookups for a process or cgroup without an owner. `has_parent`: its parent is still
 * valid and may be read. */
static __always_inline bool owner_of(struct task_struct *task, struct mark *mark,
				     const struct control *control, struct neighbour *last,
				     bool has_parent, struct owner *owner)
{
	bool may_be_child = false;
	struct cgroup *cgroup;
	__u64 pod = 0;

	if (mark) {
		*owner = mark->owner;
		if (!owner->tgid)
			became_vms(task, last, owner);
		return true;
	}
	if (task->flags & PF_KTHREAD) {
		if (works_for_vm(task, owner))
			return true;
	} else if (!last || last->other_tgid != (__u32)task->tgid) {
		if (by_process(task, last, owner))
			return true;
		if (last)
			last->other_tgid = task->tgid;
		may_be_child = has_parent;
	}
	if (!control->watched)
		return false;
	cgroup = task_cgroup(task);
	if (!last || last->other_cgroup != (__u64)cgroup)
		pod = pod_of(cgroup, control);
	if (!pod) {
		if (last)
			last->other_cgroup = (__u64)cgroup;
		if (may_be_child)
			pod = pod_by_parent(task, control, last);
		if (!pod)
			return false;
		remember_child(task, pod);
	}
	pod_owner(pod, owner);
	return true;
}

/* Records the VM whose vCPU `task` runs. A separate function to save stack: together with
 * pod_by_parent below it a pass may use 512 bytes. */
static __noinline void learn_vm(struct task_struct *task, const struct owner *owner,
				     const struct control *control)
{
	__u64 mm = (__u64)task->mm, former;
	/* The present pass has already visited some of its threads. */
	struct vm fresh = { .start_ns = owner->id, .since_pass = control->pass + 1, .mm = mm };
	struct vm *known;
	__u32 tgid = owner->tgid;

	known = bpf_map_lookup_elem(&vms, &tgid);
	if (known && known->start_ns == owner->id && !known->pod) {
		former = known->mm;
		if (!mm || mm == former)
			return;
		/* The process has exec'ed another program (exec_mmap, fs/exec.c). */
		bpf_map_delete_elem(&vm_mms, &former);
		known->mm = mm;
	} else if (bpf_map_update_elem(&vms, &tgid, &fresh, BPF_ANY)) {
		count_drop(DROP_VM_FULL);
		return;
	}
	if (mm && bpf_map_update_elem(&vm_mms, &mm, owner, BPF_ANY))
		count_drop(DROP_VM_FULL);
}

/* Records the kernel thread that is the timer of the VM whose vCPU is at `vcpu`: the
 * thread is in the root cgroup, and its name has a pid of the VMM's pid namespace. A VMM
 * creates its timer before its vCPUs run. */
static __noinline void learn_pit(struct mark *mark, struct kvm_vcpu *vcpu)
{
	struct kthread_worker *worker = NULL;
	struct owner owner = mark->owner;
	struct kvm *kvm = NULL;
	void *pit;
	__u64 task = 0;

	if (mark->pit || !cfg.pit_worker || !HAS_PIT(kvm))
		return;
	kvm = PEEK(vcpu->kvm);
	pit = PEEK(kvm->arch.vpit);
	if (!pit || bpf_probe_read_kernel(&worker, sizeof(worker), pit + cfg.pit_worker) || !worker)
		return;
	if (bpf_core_read(&task, sizeof(task), &worker->task) || !task)
		return;
	mark->pit = task;
	if (bpf_map_update_elem(&vm_mms, &task, &owner, BPF_ANY))
		count_drop(DROP_VM_FULL);
}

/* Converts the kernel's task flags to enum thread_flag. */
static __always_inline __u32 thread_flags(struct task_struct *task)
{
	unsigned int flags = task->flags;

	return (flags & PF_KTHREAD ? THREAD_KTHREAD : 0) |
	       (flags & PF_IO_WORKER ? THREAD_IO_WORKER : 0) |
	       (is_user_worker(flags) ? THREAD_USER_WORKER : 0);
}

/* Whether the thread group leader of `task` still exists: each thread is freed after a
 * separate grace period, so the leader may be freed before `task` (release_task,
 * kernel/exit.c). */
static __always_inline bool has_leader(struct task_struct *task)
{
	return task->group_leader->pid == task->tgid;
}

/* Fills in the class of a thread; the agent derives the role from the names. */
static __always_inline void classify(struct task_struct *task, const struct mark *mark,
				     const struct owner *owner, __u64 level,
				     struct thread_class *class)
{
	const char *leader_comm = task->comm;

	if (has_leader(task))
		leader_comm = task->group_leader->comm;
	else if (mark && mark->has_exited)
		leader_comm = mark->leader_comm;
	__builtin_memset(class, 0, sizeof(*class));
	class->owner = *owner;
	class->level = level;
	class->vcpu_id = mark ? mark->vcpu_id : ~0U;
	class->flags = thread_flags(task);
	bpf_probe_read_kernel_str(class->comm, sizeof(class->comm), task->comm);
	bpf_probe_read_kernel_str(class->leader_comm, sizeof(class->leader_comm), leader_comm);
}

#endif
