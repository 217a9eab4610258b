/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass where programs can go from task to task by themselves: as an
 * iterator's, but for how it walks. An iterator asks for each pid in turn, holds the
 * task, and runs its program anew; this follows the lists of processes and threads. It
 * is two tasks ahead of the one that it tells of, and reads ahead without guessing.
 *
 * A walk stops where the stream is full or many tasks were seen, since nothing else
 * gets that CPU meanwhile where the kernel is not preemptible. The next run goes on with
 * the task that is named, and with no other: the lists are only nearly in the order in
 * which tasks began (copy_process, kernel/fork.c), so if that one has ended meanwhile,
 * nothing tells where its place was, and the agent begins the pass anew.
 */

/* Since v6.7: c68a78ffe2cb ("bpf: Introduce task open coded iterator kfuncs"). */
struct bpf_iter_task {
	__u64 opaque[3];
};
enum {
	ALL_THREADS = 1,
};
extern int bpf_iter_task_new(struct bpf_iter_task *walk, struct task_struct *process,
			     unsigned int what) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *walk) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *walk) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/* Tasks of a run. */
#define TASKS_MAX 8192

/* Whether a walk is to go on with `task`. */
static __always_inline bool is_next(struct task_struct *task, const struct walk *walk)
{
	return (__u32)task->pid == walk->tid && task->start_boottime == walk->start_ns;
}

/* Since v6.9: e2b3c4ff5d18 ("bpf: add __arg_trusted global func arg tag"). */
#define TRUSTED __attribute__((btf_decl_tag("arg:trusted")))

/* A global function, which the verifier follows once by itself, and not along each way
 * on which the walk may come there. So it does not know of the walk's lock either, and
 * would have marks made by an allocation that may sleep. False if the task is nobody's. */
__noinline bool sample_next(struct task_struct *task TRUSTED)
{
	struct control *control = get_control();
	struct neighbour *last;
	struct stream *to;
	__u32 zero = 0;
	bool is_told;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!control || !to)
		return false;
	last = get_neighbour(control);
	if (!last)
		return false;
	bpf_rcu_read_lock();
	is_told = sample(to, task, control, last);
	bpf_rcu_read_unlock();
	return is_told;
}

/* As touch_task, of a task that is trusted: a read is one instruction, so that more of
 * them are under way at once. */
static __always_inline void see_task(const struct task_struct *task)
{
#define SEE(field) ((void)*(volatile typeof(task->field) *)&task->field)
	EACH_LINE_OF_A_TASK(SEE);
}

/* How far a walk came. */
enum progress {
	AT_NOBODYS,
	AT_SOMEBODYS,
	STOPPED,
};

/* Is at a task: tells of it, or stops there. */
static __always_inline enum progress visit(struct task_struct *task, struct walk *walk,
					   struct stream *to)
{
	if (walk->tid && !is_next(task, walk))
		return AT_NOBODYS;
	walk->tid = 0;
	if (walk->seen >= TASKS_MAX || to->used > STREAM_BYTES - TASK_TELLS_MAX) {
		walk->tid = task->pid;
		walk->start_ns = task->start_boottime;
		return STOPPED;
	}
	walk->seen += 1;
	return sample_next(task) ? AT_SOMEBODYS : AT_NOBODYS;
}

SEC("syscall")
int walk_tasks(struct walk *walk)
{
	struct task_struct *task = NULL, *next = NULL, *ahead;
	enum progress progress = AT_NOBODYS;
	struct bpf_iter_task tasks;
	struct stream *to;
	__u32 zero = 0;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!to)
		return 0;
	to->used = 0;
	walk->seen = 0;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&tasks, NULL, ALL_THREADS);
	while ((ahead = bpf_iter_task_next(&tasks))) {
		/* Of nobody's tasks little is read: mostly those behind one are nobody's. */
		if (progress == AT_SOMEBODYS) {
			see_task(ahead);
			if (next)
				touch_belongings(next);
			if (next && task && next->cgroups != task->cgroups)
				touch_cgroup(next);
		}
		if (task)
			progress = visit(task, walk, to);
		if (progress == STOPPED)
			break;
		task = next;
		next = ahead;
	}
	bpf_iter_task_destroy(&tasks);
	if (task && progress != STOPPED)
		progress = visit(task, walk, to);
	if (next && progress != STOPPED)
		visit(next, walk, to);
	bpf_rcu_read_unlock();
	return 0;
}
