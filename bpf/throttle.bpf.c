/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a CPU quota was exhausted, for how long, and which thread was running.
 *
 *   throttle_cfs_rq ───► a run queue of the cgroup is throttled: counts a hit for
 *                        the running thread
 *   unthrottle_cfs_rq ─► it is unthrottled: counts the duration by the kernel's
 *                        own clock, and the part of it in which no other CPU of
 *                        the cgroup was throttled
 *
 * Both run with the run queue locked, at most once per CPU and period. So they write only
 * to maps that do not allocate elements: before v6.1 an allocation may wake a thread or,
 * on PREEMPT_RT, sleep.
 *
 * Since v6.18 ("sched/fair: Switch to task based throttle model") the kernel stops a
 * thread only when it returns to user space, and a thread that never returns, such as a
 * vhost worker, keeps running. The kernel starts its clock when it stops the first thread:
 * a throttling is counted from there, and one that stopped no thread has duration 0.
 * Before v6.18 the kernel stops all threads of the run queue at once.
 */
#include "owner.bpf.h"
#include "thread_class.bpf.h"

/* The end of the counted wall time of a level, and the last gaps before it in which no
 * counted run queue was throttled: a run queue that is unthrottled late may have been
 * throttled during some of them. 32 periods are seconds. */
#define WALL_GAPS 32
struct wall_gap {
	__u64 from_ns;
	__u64 to_ns;
};
struct wall_time {
	/* Held if several CPUs may count at once. */
	struct bpf_spin_lock lock;
	__u32 gaps_made;
	__u64 until_ns;
	struct wall_gap gaps[WALL_GAPS];
};
/* The agent creates the entry of a level before the level itself: the programs run with a
 * run queue locked, where they must not allocate, and preallocated entries would take 9
 * MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct wall_time);
} walls SEC(".maps");

/* The run queue that this CPU is unthrottling. */
struct unthrottling {
	__u64 queue;
	__u64 throttled_clock;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unthrottling);
} unthrottling SEC(".maps");

/* How often threads were running when a quota was exhausted. The agent removes the
 * entries of former owners. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct thread_class);
	__type(value, __u64);
} throttle_hits SEC(".maps");

static const __u32 throttle_bounds_ms[] = THROTTLE_BOUNDS_MS;

static __always_inline __u64 group_id(struct task_group *group)
{
	return group ? cgroup_id(group->css.cgroup) : 0;
}

/* Whether a task's CPU time is charged to `group`. */
static __always_inline bool is_charged(struct task_struct *task, struct task_group *group)
{
	struct task_group *at = task->sched_task_group;

	for (int depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (!at)
			return false;
		if (at == group)
			return true;
		at = at->parent;
	}
	return false;
}

/* Returns the task that runs on the CPU of `queue`, NULL if that is another CPU: a task
 * that wakes up in a group without remaining quota throttles the group from another CPU,
 * and then no thread of the group was running. */
static __always_inline struct task_struct *running_task(struct cfs_rq *queue)
{
	struct task_struct *task;

	/* Task storage requires a trusted task: only the current one is. */
	if (!cfg.task_storage)
		return queue->rq->curr;
	task = bpf_get_current_task_btf();
	return (__u64)task == (__u64)queue->rq->curr ? task : NULL;
}

/* Counts a hit for the running thread if it belongs to the group. */
static __always_inline void count_hit(struct cfs_rq *queue, __u64 level)
{
	struct task_struct *task = running_task(queue);
	struct control *control = get_control();
	struct thread_class class;
	struct owner owner = {};
	struct thread_state *state;
	__u64 one = 1, *hits;

	if (!task || !control || !has_limits(task) || !is_charged(task, queue->tg))
		return;
	state = state_or_miss(task);
	if (!owner_of(task, state, control, NULL, false, &owner))
		return;
	classify(task, state, &owner, level, &class);
	hits = bpf_map_lookup_elem(&throttle_hits, &class);
	if (!hits && !bpf_map_update_elem(&throttle_hits, &class, &one, BPF_NOEXIST))
		return;
	if (!hits)
		hits = bpf_map_lookup_elem(&throttle_hits, &class);
	if (hits)
		__sync_fetch_and_add(hits, 1);
	else
		count_drop(DROP_HITS_FULL);
}

/* Returns the part of a run queue's throttled time, from `from_ns` to now, that is not
 * yet counted as wall time. Calls come in the order of end times, so an overlap is with
 * the end of the counted time or with a recorded gap before it. */
