/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass for kernels where a program can iterate over tasks itself. It emits the
 * same data as the iterator program. A task iterator looks up each pid in turn, takes a
 * reference to the task and starts the program again; this program follows the kernel's
 * lists of processes and threads. It fetches the next two tasks before it emits one, so it
 * prefetches without guessing.
 *
 * A run stops when the stream is full or TASKS_MAX tasks were visited, because on a
 * non-preemptible kernel nothing else gets this CPU meanwhile. The next run resumes at
 * the task in `struct walk` and at no other: the lists are only nearly in the order of
 * start times (copy_process, kernel/fork.c). If that task has exited meanwhile, its
 * position in the list is lost, and the agent restarts the pass.
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

/* Maximum number of tasks per run. */
#define TASKS_MAX 8192

/* Whether `task` is the task at which the walk resumes. */
static __always_inline bool is_next(struct task_struct *task, const struct walk *walk)
{
	return (__u32)task->pid == walk->tid && task->start_boottime == walk->start_ns;
}

/* Since v6.9: e2b3c4ff5d18 ("bpf: add __arg_trusted global func arg tag"). */
#define TRUSTED __attribute__((btf_decl_tag("arg:trusted")))

/* Handles one task; false if it has no owner. The function is global, so that the verifier
 * checks it once and not for each path that leads to it. It takes the RCU read lock
 * again: the verifier does not know that the caller holds it, and without it would create
 * task storage with an allocation that may sleep. */
__noinline bool sample_next(struct task_struct *task TRUSTED)
{
	struct control *control = get_control();
	struct pass_cache *cache;
	struct output *out;
	__u32 zero = 0;
	bool has_owner;

	out = output_to_stream(bpf_map_lookup_elem(&stream, &zero));
	if (!control || !out)
		return false;
	cache = get_pass_cache(control);
	if (!cache)
		return false;
	bpf_rcu_read_lock();
	has_owner = sample(out, task, control, cache);
	bpf_rcu_read_unlock();
	return has_owner;
}

/* Like prefetch_task, for a trusted task: a read is a single instruction, so that more
 * reads are in flight at once. */
static __always_inline void prefetch_trusted(const struct task_struct *task)
{
#define PREFETCH_FIELD(field) ((void)*(volatile typeof(task->field) *)&task->field)
	FOR_EACH_TASK_LINE(PREFETCH_FIELD);
}

/* Result of visiting one task. */
enum progress {
	/* It has no owner, or the walk resumes further on. */
	WITHOUT_OWNER,
	WITH_OWNER,
	/* The run ends before this task. */
	STOPPED,
};

/* Visits a task: emits it, or stops the run there. */
static __always_inline enum progress visit(struct task_struct *task, struct walk *walk,
					   struct stream *to)
{
	if (walk->tid && !is_next(task, walk))
		return WITHOUT_OWNER;
	walk->tid = 0;
	if (walk->seen >= TASKS_MAX || to->used > STREAM_BYTES - TASK_OUTPUT_MAX) {
		walk->tid = task->pid;
		walk->start_ns = task->start_boottime;
		return STOPPED;
	}
	walk->seen += 1;
	return sample_next(task) ? WITH_OWNER : WITHOUT_OWNER;
}

SEC("syscall")
int walk_tasks(struct walk *walk)
{
	struct task_struct *task = NULL, *next = NULL, *after_next;
	enum progress progress = WITHOUT_OWNER;
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
	while ((after_next = bpf_iter_task_next(&tasks))) {
		/* Little is read of a task without an owner, and the tasks after it
		 * mostly have none either, so prefetching is skipped. */
		if (progress == WITH_OWNER) {
			prefetch_trusted(after_next);
			if (next)
				prefetch_pointees(next);
			if (next && task && FOLLOW(next->cgroups) != FOLLOW(task->cgroups))
				prefetch_cgroup(next);
		}
		if (task)
			progress = visit(task, walk, to);
		if (progress == STOPPED)
			break;
		task = next;
		next = after_next;
	}
	bpf_iter_task_destroy(&tasks);
	if (task && progress != STOPPED)
		progress = visit(task, walk, to);
	if (next && progress != STOPPED)
		visit(next, walk, to);
	bpf_rcu_read_unlock();
	return 0;
}
