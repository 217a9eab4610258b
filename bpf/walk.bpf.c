/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass where programs can go from task to task by themselves: as an
 * iterator's, but for how it walks. An iterator asks for each pid in turn, holds the
 * task, and runs its program anew; this follows the lists of processes and threads.
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
	ALL_PROCESSES = 0,
	THREADS_OF_PROCESS = 2,
};
extern int bpf_iter_task_new(struct bpf_iter_task *walk, struct task_struct *process,
			     unsigned int what) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *walk) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *walk) __ksym __weak;
extern struct task_struct *bpf_task_acquire(struct task_struct *task) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;
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
 * would have marks made by an allocation that may sleep. */
__noinline int sample_next(struct task_struct *task TRUSTED)
{
	struct control *control = get_control();
	struct neighbour *last;
	struct stream *to;
	__u32 zero = 0;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!control || !to)
		return 0;
	last = get_neighbour(control);
	if (!last)
		return 0;
	bpf_rcu_read_lock();
	sample(to, task, control, last);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("syscall")
int walk_tasks(struct walk *walk)
{
	struct task_struct *leader, *process, *task;
	struct bpf_iter_task processes, threads;
	struct stream *to;
	__u32 zero = 0;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!to)
		return 0;
	to->used = 0;
	walk->seen = 0;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&processes, NULL, ALL_PROCESSES);
	while ((leader = bpf_iter_task_next(&processes))) {
		if (walk->tgid && (__u32)leader->tgid != walk->tgid)
			continue;
		process = bpf_task_acquire(leader);
		if (!process)
			continue;
		bpf_iter_task_new(&threads, process, THREADS_OF_PROCESS);
		while ((task = bpf_iter_task_next(&threads))) {
			if (walk->tgid && !is_next(task, walk))
				continue;
			walk->tgid = 0;
			if (walk->seen >= TASKS_MAX || to->used > STREAM_BYTES - TASK_TELLS_MAX) {
				walk->tgid = task->tgid;
				walk->tid = task->pid;
				walk->start_ns = task->start_boottime;
				break;
			}
			walk->seen += 1;
			sample_next(task);
		}
		bpf_iter_task_destroy(&threads);
		bpf_task_release(process);
		if (walk->tgid)
			break;
	}
	bpf_iter_task_destroy(&processes);
	bpf_rcu_read_unlock();
	return 0;
}