static __always_inline __u64 new_wall_ns(struct wall_time *wall, __u64 from_ns, __u64 now_ns)
{
	__u64 new_ns = 0, fill_ns;

	if (from_ns > wall->until_ns) {
		__u32 next = wall->gaps_made++ % WALL_GAPS;

		wall->gaps[next].from_ns = wall->until_ns;
		wall->gaps[next].to_ns = from_ns;
	} else {
		for (__u32 i = 0; i < WALL_GAPS; i++) {
			fill_ns = wall->gaps[i].from_ns;
			if (from_ns >= wall->gaps[i].to_ns)
				continue;
			if (fill_ns < from_ns)
				fill_ns = from_ns;
			new_ns += wall->gaps[i].to_ns - fill_ns;
			wall->gaps[i].to_ns = fill_ns;
		}
		from_ns = wall->until_ns;
	}
	if (now_ns > from_ns)
		new_ns += now_ns - from_ns;
	if (now_ns > wall->until_ns)
		wall->until_ns = now_ns;
	return new_ns;
}

static __always_inline void count_wall(struct cfs_rq *queue, __u64 id, __u64 throttled_ns,
				       struct level *level)
{
	struct wall_time *wall = bpf_map_lookup_elem(&walls, &id);
	__u64 now_ns = bpf_ktime_get_ns(), new_ns;

	if (!wall) {
		count_drop(DROP_WALLS_FULL);
		return;
	}
	if (is_unthrottled_at_once(queue)) {
		bpf_spin_lock(&wall->lock);
		new_ns = new_wall_ns(wall, now_ns - throttled_ns, now_ns);
		bpf_spin_unlock(&wall->lock);
	} else {
		new_ns = new_wall_ns(wall, now_ns - throttled_ns, now_ns);
	}
	__sync_fetch_and_add(&level->wall_ns, new_ns);
}

static __always_inline void count_duration(struct level *level, __u64 throttled_ns)
{
	__u32 kind = THROTTLE_DURATIONS - 1;

	for (__u32 i = THROTTLE_DURATIONS - 1; i-- > 0;)
		if (throttled_ns <= throttle_bounds_ms[i] * 1000000ULL)
			kind = i;
	if (kind < THROTTLE_DURATIONS)
		__sync_fetch_and_add(&level->durations[kind], 1);
	__sync_fetch_and_add(&level->duration_sum_ns, throttled_ns);
}

SEC("fexit/throttle_cfs_rq")
int BPF_PROG(on_throttle, struct cfs_rq *queue, bool throttled)
{
	__u64 id = group_id(queue->tg);
	struct level *level = bpf_map_lookup_elem(&levels, &id);

	if (!level || !throttled || !is_active())
		return 0;
	__sync_fetch_and_add(&level->throttles, 1);
	count_hit(queue, id);
	count_change(CHANGE_THROTTLE);
	return 0;
}

/* The start of the throttling is known only before unthrottle_cfs_rq, its duration only
 * after: the function updates the run queue's clock. */
SEC("fentry/unthrottle_cfs_rq")
int BPF_PROG(pre_unthrottle, struct cfs_rq *queue)
{
	__u32 zero = 0;
	struct unthrottling *here = bpf_map_lookup_elem(&unthrottling, &zero);

	if (!here || !is_active())
		return 0;
	here->queue = is_queue_throttled(queue) ? (__u64)queue : 0;
	here->throttled_clock = queue->throttled_clock;
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(on_unthrottle, struct cfs_rq *queue)
{
	__u64 id = group_id(queue->tg), throttled_ns;
	struct level *level = bpf_map_lookup_elem(&levels, &id);
	__u32 zero = 0;
	struct unthrottling *here = bpf_map_lookup_elem(&unthrottling, &zero);

	if (!level || !here || !is_active() || here->queue != (__u64)queue)
		return 0;
	/* Since v6.18 the kernel may find that there is still no runtime and keep the run
	 * queue throttled. */
	if (is_queue_throttled(queue))
		return 0;
	throttled_ns = here->throttled_clock ? queue->rq->clock - here->throttled_clock : 0;
	count_duration(level, throttled_ns);
	if (throttled_ns)
		count_wall(queue, id, throttled_ns, level);
	count_change(CHANGE_THROTTLE);
	return 0;
}
