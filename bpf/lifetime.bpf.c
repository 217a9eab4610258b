/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The times of threads that exit.
 *
 *   sched_process_exit ──► adds its times so far to `retired`, and notes that in its state
 *   … the task pass may still see it: it emits only the time beyond that
 *   sched_process_free ──► adds the time since then (a large VM's teardown)
 *
 * The time that a thread used before a class change is in `retired` already: see
 * retire.bpf.h. A thread that starts and exits between two passes is found here too. Its
 * role follows from its names, so the names are part of the key.
 *
 * The kernel skips a program if the CPU is already running it (__bpf_trace_run,
 * kernel/trace/bpf_trace.c). Tracepoints used to disable preemption; in 7.2 they do not
 * (__DECLARE_TRACE, include/linux/tracepoint.h), so the exit program may miss threads
 * that exit at the same time. The free program, which nothing interrupts, adds all of the
 * time of those.
 */
#include "retire.bpf.h"
#include "placement.bpf.h"
#include "vcpu.bpf.h"

/* Adds the times of an exiting thread, and stores them in its state, if it has one. */
static __always_inline void retire_exiting(struct task_struct *task, struct thread_state *state,
					   const struct owner *owner)
{
	struct retired times = {};
	__u64 level = level_of(task);

	read_times(task, &times);
	times.threads = 1;
	if (state) {
		hold(&times, &state->retired);
		state->retired.threads = 1;
		state->retired_level = level;
		__builtin_memcpy(state->leader_comm, FOLLOW(task->group_leader)->comm, COMM_LEN);
		state->has_exited = 1;
	}
	retire(task, state, owner, level, &times);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct control *control = get_control();
	struct thread_state *state = state_of(task);
	struct owner owner = {};

	if (!control || !is_active() || !owner_of(task, state, control, NULL, true, &owner))
		return 0;
	if (!state)
		state = make_state(task, &owner);
	/* With states_complete, on_free handles a thread whose state cannot be created. */
	if (state ? state->has_exited : cfg.states_complete)
		return 0;
	if (state) {
		follow_owner(task, state, &owner, control);
		charge_pcpu(task, state);
		store_counters(task, state);
	}
	retire_exiting(task, state, &owner);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
	struct control *control = get_control();
	struct thread_state *state = state_of(task);
	bool has_exited = state && state->has_exited;
	struct retired times = {};
	struct owner owner = {};
	__u64 level;

	if (!control || !is_active() || (!has_exited && !cfg.states_complete))
		return 0;
	/* false: its parent may be freed already. */
	if (!owner_of(task, state, control, NULL, false, &owner))
		return 0;
	if (!owner.tgid)
		delete_child(task);
	if (!state && may_have_state(task)) {
		count_drop(DROP_MARK_UNREAD);
		return 0;
	}
	read_times(task, &times);
	if (state)
		subtract(&times, &state->retired);
	if (has_exited) {
		level = state->retired_level;
	} else {
		times.threads = 1;
		level = level_of(task);
	}
	if (state)
		charge_pcpu(task, state);
	/* KVM may have freed its counters by now. */
	if (state && state->vcpu && !has_exited)
		count_drop(DROP_ENDED_VCPUS_MISSED);
	if (times.threads || times.run_ns || times.wait_ns)
		retire(task, state, &owner, level, &times);
	delete_state(task);
	return 0;
}
