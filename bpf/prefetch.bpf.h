/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefetching. A pass reads about thirty cache lines per thread that has run, and between two
 * passes the caches are filled with other data: most of the time of a pass is spent waiting for
 * memory. So while a pass handles one thread, it touches the data of the next two and
 * does not wait for it:
 *
 *   the one after the next    fields of its task_struct
 *   the next                  the data that it points to: thread state, vCPU
 *
 * A walk that refers to the former pass (slept.bpf.h) knows their addresses from it, and touches
 * those of 16 threads at once. An iterator program can only guess the next threads: mostly the threads of a process
 * follow each other, as in the process's list. The values read here are only used to
 * touch more data; an invalid address reads as 0 (PROBE_MEM).
 */
#ifndef VIRTLENS_PREFETCH_BPF_H
#define VIRTLENS_PREFETCH_BPF_H

#include "maps.bpf.h"
#include "owner.bpf.h"

/* Returns the thread after `task` in its process's list. After the last one the result
 * points to no task. */
static __always_inline void *thread_after(const void *task)
{
	return CAST_READ(task, task_struct, thread_node) -
	       bpf_core_field_offset(struct task_struct, thread_node);
}

/* Fields of a task_struct that a pass reads, each on another cache line: those that show whether
 * the thread has slept (slept.bpf.h), and those that are read if it has not. */
#define FOR_EACH_SLEEP_LINE(of)                                                \
	of(flags);                                                             \
	of(policy);                                                            \
	of(thread_node.next);                                                  \
	of(signal);                                                            \
	of(start_boottime);                                                    \
	of(cgroups)
#define FOR_EACH_RUN_LINE(of)                                                  \
	of(on_rq);                                                             \
	of(se.sum_exec_runtime);                                               \
	of(preempt_notifiers.first);                                           \
	of(sched_info.run_delay);                                              \
	of(pid);                                                               \
	of(group_leader);                                                      \
	of(gtime);                                                             \
	of(comm[0]);                                                           \
	of(bpf_storage)

/* Fields of a process's leader that a walk reads to find out that it has no owner. */
#define FOR_EACH_LEADER_LINE(of)                                               \
	of(flags);                                                             \
	of(tasks);                                                             \
	of(mm);                                                                \
	of(pid);                                                               \
	of(start_boottime);                                                    \
	of(cgroups);                                                           \
	of(bpf_storage)

static __always_inline void prefetch_task(const void *task)
{
#define PREFETCH_WORD(field) CAST_READ(task, task_struct, field)
	FOR_EACH_SLEEP_LINE(PREFETCH_WORD);
	FOR_EACH_RUN_LINE(PREFETCH_WORD);
}

static __always_inline void prefetch_leader(const void *task)
{
	FOR_EACH_LEADER_LINE(PREFETCH_WORD);
}

/* Touches the fields of a vCPU that a pass reads. */
static __always_inline void prefetch_vcpu(const void *vcpu)
{
	CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_poll_success_ns);
	CAST_READ(vcpu, kvm_vcpu, stat.generic.halt_wait_ns);
	CAST_READ(vcpu, kvm_vcpu, stat.pf_fixed);
	CAST_READ(vcpu, kvm_vcpu, stat.exits);
	CAST_READ(vcpu, kvm_vcpu, stat.halt_exits);
	CAST_READ(vcpu, kvm_vcpu, stat.directed_yield_attempted);
}

/* Touches the data that a task points to: its thread state, its vCPU. */
static __always_inline void prefetch_pointees(const struct task_struct *task)
{
	const void *state, *link;

	/* The storage begins with a cache, whose first entry mostly is the thread state. */
	state = cast_read(FOLLOW(task->bpf_storage));
	if (state)
		cast_read(state);
	link = FOLLOW(task->preempt_notifiers.first);
	if (link)
		prefetch_vcpu(link - bpf_core_field_offset(struct kvm_vcpu, preempt_notifier) -
			      bpf_core_field_offset(struct preempt_notifier, link));
}

/* Touches the cgroup of a task. */
static __always_inline void prefetch_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = task_cgroup(task);

	if (cgroup)
		CAST_READ(cgroup->kn, kernfs_node, id);
}

/* Touches the data that the threads after `task` will need. */
static __always_inline void prefetch_next(struct task_struct *task)
{
	struct task_struct *next;

	if (!bpf_rdonly_cast)
		return;
	next = bpf_rdonly_cast(thread_after(task), bpf_core_type_id_kernel(struct task_struct));
	prefetch_task(thread_after(next));
	if (next->tgid != task->tgid)
		return;
	prefetch_pointees(next);
}

#endif
