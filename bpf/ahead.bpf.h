/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading ahead. Of each thread a pass reads some thirty cache lines, and between
 * two passes the caches come to hold other things: most of its time is spent
 * waiting for memory. So while it is at one thread it touches what it will read
 * of the next two, and does not wait for it:
 *
 *   the one after the next    what stands in its task_struct
 *   the next                  what that points to: its mark, its vCPU
 *
 * What an iterator touches is only a guess: the threads of a process mostly follow
 * each other, as they do in their process's list. Nothing that is read here is used
 * but to touch more; a wrong address reads as 0 (PROBE_MEM).
 */
#ifndef VIRTLENS_AHEAD_BPF_H
#define VIRTLENS_AHEAD_BPF_H

#include "maps.bpf.h"
#include "owner.bpf.h"

/* The thread behind `task` in its process's list; behind the last one is no
 * task. */
static __always_inline void *thread_behind(const void *task)
{
	return WORD(task, task_struct, thread_node) -
	       bpf_core_field_offset(struct task_struct, thread_node);
}

/* What a pass reads of a task_struct, each from another cache line. */
#define EACH_LINE_OF_A_TASK(of)                                                \
	of(flags);                                                             \
	of(se.sum_exec_runtime);                                               \
	of(preempt_notifiers.first);                                           \
	of(sched_info.run_delay);                                              \
	of(pid);                                                               \
	of(group_leader);                                                      \
	of(gtime);                                                             \
	of(start_boottime);                                                    \
	of(comm[0]);                                                           \
	of(cgroups);                                                           \
	of(bpf_storage)

static __always_inline void touch_task(const void *task)
{
#define TOUCH(field) WORD(task, task_struct, field)
	EACH_LINE_OF_A_TASK(TOUCH);
}

/* What a pass reads of a vCPU. */
static __always_inline void touch_vcpu(const void *vcpu)
{
	WORD(vcpu, kvm_vcpu, stat.generic.halt_poll_success_ns);
	WORD(vcpu, kvm_vcpu, stat.generic.halt_wait_ns);
	WORD(vcpu, kvm_vcpu, stat.pf_fixed);
	WORD(vcpu, kvm_vcpu, stat.exits);
	WORD(vcpu, kvm_vcpu, stat.halt_exits);
	WORD(vcpu, kvm_vcpu, stat.hypercalls);
}

/* Touches what a task points to: its mark, its vCPU. */
static __always_inline void touch_belongings(const struct task_struct *task)
{
	const void *mark, *link;

	/* The storage begins with a cache: mostly the mark's is its first entry. */
	mark = word_at(task->bpf_storage);
	if (mark)
		word_at(mark);
	link = task->preempt_notifiers.first;
	if (link)
		touch_vcpu(link - bpf_core_field_offset(struct kvm_vcpu, preempt_notifier) -
			   bpf_core_field_offset(struct preempt_notifier, link));
}

/* Touches the cgroup that a task is in. */
static __always_inline void touch_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = task_cgroup(task);

	if (cgroup)
		WORD(cgroup->kn, kernfs_node, id);
}

/* Touches what the threads behind `task` will need. */
static __always_inline void read_ahead(struct task_struct *task)
{
	struct task_struct *next;

	if (!bpf_rdonly_cast)
		return;
	next = bpf_rdonly_cast(thread_behind(task), bpf_core_type_id_kernel(struct task_struct));
	touch_task(thread_behind(next));
	if (next->tgid != task->tgid)
		return;
	touch_belongings(next);
}

#endif
