/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What threads that ended had used.
 *
 *   sched_process_exit ──► its times so far go to `retired`; marked
 *   … the task pass may still see it: it tells what is beyond that
 *   sched_process_free ──► what it used since (a large VM's teardown)
 *
 * What a thread had used before its class changed is there already: see retire.bpf.h.
 * A thread nobody asked about between its birth and its end is found here
 * too. Its role is judged by its names, which therefore are the key.
 *
 * The kernel leaves a program out where that program was interrupted on the same
 * CPU (__bpf_trace_run, kernel/trace/bpf_trace.c). Tracepoints used to keep others
 * from that CPU meanwhile; in 7.2 they do not (__DECLARE_TRACE,
 * include/linux/tracepoint.h), so of threads that end at once the first program may
 * miss some. The second one, which nothing interrupts, retires those whole.
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
	/* What cannot be marked is left to on_free, too. */
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
	/* Its parent may be gone. */
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
	/* By now KVM may have given back what it counted in. */
	if (mark && mark->vcpu && !has_exited)
		count_drop(DROP_ENDED_VCPUS_MISSED);
	if (times.threads || times.run_ns || times.wait_ns)
		retire(task, mark, &owner, level, &times);
	forget_mark(task);
	return 0;
}
