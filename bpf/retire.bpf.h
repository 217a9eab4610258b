/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The times that threads used in a former class, and their context switches: they are
 * added to `retired` when a thread exits, and when its name, its owner or its vCPU
 * changes, on which its role depends.
 *
 *   class changes ──► its times so far are added to `retired` under the old class,
 *                     and its state stores them, to subtract them from all later times
 *
 * So the time per role is correct without a memory of each thread, also while no agent
 * runs. A thread that was in no reading has no old class: all of its time belongs to the
 * class in which it is first shown.
 */
#ifndef VIRTLENS_RETIRE_BPF_H
#define VIRTLENS_RETIRE_BPF_H

#include "owner.bpf.h"
#include "thread_class.bpf.h"

/* Distinct classes (name, kind, vCPU) per owner in `retired`: 64 vCPUs and as many names.
 * Beyond that all times are added to one entry without names. */
#define NAMES_PER_OWNER 128

/* Up to NAMES_PER_OWNER names per owner; the agent removes former owners. Enough for 512
 * VMs with all their names, thousands with the usual ten. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct thread_class);
	__type(value, struct retired);
} retired SEC(".maps");

static __always_inline void read_times(struct task_struct *task, struct retired *times)
{
	times->run_ns = task->se.sum_exec_runtime;
	times->wait_ns = task->sched_info.run_delay;
	times->guest_ns = task->gtime;
	times->timeslices = task->sched_info.pcount;
	times->involuntary_switches = task->nivcsw;
}

/* Subtracts the times and counts that `retired` already holds. */
static __always_inline void subtract(struct retired *times, const struct retired *held)
{
	times->run_ns -= held->run_ns;
	times->wait_ns -= held->wait_ns;
	times->guest_ns -= held->guest_ns;
	times->timeslices -= held->timeslices;
	times->involuntary_switches -= held->involuntary_switches;
}

/* Subtracts the times and counts that `held` has, and stores the former values in it.
 * Without a copy on the stack, of which the deepest programs have little left. */
static __always_inline void hold(struct retired *times, struct retired *held)
{
	__u64 now;

#define HOLD(field)                                                            \
	now = times->field;                                                    \
	times->field -= held->field;                                           \
	held->field = now
	HOLD(run_ns);
	HOLD(wait_ns);
	HOLD(guest_ns);
	HOLD(timeslices);
	HOLD(involuntary_switches);
#undef HOLD
}

/* Reserves one more name for the owner; false if its share is used up. */
static __always_inline bool reserve_name(const struct owner *owner)
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
	__sync_fetch_and_add(&sum->timeslices, times->timeslices);
	__sync_fetch_and_add(&sum->involuntary_switches, times->involuntary_switches);
	return true;
}

/* Adds to an entry, and creates it if necessary. If two CPUs create it at once, the
 * second one adds to the entry of the first. */
static __always_inline bool make_retired(const struct thread_class *key,
					 const struct retired *times)
{
	return !bpf_map_update_elem(&retired, key, times, BPF_NOEXIST) || add_retired(key, times);
}

static __always_inline void retire_as(struct thread_class *key, const struct owner *owner,
				      const struct retired *times)
{
	if (add_retired(key, times))
		return;
	if (reserve_name(owner) && make_retired(key, times))
		return;
	count_drop(DROP_RETIRED_NAMES);
	__builtin_memset(key->comm, 0, sizeof(key->comm));
	__builtin_memset(key->leader_comm, 0, sizeof(key->leader_comm));
	if (!add_retired(key, times) && !make_retired(key, times))
		count_drop(DROP_RETIRED_FULL);
}

static __noinline void retire(struct task_struct *task, const struct thread_state *state,
			      const struct owner *owner, __u64 level, const struct retired *times)
{
	struct thread_class key;

	classify(task, state, owner, level, &key);
	retire_as(&key, owner, times);
	/* Also counts the change of `ended_vcpus` that on_exit made before. */
	count_change(CHANGE_RETIRED);
}

/* Adds the time of `task` that is not in `retired` yet, under its present class with
 * `owner` as the owner. */
static __noinline void retire_class(struct task_struct *task, struct thread_state *state,
				    const struct owner *owner, const struct control *control)
{
	struct retired times = {};

	read_times(task, &times);
	if (times.run_ns == state->retired.run_ns && times.wait_ns == state->retired.wait_ns)
		return;
	hold(&times, &state->retired);
	state->class_changes += 1;
	state->changed_pass = control->pass;
	retire(task, state, owner, level_of(task), &times);
}

/* Handles a changed owner of a thread that has a state. */
static __always_inline void follow_owner(struct task_struct *task, struct thread_state *state,
					 const struct owner *owner, const struct control *control)
{
	struct owner before = state->owner;

	if (before.tgid == owner->tgid && before.id == owner->id)
		return;
	state->owner = *owner;
	if (task->start_boottime < control->shown_ns && !state->has_exited)
		retire_class(task, state, &before, control);
}

/* Finds the owner under which the last reading showed a thread of a VM's process that has
 * no state; false if no reading showed it. The VM may have been unknown at that time. */
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
	owner->id = control->watched ? pod_of_task(task) : 0;
	owner->tgid = 0;
	watch = bpf_map_lookup_elem(&watched, &owner->id);
	return watch && was_shown(watch->since_pass + 1, control);
}

#endif
