/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The times of threads that exit.
 *
 *   sched_process_exit ──► adds its times so far to `retired`; marks the thread
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

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct control *control = get_control();
	struct mark *mark = mark_of(task);
	struct retired times = {}, now;
	struct owner owner = {};
	__u64 level;

	if (!control || !is_active() || !owner_of(task, mark, control, NULL, true, &owner))
		return 0;
	if (!mark)
		mark = make_mark(task, &owner);
	/* With marks_all, a thread that cannot be marked is left to on_free. */
	if (mark ? mark->has_exited : cfg.marks_all)
		return 0;
	if (mark)
		follow_owner(task, mark, &owner, control);
	read_times(task, &times);
	times.threads = 1;
	level = find_level(task_cgroup(task));
	if (mark) {
		charge_pcpu(task, mark);
		keep_counters(task, mark);
		now = times;
		subtract(&times, &mark->retired);
		mark->retired = now;
		mark->retired_level = level;
		__builtin_memcpy(mark->leader_comm, task->group_leader->comm, COMM_LEN);
		mark->has_exited = 1;
	}
	retire(task, mark, &owner, level, &times);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
	struct control *control = get_control();
	struct mark *mark = mark_of(task);
	bool has_exited = mark && mark->has_exited;
	struct retired times = {};
	struct owner owner = {};
	__u64 level;

	if (!control || !is_active() || (!has_exited && !cfg.marks_all))
		return 0;
	/* false: its parent may be freed already. */
	if (!owner_of(task, mark, control, NULL, false, &owner))
		return 0;
	if (!owner.tgid)
		forget_child(task);
	if (!mark && may_have_mark(task)) {
		count_drop(DROP_MARK_UNREAD);
		return 0;
	}
	read_times(task, &times);
	if (mark)
		subtract(&times, &mark->retired);
	if (has_exited) {
		level = mark->retired_level;
	} else {
		times.threads = 1;
		level = find_level(task_cgroup(task));
	}
	if (mark)
		charge_pcpu(task, mark);
	/* KVM may have freed its counters by now. */
	if (mark && mark->vcpu && !has_exited)
		count_drop(DROP_ENDED_VCPUS_MISSED);
	if (times.threads || times.run_ns || times.wait_ns)
		retire(task, mark, &owner, level, &times);
	forget_mark(task);
	return 0;
}
