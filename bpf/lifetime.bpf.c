/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What threads that ended had used.
 *
 *   sched_process_exit ──► its times so far go to `retired`; marked
 *   … the task pass may still see it: it tells what is beyond that
 *   sched_process_free ──► what it used since (a large VM's teardown)
 *
 * A thread nobody asked about between its birth and its end is found here
 * too. Its role is judged by its names, which therefore are the key.
 *
 * The kernel leaves a program out where that program was interrupted on the same
 * CPU (__bpf_trace_run, kernel/trace/bpf_trace.c). Tracepoints used to keep others
 * from that CPU meanwhile; in 7.2 they do not (__DECLARE_TRACE,
 * include/linux/tracepoint.h), so of threads that end at once the first program may
 * miss some. The second one, which nothing interrupts, retires those whole.
 */
#include "owner.bpf.h"
#include "placement.bpf.h"
#include "vcpu.bpf.h"

/* Distinct (name, kind, vCPU) an owner may retire: 64 vCPUs and as many
 * names. Beyond it all goes to one entry, without names. */
#define NAMES_PER_OWNER 128

static __always_inline void read_times(struct task_struct *task, struct retired *times)
{
	times->run_ns = task->se.sum_exec_runtime;
	times->wait_ns = task->sched_info.run_delay;
	times->guest_ns = task->gtime;
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

static __noinline void retire(struct task_struct *task, const struct owner *owner, __u32 vcpu_id,
			      __u64 level, const struct retired *times)
{
	struct thread_class key;

	classify(task, owner, vcpu_id, level, &key);
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

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct control *control = get_control();
	struct mark *mark = mark_of(task);
	struct retired times = { .threads = 1 };
	struct owner owner = {};
	__u64 level;

	if (!control || !is_active() || !owner_of(task, mark, control, NULL, true, &owner))
		return 0;
	if (!mark)
		mark = make_mark(task, &owner);
	/* What cannot be marked is left to on_free, too. */
	if (mark ? mark->is_retired : cfg.marks_all)
		return 0;
	read_times(task, &times);
	level = find_level(task_cgroup(task));
	if (mark) {
		charge_pcpu(task, mark);
		keep_counters(task, mark);
		mark->retired = times;
		mark->retired_level = level;
		mark->is_retired = 1;
	}
	retire(task, &owner, mark ? mark->vcpu_id : ~0U, level, &times);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
	struct control *control = get_control();
	struct mark *mark = mark_of(task);
	bool is_retired = mark && mark->is_retired;
	struct retired times = {};
	struct owner owner = {};
	__u64 level;

	if (!control || !is_active() || (!is_retired && !cfg.marks_all))
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
	if (is_retired) {
		times.run_ns -= mark->retired.run_ns;
		times.wait_ns -= mark->retired.wait_ns;
		times.guest_ns -= mark->retired.guest_ns;
		level = mark->retired_level;
	} else {
		times.threads = 1;
		level = find_level(task_cgroup(task));
	}
	if (mark)
		charge_pcpu(task, mark);
	/* By now KVM may have given back what it counted in. */
	if (mark && mark->vcpu && !is_retired)
		count_drop(DROP_ENDED_VCPUS_MISSED);
	if (times.threads || times.run_ns || times.wait_ns)
		retire(task, &owner, mark ? mark->vcpu_id : ~0U, level, &times);
	forget_mark(task);
	return 0;
}
