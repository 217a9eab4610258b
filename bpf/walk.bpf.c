/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass for kernels where a program can follow the lists of tasks itself. It emits
 * the same data as the iterator program. Its cost depends on the threads with an owner:
 *
 *   every process ── descent_into ──► NO_THREADS: the next process
 *                          └─ every thread ──► sample()
 *
 * Processes are only looked at, by direct reads. Those that may be owned are held, and their
 * threads are visited; the next three threads are fetched before one is emitted, so it
 * prefetches without guessing. Threads that have slept since the former pass are emitted as
 * references to it (slept.bpf.h).
 *
 * A run stops when the stream is full or TASKS_MAX tasks were visited, because on a
 * non-preemptible kernel nothing else gets this CPU meanwhile. The next run resumes at the
 * thread in `struct walk` and at no other: the lists are only nearly in the order of start
 * times (copy_process, kernel/fork.c). If that thread has exited meanwhile, its position in
 * the list is lost, and the agent restarts the pass.
 */

#include "slept.bpf.h"
#include "strays.bpf.h"

/* Since v6.7: c68a78ffe2cb ("bpf: Introduce task open coded iterator kfuncs"). */
struct bpf_iter_task {
	__u64 opaque[3];
};
enum {
	PROC_THREADS = 2,
};
extern int bpf_iter_task_new(struct bpf_iter_task *walk, struct task_struct *process,
			     unsigned int what) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *walk) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *walk) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;
/* These are older: v6.4 and v6.2 (kernel/bpf/bpf_iter.c, kernel/bpf/helpers.c). */
struct bpf_iter_num {
	__u64 opaque[1];
};
extern int bpf_iter_num_new(struct bpf_iter_num *steps, int start, int end) __ksym __weak;
extern int *bpf_iter_num_next(struct bpf_iter_num *steps) __ksym __weak;
extern void bpf_iter_num_destroy(struct bpf_iter_num *steps) __ksym __weak;
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

/* Maximum number of tasks per run. */
#define TASKS_MAX 8192

/* A single thread is moved to another cgroup. A process moves with its leader, which each
 * pass looks at. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_move, struct cgroup *to, const char *path, struct task_struct *task,
	     bool is_process)
{
	if (!is_process && task->pid != task->tgid && is_active() && pod_at(address_of(to)))
		add_stray(task->tgid);
	return 0;
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
	remember(task, cache);
	bpf_rcu_read_lock();
	has_owner = sample(out, task, control, cache);
	bpf_rcu_read_unlock();
	if (!has_owner)
		return false;
	was_emitted(cache);
	/* Its first thread has found the VM of the process. */
	cache->refers = cache->former_threads && cache->mm_tgid == (__u32)task->tgid;
	if (task->pid == task->tgid)
		cache->owned_tgid = task->tgid;
	else if (cache->owned_tgid != (__u32)task->tgid)
		add_stray(task->tgid);
	return true;
}

/* Like prefetch_task, in two parts. Of a task that the verifier does not trust: see FOLLOW. */
#define PREFETCH_FIELD(field) ((void)*(volatile typeof(task->field) *)&task->field)
static __always_inline void prefetch_sleep(const struct task_struct *task)
{
	FOR_EACH_SLEEP_LINE(PREFETCH_FIELD);
}

static __always_inline void prefetch_run(const struct task_struct *task)
{
	FOR_EACH_RUN_LINE(PREFETCH_FIELD);
}

/* Number of threads whose lines are prefetched at once: the CPU waits for all of them once. */
#define BATCH 16
/* Threads that walk_threads has fetched beyond the one that it visits. */
#define FETCHED_AHEAD 4

static __always_inline struct task_struct *task_at(__u64 address)
{
	return bpf_rdonly_cast((const void *)address,
			       bpf_core_type_id_kernel(struct task_struct));
}

/* Prefetches the lines of the next threads of the former pass that its threads have in common
 * with this one. Their addresses are known without the list of threads, in which each one
 * is only found once its predecessor is in the cache. */
__noinline int prefetch_batch(void)
{
	struct control *control = get_control();
	struct pass_cache *cache;
	struct task_struct *task;
	struct sleeper *former;

	if (!control)
		return 0;
	cache = get_pass_cache(control);
	if (!cache)
		return 0;
	for (int at = 0; at < BATCH; at++) {
		former = sleeper_at(cache->pass - 1, cache->prefetched + at);
		if (!former)
			break;
		task = task_at(former->task);
		prefetch_sleep(task);
		if (former->is_full)
			prefetch_run(task);
	}
	cache->prefetched += BATCH;
	return 0;
}

