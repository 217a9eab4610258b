/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that have slept since the former pass. The kernel changes the times and counters of
 * a thread while it runs, so for a thread that has not run a pass reads six cache lines instead
 * of 22, and emits a reference to its former record. These are the idle workers of a VMM, and
 * the vCPUs of a paused or halted guest.
 *
 * Each pass remembers every thread that it emits: a `sleeper`. The next pass, which visits the
 * same threads in the same order, except for those that were created or have exited, compares:
 *
 *   asleep, and as many context switches as before       it has not run
 *   same start, flags, CPU, policy, affinity, cgroup     others have not changed it
 *   map `touches` unchanged                              neither its name, its process's name,
 *                                                        nor its vCPU, which others can change
 *                                                        too, and which are rarely changed
 *   the agent changed no map that decides on owners      its owner is the same
 *
 * In full are always emitted: the first thread of a process, which finds its VM, and the thread
 * of a VM's first vCPU, with which the VM's memory is emitted.
 */
#ifndef VIRTLENS_SLEPT_BPF_H
#define VIRTLENS_SLEPT_BPF_H

#include "stream.bpf.h"
#include "cgroup_record.bpf.h"

/* Threads that a pass remembers, 1300 VMs with 12 threads each: the others are emitted in
 * full. */
#define SLEEPERS_MAX 16384
/* Words of an affinity mask that are remembered: 512 CPUs. On larger hosts all threads are
 * emitted in full. */
#define SLEEPER_WORDS 8
/* Number of threads that may have exited between two that both passes visit. */
#define EXITS_MAX 64

/* include/linux/sched.h: equal in all kernels. A thread that is being woken (TASK_WAKING)
 * has neither. */
#define TASK_SLEEPS 3

/* A thread as a pass has emitted it. */
struct sleeper {
	/* Address of its task_struct. */
	__u64 task;
	__u64 start_ns;
	/* Context switches, read before its times. UNKNOWN: emit it in full again. */
	__u64 switches;
	/* Id of its cgroup. */
	__u64 cgroup;
	__u32 pcpu;
	__u32 flags;
	__u32 policy;
	/* It was emitted in full. */
	__u32 is_full;
	__u64 mask[SLEEPER_WORDS];
};

/* The threads of this pass and those of the former one: the low bit of a pass's number selects
 * the half. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * SLEEPERS_MAX);
	__type(key, __u32);
	__type(value, struct sleeper);
} sleepers SEC(".maps");

static __always_inline struct sleeper *sleeper_at(__u64 pass, __u32 at)
{
	__u32 index = at + (pass & 1) * SLEEPERS_MAX;

	return at < SLEEPERS_MAX ? bpf_map_lookup_elem(&sleepers, &index) : NULL;
}

/* Begins a pass that may refer to the `former_threads` threads of the former one. */
static __always_inline void begin_references(struct pass_cache *cache, __u32 former_threads)
{
	__u32 zero = 0;
	struct touches *touched = bpf_map_lookup_elem(&touches, &zero);

	if (!touched || cfg.mask_words > SLEEPER_WORDS)
		return;
	/* The kernel calls on_rename before it writes the name, so the pass in between sees the
	 * former name: the next one still reads all threads. */
	if (touched->seen_before == touched->count)
		cache->former_threads = former_threads;
	touched->seen_before = touched->seen;
	touched->seen = touched->count;
}

/* Searches the thread at `address` among the threads of the former pass, behind the one that was
 * found last. Returns whether it is there; cache->former is the position behind it then. */
ONCE bool search_former(__u64 address)
{
	struct control *control = get_control();
	struct pass_cache *cache;
	struct sleeper *former;
	__u32 at;

	if (!control)
		return false;
	cache = get_pass_cache(control);
	if (!cache)
		return false;
	for (__u32 exited = 0; exited < EXITS_MAX; exited++) {
		at = cache->former + exited;
		if (at >= cache->former_threads)
			return false;
		former = sleeper_at(cache->pass - 1, at);
		if (!former)
			return false;
		if (former->task == address) {
			cache->former = at + 1;
			return true;
		}
	}
	return false;
}

/* Returns the thread of the former pass that `task` was; NULL if it had no such thread. */
static __always_inline struct sleeper *find_former(struct task_struct *task,
						   struct pass_cache *cache)
{
	if (!search_former(address_of(task)))
		return NULL;
	return sleeper_at(cache->pass - 1, cache->former - 1);
}

static __always_inline __u64 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

/* Calls `each` for the words of the affinity mask of `task`. Unrolled, because the verifier
 * allows reads at constant offsets only. */
