/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Traces the threads of one VM, event by event, while a trace runs. A separate object: it
 * is loaded for one VM and not pinned, so it is unloaded with the process that loaded it,
 * however that process exits.
 *
 *   sched_switch, sched_wakeup(_new), sched_migrate_task ──► on, off, woken, moved
 *   kvm_exit, kvm_entry, kvm_userspace_exit, kvm_vcpu_wakeup ► guest, exits, halts
 *   throttle_cfs_rq, unthrottle_cfs_rq ──────────────────► throttling by quotas
 *
 * Each program first tests one bit: whether the thread is traced. Other threads of the
 * host cost nothing more.
 */
#include "kvm_exit.bpf.h"
#include "trace_event.bpf.h"

static __always_inline void set_peer(struct trace_event *event, struct task_struct *peer)
{
	event->peer_tid = peer->pid;
	bpf_core_read(event->peer_comm, sizeof(event->peer_comm), &peer->comm);
}

static __always_inline __u32 throttled_flags(struct task_struct *task)
{
	if (!HAS_THROTTLED_TASKS(task))
		return 0;
	return TRACE_SHOWS_THROTTLED | (is_task_throttled(task) ? TRACE_IS_THROTTLED : 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(trace_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 prev_tid = prev->pid, next_tid = next->pid, cpu, state;
	bool is_off = is_traced(prev_tid), is_on = is_traced(next_tid);
	struct trace_event *event;
	__u64 now_ns;

	if (!is_off && !is_on)
		return 0;
	now_ns = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	state = task_state(prev);
	event = is_off ? reserve_event(TRACE_OFF, prev_tid, cpu, now_ns) : NULL;
	if (event) {
		event->flags = throttled_flags(prev);
		/* A task that is preempted before it sleeps stays runnable. */
		if (preempt || !state)
			event->flags |= TRACE_RUNNABLE;
		else if (state & TASK_DEAD)
			event->flags |= TRACE_ENDED;
		else if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
			event->flags |= TRACE_UNINTERRUPTIBLE;
		set_peer(event, next);
		submit_event(event);
	}
	if (is_off && !preempt && state & TASK_DEAD) {
		set_traced(prev_tid, false);
		bpf_map_delete_elem(&traced_threads, &prev_tid);
	}
	event = is_on ? reserve_event(TRACE_ON, next_tid, cpu, now_ns) : NULL;
	if (event) {
		set_peer(event, prev);
		submit_event(event);
	}
	return 0;
}

static __always_inline void emit_woken(struct task_struct *task, __u32 tid)
{
	struct trace_event *event;

	event = reserve_event(TRACE_WOKEN, tid, task_pcpu(task), bpf_ktime_get_ns());
	if (!event)
		return;
	event->flags = throttled_flags(task);
	submit_event(event);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(trace_wakeup, struct task_struct *task)
{
	__u32 tid = task->pid;

	if (is_traced(tid))
		emit_woken(task, tid);
	return 0;
}

/* If the thread group leader is traced, so are all threads of the process. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(trace_wakeup_new, struct task_struct *task)
{
	__u32 tid = task->pid, tgid = task->tgid;
	struct traced fresh = {};
	struct trace_event *event;

	if (!is_traced(tgid) || is_traced(tid))
		return 0;
	if (bpf_map_update_elem(&traced_threads, &tid, &fresh, BPF_ANY)) {
		count_lost();
		return 0;
	}
	set_traced(tid, true);
	event = reserve_event(TRACE_BORN, tid, task_pcpu(task), bpf_ktime_get_ns());
	if (event) {
		event->value = tgid;
		set_peer(event, task);
		submit_event(event);
	}
	emit_woken(task, tid);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(trace_migrate, struct task_struct *task, int dest_cpu)
{
	__u32 tid = task->pid;
	struct trace_event *event;

	if (!is_traced(tid))
		return 0;
	event = reserve_event(TRACE_MOVED, tid, dest_cpu, bpf_ktime_get_ns());
	if (event)
		submit_event(event);
	return 0;
}

/* Guest events of this CPU in the current window of 8.4 ms. */
struct budget {
	__u64 window;
	__u64 used;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct budget);
} trace_budget SEC(".maps");

/* Whether this CPU may emit one more guest event in this window. */
static __always_inline bool is_within_budget(__u64 now_ns)
{
	__u32 zero = 0;
	struct budget *budget = bpf_map_lookup_elem(&trace_budget, &zero);
	/* 8.4 ms, without a division. */
	__u64 window = now_ns >> 23;

	if (!budget)
		return false;
	if (budget->window != window) {
		budget->window = window;
		budget->used = 0;
	}
	return budget->used++ < TRACE_KVM_BUDGET;
}

/* Reserves an event of this thread's guest; NULL if the budget is used up. */
static __always_inline struct trace_event *reserve_guest_event(__u32 kind)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now_ns;

	if (!is_traced(tid))
		return NULL;
	now_ns = bpf_ktime_get_ns();
	if (!is_within_budget(now_ns)) {
		count_lost_event(bpf_map_lookup_elem(&traced_threads, &tid), kind);
		return NULL;
	}
	return reserve_event(kind, tid, bpf_get_smp_processor_id(), now_ns);
}

static __always_inline void emit_exit(struct trace_event *event, const struct kvm_exit *exit)
{
	struct kvm_vcpu *vcpu = exit->vcpu;

	event->flags = exit->is_svm ? TRACE_SVM : 0;
	if (!exit->is_known)
		event->flags |= TRACE_NO_REASON;
	event->value = (__u64)(__u32)READ_OR(0, vcpu->stat.exits) << 32 | exit->reason;
	event->extra = READ_OR(0, vcpu->halt_poll_ns);
	submit_event(event);
}

/* A tracepoint rejects a program that reads more arguments than it has: if this program
 * is rejected, the next one is used. */
SEC("raw_tp/kvm_exit")
int trace_exit_of_3(struct bpf_raw_tracepoint_args *ctx)
{
	struct trace_event *event = reserve_guest_event(TRACE_EXIT);
	struct kvm_exit exit;

	if (!event)
		return 0;
	read_exit_of_3(&exit, ctx);
	emit_exit(event, &exit);
	return 0;
}

SEC("raw_tp/kvm_exit")
int trace_exit_of_2(struct bpf_raw_tracepoint_args *ctx)
{
	struct trace_event *event = reserve_guest_event(TRACE_EXIT);
	struct kvm_exit exit;

	if (!event)
		return 0;
	read_exit_of_2(&exit, ctx);
	emit_exit(event, &exit);
	return 0;
}

SEC("raw_tp/kvm_entry")
int trace_entry(struct bpf_raw_tracepoint_args *ctx)
{
	struct trace_event *event = reserve_guest_event(TRACE_ENTRY);

	if (event)
		submit_event(event);
	return 0;
}

/* (u32 reason, int errno), v5.10 to v7.3. */
SEC("raw_tp/kvm_userspace_exit")
int trace_to_vmm(struct bpf_raw_tracepoint_args *ctx)
{
	struct trace_event *event = reserve_guest_event(TRACE_TO_VMM);

	if (!event)
		return 0;
	event->value = (__u32)ctx->args[0];
	submit_event(event);
	return 0;
}

/* (u64 ns, bool waited, bool valid), v5.10 to v7.3. */
SEC("raw_tp/kvm_vcpu_wakeup")
int trace_halt_end(struct bpf_raw_tracepoint_args *ctx)
{
	struct trace_event *event = reserve_guest_event(TRACE_HALT_END);

	if (!event)
		return 0;
	event->value = ctx->args[0];
	if (ctx->args[1] & 1)
		event->flags = TRACE_SLEPT;
	submit_event(event);
	return 0;
}

static __always_inline void emit_throttling(struct cfs_rq *queue, __u32 kind)
{
	struct task_group *group = queue->tg;
	__u64 id = group ? cgroup_id(group->css.cgroup) : 0;
	struct trace_event *event;

	if (!bpf_map_lookup_elem(&traced_groups, &id))
		return;
	event = reserve_event(kind, 0, queue->rq->cpu, bpf_ktime_get_ns());
	if (!event)
		return;
	event->value = id;
	submit_event(event);
}

SEC("fexit/throttle_cfs_rq")
int BPF_PROG(trace_throttle, struct cfs_rq *queue, bool throttled)
{
	if (throttled)
		emit_throttling(queue, TRACE_THROTTLED);
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(trace_unthrottl, struct cfs_rq *queue)
{
	/* Since v6.18 the kernel may find that there is still no runtime and keep the run
	 * queue throttled. */
	if (!is_queue_throttled(queue))
		emit_throttling(queue, TRACE_UNTHROTTLED);
	return 0;
}

/* The programs' helpers are for GPL-compatible programs only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