/* Emits a task as a reference to the former pass; false if it must be emitted in full. A global
 * function, like sample_next. */
__noinline bool refer_to(struct task_struct *task TRUSTED)
{
	struct control *control = get_control();
	struct pass_cache *cache;
	struct stream *to;
	__u32 zero = 0;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!control || !to)
		return false;
	cache = get_pass_cache(control);
	if (!cache || !cache->former_threads)
		return false;
	if (cache->former + FETCHED_AHEAD >= cache->prefetched)
		prefetch_batch();
	return cache->refers && emit_slept(to, task, cache);
}

/* How far a pass descends into a process. */
enum descent {
	NO_THREADS = 0,
	/* Its threads, if the leader turns out to have an owner. */
	IF_OWNED = 1,
	ALL_THREADS = 2,
};

/* Decides whether threads of the process whose leader is at `address` may have an owner. A
 * global function, like sample_next. */
__noinline __u32 descent_into(__u64 address)
{
	struct task_struct *leader = task_at(address);
	struct control *control = get_control();
	__u32 tgid = leader->tgid;
	struct pass_cache *cache;
	struct mm_struct *mm;

	if (!control)
		return NO_THREADS;
	cache = get_pass_cache(control);
	if (!cache)
		return NO_THREADS;
	cache->refers = 0;
	/* The idle task. */
	if (!leader->pid)
		return NO_THREADS;
	if (!(leader->flags & PF_KTHREAD)) {
		mm = FOLLOW(leader->mm);
		/* A leader that has exited has no address space. */
		if (!mm && FOLLOW(leader->signal)->nr_threads > 1)
			return ALL_THREADS;
		if (control->all_threads ||
		    (cache->has_strays && bpf_map_lookup_elem(&strays, &tgid)))
			return ALL_THREADS;
		if (mm && FOLLOW(mm->notifier_subscriptions))
			return IF_OWNED;
	}
	/* A thread with a state had an owner before. */
	if (FOLLOW(leader->bpf_storage))
		return IF_OWNED;
	return owner_of(leader, NULL, control, cache, true, &cache->owner) ? IF_OWNED : NO_THREADS;
}

/* Result of visiting one task. */
enum progress {
	WITHOUT_OWNER,
	WITH_OWNER,
	/* The run ends before this task. */
	STOPPED,
};

/* Whether the run must end before the next task. */
static __always_inline bool is_over(const struct walk *walk, const struct stream *to)
{
	return walk->seen >= TASKS_MAX || to->used > STREAM_BYTES - TASK_OUTPUT_MAX;
}

static __always_inline void stop_at(struct walk *walk, struct task_struct *task)
{
	walk->tid = task->pid;
	walk->start_ns = task->start_boottime;
}

/* Visits a thread: emits it, or stops the run there. */
static __always_inline enum progress visit(struct task_struct *task, struct walk *walk,
					   struct stream *to)
{
	if (is_over(walk, to)) {
		stop_at(walk, task);
		return STOPPED;
	}
	walk->seen += 1;
	return refer_to(task) || sample_next(task) ? WITH_OWNER : WITHOUT_OWNER;
}

/* Whether the leader was visited and has no owner, so that its threads have none either. */
static __always_inline bool is_done(struct task_struct *task, enum progress progress,
				    enum descent descent)
{
	return descent == IF_OWNED && progress == WITHOUT_OWNER && task->pid == task->tgid;
}

/* Prefetches what the next threads need: for the third the lines that show whether it has
 * slept, then the others of those that have not. */
static __always_inline void prefetch_threads(struct task_struct *task, struct task_struct *next,
					     struct task_struct *second,
					     struct task_struct *third, struct pass_cache *cache)
{
	if (!cache->former_threads) {
		prefetch_sleep(task_at(address_of(third)));
		if (second)
			prefetch_run(task_at(address_of(second)));
	}
	if (!next)
		return;
	if (!seems_asleep(next, cache, 1))
		prefetch_pointees(next);
	if (task && FOLLOW(next->cgroups) != FOLLOW(task->cgroups))
		prefetch_cgroup(next);
}

/* Visits the threads of a process from `first` on; false if the run stops there. */
static __always_inline bool walk_threads(struct task_struct *first, enum descent descent,
					 struct walk *walk, struct stream *to,
					 struct pass_cache *cache)
{
	struct task_struct *task = NULL, *next = NULL, *second = NULL, *third;
	enum progress progress = WITHOUT_OWNER;
	struct bpf_iter_task threads;
	bool is_last = false;

