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
 * What is touched is only a guess. The threads of a process mostly follow each
 * other in the walk, as they do in their process's list. Nothing that is read
 * here is used but to touch more; a wrong address reads as 0 (PROBE_MEM).
 */
#ifndef VIRTLENS_AHEAD_BPF_H
#define VIRTLENS_AHEAD_BPF_H

#include "maps.bpf.h"

/* Since v6.2: a35b9af4ec2c ("bpf: Add a kfunc for generic type cast"). Without it
 * nothing is read ahead. */
extern void *bpf_rdonly_cast(const void *address, __u32 type_id) __ksym __weak;

/* The word at an address. Its type is any that every kernel has and that begins
 * with a pointer. */
static __always_inline void *word_at(const void *address)
{
	struct hlist_node *node;

	node = bpf_rdonly_cast(address, bpf_core_type_id_kernel(struct hlist_node));
	return *(struct hlist_node *volatile *)&node->next;
}

#define TOUCH(address, type, field)                                            \
	word_at((const void *)(address) + bpf_core_field_offset(struct type, field))

/* The thread behind `task` in its process's list; behind the last one is no
 * task. */
static __always_inline void *thread_behind(const void *task)
{
	return TOUCH(task, task_struct, thread_node) -
	       bpf_core_field_offset(struct task_struct, thread_node);
}

/* What a pass reads of a task_struct, each from another cache line. */
static __always_inline void touch_task(const void *task)
{
	TOUCH(task, task_struct, flags);
	TOUCH(task, task_struct, se.sum_exec_runtime);
	TOUCH(task, task_struct, preempt_notifiers);
	TOUCH(task, task_struct, sched_info.run_delay);
	TOUCH(task, task_struct, pid);
	TOUCH(task, task_struct, thread_pid);
	TOUCH(task, task_struct, gtime);
	TOUCH(task, task_struct, start_boottime);
	TOUCH(task, task_struct, comm);
	TOUCH(task, task_struct, cgroups);
	if (cfg.task_storage)
		TOUCH(task, task_struct, bpf_storage);
}

/* What a pass reads of a vCPU. */
static __always_inline void touch_vcpu(const void *vcpu)
{
	TOUCH(vcpu, kvm_vcpu, pid);
	TOUCH(vcpu, kvm_vcpu, stat.generic.halt_poll_success_ns);
	TOUCH(vcpu, kvm_vcpu, stat.pf_fixed);
	TOUCH(vcpu, kvm_vcpu, stat.exits);
	TOUCH(vcpu, kvm_vcpu, stat.halt_exits);
	TOUCH(vcpu, kvm_vcpu, stat.hypercalls);
}

/* Touches what the threads behind `task` will need. */
static __always_inline void read_ahead(struct task_struct *task)
{
	struct task_struct *next;
	const void *mark, *link;

	if (!bpf_rdonly_cast)
		return;
	next = bpf_rdonly_cast(thread_behind(task), bpf_core_type_id_kernel(struct task_struct));
	touch_task(thread_behind(next));
	if (next->tgid != task->tgid)
		return;
	word_at(next->thread_pid);
	/* The storage begins with a cache: mostly the mark's is its first entry. */
	mark = word_at(next->bpf_storage);
	if (mark)
		word_at(mark);
	link = next->preempt_notifiers.first;
	if (link)
		touch_vcpu(link - bpf_core_field_offset(struct kvm_vcpu, preempt_notifier) -
			   bpf_core_field_offset(struct preempt_notifier, link));
}

#endif
