/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What threads had used in a class that they have no more: as they end, and as something
 * changes that their role depends on, their name, their owner or the vCPU that they run.
 *
 *   class changes ──► its times so far go to `retired` under the old class
 *                     its mark keeps them: they are subtracted from all that follows
 *
 * So roles are counted right without anybody who remembers the thread, also while no
 * agent runs. A thread that no reading has shown has no old class: all of its time is
 * of the class in which it is first shown.
 */
#ifndef VIRTLENS_RETIRE_BPF_H
#define VIRTLENS_RETIRE_BPF_H

#include "owner.bpf.h"

/* Distinct (name, kind, vCPU) an owner may retire: 64 vCPUs and as many
 * names. Beyond it all goes to one entry, without names. */
#define NAMES_PER_OWNER 128

static __always_inline void read_times(struct task_struct *task, struct retired *times)
{
	times->run_ns = task->se.sum_exec_runtime;
	times->wait_ns = task->sched_info.run_delay;
	times->guest_ns = task->gtime;
}

/* Takes off what `retired` holds already. */
static __always_inline void subtract(struct retired *times, const struct retired *held)
{
	times->run_ns -= held->run_ns;
	times->wait_ns -= held->wait_ns;
	times->guest_ns -= held->guest_ns;
}

/* Whether the owner may have one more name; counts it. */
static __always_inline bool take_name(const struct owner *owner)
{
	__u32 tgid = owner->tgid, *names;
	struct watch *watch;
	struct vm *vm;

	if (tgid) {
		vm = bpf_map_lookup_elem(&vms, &tgid);
		if (!vm)
			return false;
		names = &vm->names;
	} else {
		watch = bpf_map_lookup_elem(&watched, &owner->id);
		if (!watch)
			return false;
		names = &watch->names;
	}
	if (*names >= NAMES_PER_OWNER)
		return false;
	__sync_fetch_and_add(names, 1);
	return true;
}

static __always_inline bool add_retired(const struct thread_class *key, const struct retired *times)
{
	struct retired *sum = bpf_map_lookup_elem(&retired, key);

	if (!sum)
		return false;
	__sync_fetch_and_add(&sum->threads, times->threads);
	__sync_fetch_and_add(&sum->run_ns, times->run_ns);
	__sync_fetch_and_add(&sum->wait_ns, times->wait_ns);
	__sync_fetch_and_add(&sum->guest_ns, times->guest_ns);
	return true;
}

/* Adds to an entry that may have to be made. Two CPUs may make it at once:
 * the one that loses adds to the other's. */
static __always_inline bool make_retired(const struct thread_class *key, const struct retired *times)
{
	return !bpf_map_update_elem(&retired, key, times, BPF_NOEXIST) || add_retired(key, times);
}

static __noinline void retire(struct task_struct *task, const struct mark *mark,
			      const struct owner *owner, __u64 level, const struct retired *times)
{
	struct thread_class key;

	classify(task, mark, owner, level, &key);
	if (add_retired(&key, times))
		return;
	if (take_name(owner) && make_retired(&key, times))
		return;
	count_drop(DROP_RETIRED_NAMES);
	__builtin_memset(key.comm, 0, sizeof(key.comm));
	__builtin_memset(key.leader_comm, 0, sizeof(key.leader_comm));
	if (!add_retired(&key, times) && !make_retired(&key, times))
		count_drop(DROP_RETIRED_FULL);
}

/* Retires what `task` used so far in the class that it still has, but for its owner, who
 * is given. */
static __noinline void retire_class(struct task_struct *task, struct mark *mark,
				    const struct owner *owner, const struct control *control)
{
	struct retired times = {}, now;

	read_times(task, &times);
	now = times;
	subtract(&times, &mark->retired);
	if (!times.run_ns && !times.wait_ns)
		return;
	now.threads = mark->retired.threads;
	mark->retired = now;
	mark->class_changes += 1;
	mark->changed_pass = control->pass;
	retire(task, mark, owner, find_level(task_cgroup(task)), &times);
}

/* A marked thread has become somebody else's. */
static __always_inline void follow_owner(struct task_struct *task, struct mark *mark,
					 const struct owner *owner, const struct control *control)
{
	struct owner before = mark->owner;

	if (before.tgid == owner->tgid && before.id == owner->id)
		return;
	mark->owner = *owner;
	if (task->start_boottime < control->shown_ns && !mark->has_exited)
		retire_class(task, mark, &before, control);
}

/* Whose an unmarked thread of a VM's process was as the last reading showed it; false if
 * none has. The VM may be one that was not known then. */
static __noinline bool shown_owner(struct task_struct *task, struct owner *owner,
				   const struct control *control)
{
	__u32 tgid = task->tgid;
	struct watch *watch;
	struct vm *vm;

	if (task->start_boottime >= control->shown_ns)
		return false;
	vm_owner(task, owner);
	vm = bpf_map_lookup_elem(&vms, &tgid);
	if (vm && vm->start_ns == owner->id && was_shown(vm->since_pass, control))
		return true;
	owner->id = control->watched ? pod_of(task_cgroup(task), control) : 0;
	owner->tgid = 0;
	watch = bpf_map_lookup_elem(&watched, &owner->id);
	return watch && was_shown(watch->since_pass + 1, control);
}

#endif