	bpf_iter_task_new(&threads, first, PROC_THREADS);
	while ((third = bpf_iter_task_next(&threads))) {
		if (progress == WITH_OWNER)
			prefetch_threads(task, next, second, third, cache);
		if (task) {
			progress = visit(task, walk, to);
			if (progress == STOPPED || is_done(task, progress, descent)) {
				is_last = true;
				break;
			}
		}
		task = next;
		next = second;
		second = third;
	}
	bpf_iter_task_destroy(&threads);
	if (task && !is_last) {
		progress = visit(task, walk, to);
		is_last = progress == STOPPED || is_done(task, progress, descent);
	}
	if (next && !is_last) {
		progress = visit(next, walk, to);
		is_last = progress == STOPPED || is_done(next, progress, descent);
	}
	if (second && !is_last)
		progress = visit(second, walk, to);
	return progress != STOPPED;
}

/* Prefetches the objects of the process after the next one, and the VM of the next one. */
__noinline int prefetch_processes(__u64 next)
{
	struct control *control = get_control();
	struct pass_cache *cache;
	struct hints *its;

	if (!control)
		return 0;
	cache = get_pass_cache(control);
	if (!cache)
		return 0;
	its = hints_ahead(cache, 2);
	if (its)
		prefetch_hints(its);
	its = hints_ahead(cache, 1);
	if (its)
		prefetch_vm(task_at(next), its);
	return 0;
}

/* Visits the threads of a process from the thread `tid` on; false if the run stops there. */
static __always_inline bool walk_process(__u32 tid, enum descent descent, struct walk *walk,
					 struct stream *to, struct pass_cache *cache)
{
	struct task_struct *first = bpf_task_from_pid(tid);
	bool goes_on;

	if (!first)
		return true;
	goes_on = walk_threads(first, descent, walk, to, cache);
	bpf_task_release(first);
	return goes_on;
}

/* Address of the leader of the process at which a run resumes, 0 if its thread has exited. */
static __always_inline __u64 leader_to_resume(const struct walk *walk)
{
	struct task_struct *task = bpf_task_from_pid(walk->tid);
	__u64 leader = 0;

	if (!task)
		return 0;
	if (task->start_boottime == walk->start_ns)
		leader = address_of(FOLLOW(task->group_leader));
	bpf_task_release(task);
	return leader;
}

/* Address of the leader of the process that runs the program. */
static __always_inline __u64 own_leader(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return address_of(FOLLOW(task->group_leader));
}

SEC("syscall")
int walk_tasks(struct walk *walk)
{
	__u32 zero = 0, any = ANY_STRAY, resume_tid = walk->tid, descent;
	struct task_struct *leader, *next;
	struct control *control = get_control();
	struct pass_cache *cache;
	struct bpf_iter_num steps;
	__u64 start, address;
	struct stream *to;

	to = bpf_map_lookup_elem(&stream, &zero);
	if (!to || !control)
		return 0;
	cache = get_pass_cache(control);
	if (!cache)
		return 0;
	to->used = 0;
	walk->seen = 0;
	if (!resume_tid)
		begin_references(cache, walk->former_threads);
	/* Also the thread at which it resumes may be the first of its process. */
	cache->refers = 0;
	cache->has_strays = bpf_map_lookup_elem(&strays, &any) != NULL;
	bpf_rcu_read_lock();
	/* The list of processes is a ring. A pass begins at the agent, which does not exit
	 * meanwhile, and ends there. */
	start = own_leader();
	address = resume_tid ? leader_to_resume(walk) : start;
	if (!address) {
		bpf_rcu_read_unlock();
		return 0;
	}
	leader = task_at(address);
	walk->tid = 0;
	bpf_iter_num_new(&steps, 0, TASKS_MAX + 1);
	while (bpf_iter_num_next(&steps)) {
		next = task_at(address_of(CAST_READ(leader, task_struct, tasks)) -
			       bpf_core_field_offset(struct task_struct, tasks));
		if (is_over(walk, to)) {
			stop_at(walk, leader);
			break;
		}
		walk->seen += 1;
		prefetch_leader(next);
		descent = resume_tid ? ALL_THREADS : descent_into(address_of(leader));
		if (descent) {
			prefetch_processes(address_of(next));
			begin_hints(address_of(leader));
			if (!walk_process(resume_tid ? resume_tid : leader->pid, descent, walk, to,
					  cache))
				break;
			cache->processes += 1;
		}
		if (address_of(next) == start)
			break;
		resume_tid = 0;
		leader = next;
	}
	bpf_iter_num_destroy(&steps);
	bpf_rcu_read_unlock();
	return 0;
}
