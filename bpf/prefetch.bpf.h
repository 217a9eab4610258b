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
 * those of 16 threads at once; and those of the process after the next one, with its VM and its
 * cgroups (hints.bpf.h). An iterator program can only guess the next threads: mostly the
 * threads of a process follow each other, as in the process's list. The values read here are
 * only used to touch more data; an invalid address reads as 0 (PROBE_MEM).
 */
#ifndef VIRTLENS_PREFETCH_BPF_H
#define VIRTLENS_PREFETCH_BPF_H

#include "maps.bpf.h"
#include "hints.bpf.h"
#include "owner.bpf.h"
#include "vm_of_mm.bpf.h"

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

static __always_inline void prefetch_entry(const struct entry_hints *its)
{
	if (!its->value)
		return;
	cast_read((void *)its->value);
	cast_read((void *)its->head);
	cast_read((void *)its->former);
}

static __always_inline void prefetch_cgroup_hints(const struct cgroup_hints *its)
{
	CAST_READ(its->cgroup, cgroup, self.parent);
	CAST_READ(its->cgroup, cgroup, kn);
	CAST_READ(its->node, kernfs_node, id);
	CAST_READ(its->group, task_group, css.cgroup);
	CAST_READ(its->group, task_group, parent);
	CAST_READ(its->group, task_group, cfs_bandwidth.quota);
	CAST_READ(its->group, task_group, cfs_bandwidth.nr_periods);
	if (its->memory) {
		CAST_READ(its->memory, mem_cgroup, memory.usage.counter);
		CAST_READ(its->memory, mem_cgroup, memory.max);
	}
	prefetch_entry(&its->emitted);
}

/* Touches the objects of a process that the former pass has read, except its threads. */
static __always_inline void prefetch_hints(const struct hints *its)
{
	prefetch_leader((void *)its->leader);
	CAST_READ(its->pid, pid, tasks);
	CAST_READ(its->css_set, css_set, subsys);
	CAST_READ(its->css_set, css_set, dfl_cgrp);
	cast_read((void *)its->mm + bpf_core_field_offset(struct mm_struct, notifier_subscriptions));
	CAST_READ(its->mm, mm_struct, hugetlb_usage);
	CAST_READ(its->mm, mm_struct, hiwater_rss);
	CAST_READ(its->mm, mm_struct, rss_stat[0]);
	CAST_READ(its->mm, mm_struct, rss_stat[1]);
	CAST_READ(its->mm, mm_struct, rss_stat[3]);
	CAST_READ(its->notifiers, mmu_notifier_subscriptions, list.first);
	CAST_READ(its->vcpus, xa_node, slots);
	CAST_READ(its->first_vcpu, kvm_vcpu, kvm);
	cast_read((void *)its->storage);
	cast_read((void *)its->storage + 64);
	cast_read((void *)its->state);
	cast_read((void *)its->state + 64);
	cast_read((void *)its->state + 128);
	cast_read((void *)its->state + sizeof(struct thread_state) - 8);
	prefetch_entry(&its->vm);
	for (int at = 0; at < HINT_CGROUPS; at++)
		prefetch_cgroup_hints(&its->cgroups[at]);
}

/* Touches the VM of a process that is alive, if its hints are right. */
static __always_inline void prefetch_vm(struct task_struct *leader, const struct hints *its)
{
	__u64 mm = address_of(FOLLOW(leader->mm)), list, link;
	const void *kvm;

	if (!mm || mm != its->mm)
		return;
	list = notifiers_of(mm);
	if (!list)
		return;
	link = word_at(list + bpf_core_field_offset(struct mmu_notifier_subscriptions, list.first));
	if (!link)
		return;
	kvm = (void *)vm_of_notifier(link);
	CAST_READ(kvm, kvm, mm);
	CAST_READ(kvm, kvm, memslots[0]);
	CAST_READ(kvm, kvm, vcpu_array);
	CAST_READ(kvm, kvm, online_vcpus.counter);
	CAST_READ(kvm, kvm, stat);
	CAST_READ(kvm, kvm, arch);
	CAST_READ(kvm, kvm, users_count.refs.counter);
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
