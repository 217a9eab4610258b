/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that change their name by prctl(PR_SET_NAME), /proc/PID/comm or execve. The
 * tracepoint is called before the new name is written (__set_task_comm, fs/exec.c, v5.10
 * to v7.2; include/trace/events/task.h).
 */
#include "retire.bpf.h"

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task)
{
	struct control *control = get_control();
	struct owner owner = {};
	struct thread_state *state;
	bool has_others;

	/* Most threads set their name right after their start, before any pass has seen
	 * them. */
	if (!control || task->start_boottime >= control->begun_ns || !is_active())
		return 0;
	state = state_of(task);
	if (!owner_of(task, state, control, NULL, true, &owner))
		return 0;
	has_others = task->pid == task->tgid && FOLLOW(task->signal)->nr_threads > 1;
	/* The records of the other threads have the name of their leader. */
	if (has_others || address_of(task) != bpf_get_current_task())
		count_touch();
	/* The class of a vCPU does not depend on its name. */
	if (state && (state->vcpu || state->has_exited))
		return 0;
	/* The roles of a pod's threads also depend on the name of their process. */
	if (!owner.tgid && has_others)
		count_drop(DROP_PROCESS_RENAMED);
	if (!state)
		state = make_state(task, &owner);
	if (!state)
		return 0;
	follow_owner(task, state, &owner, control);
	retire_class(task, state, &owner, control);
	return 0;
}