#define FOR_EACH_MASK_WORD(task, each)                                              \
	do {                                                                        \
		__u64 __offset = bpf_core_field_offset(struct task_struct, cpus_mask); \
		const __u64 *__words;                                               \
                                                                                    \
		/* Without this the compiler reads a word as if it were the field. */ \
		barrier_var(__offset);                                              \
		__words = (void *)(task) + __offset;                                \
		_Pragma("unroll") for (__u32 word = 0; word < SLEEPER_WORDS; word++) { \
			if (word < cfg.mask_words)                                  \
				each(word, __words[word]);                          \
		}                                                                   \
	} while (0)

/* Remembers a thread that is about to be emitted in full. Its switches are read before its
 * times: if it runs in between, they differ the next time. (x86 reads in this order.) */
static __always_inline void remember(struct task_struct *task, struct pass_cache *cache)
{
	struct sleeper *sleeper = sleeper_at(cache->pass, cache->threads);

	if (cache->former_threads)
		search_former(address_of(task));
	if (!sleeper)
		return;
	sleeper->task = address_of(task);
	sleeper->switches = switches_of(task);
	barrier();
	/* A thread that was preempted before it slept. */
	if (task->on_rq)
		sleeper->switches = UNKNOWN;
	sleeper->start_ns = task->start_boottime;
	sleeper->pcpu = task_pcpu(task);
	sleeper->flags = task->flags;
	sleeper->policy = task->policy;
	sleeper->is_full = 1;
#define COPY_WORD(at, bits) sleeper->mask[at] = (bits)
	FOR_EACH_MASK_WORD(task, COPY_WORD);
}

/* The thread that was remembered last was emitted. */
static __always_inline void was_emitted(struct pass_cache *cache)
{
	struct sleeper *sleeper = sleeper_at(cache->pass, cache->threads);

	cache->threads += 1;
	if (!sleeper)
		return;
	sleeper->cgroup = cache->cgroup_id;
	if (cache->is_first_vcpu)
		sleeper->switches = UNKNOWN;
}

/* Whether a thread that was in no run queue and has not been switched since sleeps. To enter a run
 * queue it is woken, and has another state until it has run. */
static __always_inline bool is_asleep(struct task_struct *task)
{
	return bpf_core_field_exists(task->on_cpu) && task_state(task) & TASK_SLEEPS &&
	       !task->on_cpu;
}

/* Whether the record of the former pass is still right, except for its cgroup. */
static __always_inline bool has_slept(struct task_struct *task, const struct sleeper *former)
{
	__u64 changed = 0;

	if (!is_asleep(task) || switches_of(task) != former->switches ||
	    task->start_boottime != former->start_ns || task_pcpu(task) != former->pcpu ||
	    task->flags != former->flags || task->policy != former->policy)
		return false;
#define COMPARE_WORD(at, bits) changed |= former->mask[at] ^ (bits)
	FOR_EACH_MASK_WORD(task, COMPARE_WORD);
	return !changed;
}

/* Whether the thread `ahead` threads after the present one has probably slept. */
static __always_inline bool seems_asleep(struct task_struct *task, struct pass_cache *cache,
					 __u32 ahead)
{
	struct sleeper *former = NULL;

	if (cache->refers)
		former = sleeper_at(cache->pass - 1, cache->former + ahead);
	return former && former->task == address_of(task) &&
	       former->switches == switches_of(task);
}

/* Emits a reference to the record of the thread that find_former found, or extends the last
 * reference. */
static __always_inline void emit_reference(struct stream *to, struct pass_cache *cache)
{
	struct slept_record *last = (void *)to->bytes + (cache->slept_at & (STREAM_BYTES - 1));
	__u32 from = cache->former - 1;

	if (cache->slept_end && cache->slept_end == to->used && last->from + last->count == from) {
		last->count += 1;
		return;
	}
	cache->slept_at = to->used;
	last = next_record(to);
	last->head.kind = RECORD_SLEPT;
	last->head.size = sizeof(*last);
	last->from = from;
	last->at = cache->threads;
	last->count = 1;
	last->pad = 0;
	to->used += sizeof(*last);
	cache->slept_end = to->used;
}

/* Emits `task` as a reference to its record of the former pass; false if it must be emitted in
 * full. */
static __always_inline bool emit_slept(struct stream *to, struct task_struct *task,
				       struct pass_cache *cache)
{
	struct sleeper *former, *sleeper;

	former = find_former(task, cache);
	if (!former)
		return false;
	if (!has_slept(task, former) ||
	    emit_own_cgroups((struct output *)to, task, cache) != former->cgroup) {
		/* It is found again when it is emitted in full. */
		cache->former -= 1;
		return false;
	}
	emit_reference(to, cache);
	sleeper = sleeper_at(cache->pass, cache->threads);
	if (sleeper) {
		*sleeper = *former;
		sleeper->is_full = 0;
	}
	cache->threads += 1;
	return true;
}

#endif
