/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every throttling of every run queue, as it happens, without aggregation. */
#include "compat.bpf.h"

enum { THROTTLED, BEFORE_UNTHROTTLE, AFTER_UNTHROTTLE };

struct event {
	__u64 time_ns;
	__u64 cgroup;
	__u64 queue;
	/* The clock of the run queue's CPU, and its value when its first
	 * thread was throttled. */
	__u64 clock;
	__u64 stood_clock;
	__u32 kind;
	__u32 is_throttled;
	/* The running thread if this is the run queue's CPU, else 0. */
	__u32 tid;
	__u32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

__u64 lost = 0;

static __always_inline void emit(struct cfs_rq *queue, __u32 kind)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	event->time_ns = bpf_ktime_get_ns();
	event->cgroup = BPF_CORE_READ(queue, tg, css.cgroup, kn, id);
	event->queue = (__u64)queue;
	event->clock = BPF_CORE_READ(queue, rq, clock);
	event->stood_clock = BPF_CORE_READ(queue, throttled_clock);
	event->kind = kind;
	event->is_throttled = is_queue_throttled(queue);
	event->cpu = bpf_get_smp_processor_id();
	event->tid = event->cpu == (__u32)BPF_CORE_READ(queue, rq, cpu) ?
			     (__u32)bpf_get_current_pid_tgid() :
			     0;
	bpf_ringbuf_submit(event, 0);
}

SEC("fexit/throttle_cfs_rq")
int BPF_PROG(saw_throttle, struct cfs_rq *queue, bool throttled)
{
	if (throttled)
		emit(queue, THROTTLED);
	return 0;
}

SEC("fentry/unthrottle_cfs_rq")
int BPF_PROG(saw_unthrottle_begin, struct cfs_rq *queue)
{
	emit(queue, BEFORE_UNTHROTTLE);
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(saw_unthrottle_end, struct cfs_rq *queue)
{
	emit(queue, AFTER_UNTHROTTLE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
