/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass: one walk over the host's tasks emits all data of every VM that the
 * kernel maintains itself.
 *
 *   task ── in KVM_RUN? ──► its vCPU: store it in the thread state, record its VM
 *        └─ owner? (owner.bpf.h) ──► no owner: done
 *   its cgroups up to the root, each once per pass ──► stream
 *   its times, its vCPU's counters, its affinity ──► stream
 *
 * While no program is attached to a hook, none is active: the pass then only emits the VMs
 * that it finds, and creates no thread state.
 *
 * When a pass finds a new VM, it may already have visited some of that VM's threads: the
 * agent sees the new VM and repeats the pass.
 *
 * If the buffer of the stream is full, the kernel drops all output of the current task
 * and calls the program again for the same task (bpf_seq_read, kernel/bpf/bpf_iter.c):
 * emitting must be repeatable.
 */
#include "prefetch.bpf.h"
#include "cgroup_record.bpf.h"
#include "placement.bpf.h"
#include "retire.bpf.h"
#include "halts.bpf.h"
#include "vm_of_mm.bpf.h"

/* Returns the vCPU that `task` has loaded, usually inside KVM_RUN. KVM is the only user
 * of preempt notifiers (vcpu_load, virt/kvm/kvm_main.c). Other vCPU ioctls load the vCPU
 * too: runs_vcpu excludes them. */
static __always_inline struct kvm_vcpu *loaded_vcpu(struct task_struct *task)
{
	struct hlist_node *link = FOLLOW(task->preempt_notifiers.first);

	if (!link)
		return NULL;
	return (void *)link - bpf_core_field_offset(struct kvm_vcpu, preempt_notifier) -
	       bpf_core_field_offset(struct preempt_notifier, link);
}

/* Returns the vCPU of a thread that the pass over open files found in user space. */
static __always_inline struct kvm_vcpu *found_vcpu(struct task_struct *task)
{
	__u32 tid = task->pid;
	__u64 *vcpu = bpf_map_lookup_elem(&vcpu_of_tid, &tid);

	return vcpu ? (struct kvm_vcpu *)*vcpu : NULL;
}

/* Records in its state that `task` is the thread of `vcpu`. If an earlier reading showed
 * the thread in another class, its time so far stays in that class: the vCPU may be
 * hot-plugged, or the thread was in user space when its VM was found. */
static __always_inline struct thread_state *set_vcpu(struct task_struct *task,
						     struct thread_state *state,
						     struct kvm_vcpu *vcpu,
						     const struct control *control,
						     struct pass_cache *cache)
{
	bool is_new = !state;
	__u32 vcpu_id;

	if (state && state->vcpu == (__u64)vcpu)
		return state;
	vm_owner(task, &cache->owner);
	add_vm(task, &cache->owner, control);
	if (!state)
		state = make_state(task, &cache->owner);
	if (state && state->vcpu != (__u64)vcpu) {
		/* A thread can run one vCPU after another. Before the first reading a state is
		 * from a time whose migrations were not seen. */
		if (control->shown_ns)
			charge_pcpu(task, state);
		vcpu_id = READ_OR(~0U, vcpu->vcpu_id);
		cache->former_owner = state->owner;
		if (is_new ? shown_owner(task, &cache->former_owner, control) :
			     state->vcpu_id != vcpu_id && task->start_boottime < control->shown_ns)
			retire_class(task, state, &cache->former_owner, control);
		state->owner = cache->owner;
		state->placed_ns = task->se.sum_exec_runtime;
		state->cpuid_session = 0;
		state->slots_session = 0;
		state->other_exits = 0;
		state->kinds = 0;
		state->pit = 0;
		state->vcpu_id = vcpu_id;
		state->vcpu_idx = READ_OR(~0U, vcpu->vcpu_idx);
		state->vcpu = (__u64)vcpu;
		/* The thread that ran it before may sleep. */
		count_touch();
	}
	return state;
}

/* Whether the thread was preempted inside the guest. Only a runnable task can have been
 * preempted (kvm_sched_out, virt/kvm/kvm_main.c), so the read is skipped otherwise. */
static __always_inline __u32 is_preempted(struct task_struct *task, struct kvm_vcpu *vcpu)
{
	return is_runnable(task) ? READ_OR(0, vcpu->preempted) : 0;
}

static __always_inline void fill_vcpu(struct vcpu_record *record, struct task_struct *task,
				      struct thread_state *state, bool is_vcpu_valid, __u64 *span)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)state->vcpu;

	__builtin_memset(record, 0, sizeof(*record));
	record->id = state->vcpu_id;
	record->index = state->vcpu_idx;
	record->instance = state->vcpu;
	/* Excludes the time in `retired`, like the times in the thread_record. */
	if (state->placed_ns > state->retired.run_ns)
		record->placed_ns = state->placed_ns - state->retired.run_ns;
	record->exits = UNKNOWN;
	if (!is_vcpu_valid)
		return;
	fill_counters(record, vcpu, span);
	keep_other_exits(record, state, vcpu);
	record->preempted = is_preempted(task, vcpu);
}

static __always_inline void fill_thread(struct thread_record *thread, struct task_struct *task,
					const struct thread_state *state, const struct owner *owner,
					const struct control *control)
{
	struct task_struct *leader;

	thread->head.kind = RECORD_THREAD;
	thread->owner = *owner;
	thread->tid = task->pid;
	thread->tgid = task->tgid;
	thread->start_ns = task->start_boottime;
	thread->run_ns = task->se.sum_exec_runtime;
	thread->wait_ns = task->sched_info.run_delay;
	thread->guest_ns = task->gtime;
	thread->timeslices = task->sched_info.pcount;
	thread->involuntary_switches = task->nivcsw;
	thread->pcpu = task_pcpu(task);
	thread->flags = thread_flags(task);
	__builtin_memcpy(thread->comm, task->comm, COMM_LEN);
	leader = FOLLOW(task->group_leader);
	if (has_leader(task)) {
		/* Without this the compiler reads one name through a pointer of two
		 * types. */
		barrier_var(leader);
		__builtin_memcpy(thread->leader_comm, leader->comm, COMM_LEN);
	} else {
		__builtin_memcpy(thread->leader_comm, task->comm, COMM_LEN);
	}
	thread->class_changes = 0;
	thread->policy = task->policy;
	if (!state)
		return;
	if (state->has_exited)
		thread->flags |= THREAD_RETIRED;
	if (state->class_changes && state->changed_pass == (__u32)control->pass)
		thread->flags |= THREAD_CHANGED;
	thread->class_changes = state->class_changes;
	thread->run_ns -= state->retired.run_ns;
	thread->wait_ns -= state->retired.wait_ns;
	thread->guest_ns -= state->retired.guest_ns;
	thread->timeslices -= state->retired.timeslices;
	thread->involuntary_switches -= state->retired.involuntary_switches;
}

/* Masks up to this many words are copied word by word, which is cheaper than a helper
 * call. */
#define FEW_WORDS 4

static __always_inline void copy_mask(__u64 *mask, struct task_struct *task)
{
	__u64 offset = bpf_core_field_offset(struct task_struct, cpus_mask);
	const __u64 *words;

	/* Without this the compiler reads a word as if it were the field, which has
	 * another size. */
	barrier_var(offset);
	words = (void *)task + offset;
	if (cfg.mask_words > FEW_WORDS) {
		bpf_probe_read_kernel(mask, cfg.mask_words * 8, words);
		return;
	}
	for (__u32 word = 0; word < FEW_WORDS && word < cfg.mask_words; word++)
		mask[word] = words[word];
}

static __always_inline void emit_thread(struct output *out, struct task_struct *task,
					struct thread_state *state, bool is_vcpu_valid,
					const struct owner *owner, const struct control *control,
					struct pass_cache *cache)
{
	__u32 mask_size = cfg.mask_words * 8, size = sizeof(struct thread_record);
	__u64 cgroup = emit_own_cgroups(out, task, cache);
	struct thread_buffer *buffer = reserve_thread(out);
	void *mask;

	if (!buffer || mask_size > sizeof(buffer->mask))
		return;
	buffer->thread.cgroup = cgroup;
	fill_thread(&buffer->thread, task, state, owner, control);
	mask = &buffer->vcpu;
	if (state && state->vcpu) {
		buffer->thread.flags |= THREAD_VCPU;
		/* The space of the mask is used as the span before the mask is copied. */
		fill_vcpu(&buffer->vcpu, task, state, is_vcpu_valid, buffer->mask);
		size += sizeof(buffer->vcpu);
		mask = &buffer->mask;
	}
	copy_mask(mask, task);
	size += mask_size;
	buffer->thread.head.size = size;
	emit_reserved(out, buffer, size);
}

/* Finds the owner of `task` and whether it has loaded its vCPU, and stores both in `cache`.
 * Creates its state if it is a VM's vCPU or its owner changed. False if it has no
 * owner. */
static __always_inline bool identify(struct task_struct *task, struct thread_state **found,
				     const struct control *control, struct pass_cache *cache)
{
	struct thread_state *state = state_or_miss(task);
	struct kvm_vcpu *vcpu = loaded_vcpu(task);

	/* A thread that ran this vCPU before and has it loaded needs no further check. */
	cache->is_vcpu_valid =
		vcpu && ((state && state->vcpu == (__u64)vcpu) || runs_vcpu(task, vcpu));
	if (cache->is_vcpu_valid)
		state = set_vcpu(task, state, vcpu, control, cache);
	if (!owner_of(task, state, control, cache, true, &cache->owner))
		return false;
	if (state) {
		follow_owner(task, state, &cache->owner, control);
	} else if (cache->owner.tgid && !(task->flags & PF_KTHREAD) &&
		   !was_shown(cache->vm_since_pass, control) &&
		   shown_owner(task, &cache->former_owner, control)) {
		/* The process belonged to the pod before it created its VM. */
		state = make_state(task, &cache->owner);
		if (state)
			retire_class(task, state, &cache->former_owner, control);
	}
	*found = state;
	return true;
}

/* Whether `task` is the first thread of its process that this pass visits and that has an
 * address space: a leader that has exited has none. Threads of a process mostly follow each
 * other; where they do not, the process is new again. */
static __always_inline bool is_new_process(struct task_struct *task, struct pass_cache *cache)
{
	if (task->flags & PF_KTHREAD)
		return false;
	if (cache->mm_tgid == (__u32)task->tgid && cache->mm_tid != (__u32)task->pid)
		return false;
	if (!FOLLOW(task->mm))
		return false;
	cache->mm_tgid = task->tgid;
	cache->mm_tid = task->pid;
	return true;
}

/* Handles one task of a pass; false if it has no owner. */
static __always_inline bool sample(struct output *out, struct task_struct *task,
				   const struct control *control, struct pass_cache *cache)
{
	struct kvm_vcpu *vcpu;
	struct thread_state *state;

	if (is_new_process(task, cache))
		visit_mm(out, task, control, cache);
	if (!is_active())
		return false;
	if (!identify(task, &state, control, cache))
		return false;
	if (!cfg.walks)
		prefetch_next(task);
	if (!state && task->flags & PF_KTHREAD) {
		/* Also for kernel threads of a pod: KVM's leave the pod's cgroup just
		 * before they exit (virt/kvm/kvm_main.c: kvm_vm_worker_thread, since
		 * v5.18). */
		state = make_state(task, &cache->owner);
	} else if (cache->owner.tgid && control->after_files && (!state || !state->vcpu)) {
		vcpu = found_vcpu(task);
		cache->is_vcpu_valid = runs_vcpu(task, vcpu);
		if (cache->is_vcpu_valid)
			state = set_vcpu(task, state, vcpu, control, cache);
	}
	if (state && !cache->is_vcpu_valid)
		cache->is_vcpu_valid = runs_vcpu(task, (struct kvm_vcpu *)state->vcpu);
	if (state && cache->is_vcpu_valid)
		emit_cpuid(out, state, control);
	if (control->halts && state && cache->is_vcpu_valid)
		emit_halts(out, state);
	cache->is_first_vcpu = state && state->vcpu && !state->vcpu_idx;
	if (state && cache->is_first_vcpu) {
		if (cfg.walks)
			hint_state(address_of(FOLLOW(task->bpf_storage)), address_of(state));
		emit_memory(out, task, state);
		if (cache->is_vcpu_valid) {
			add_pit(state, (struct kvm_vcpu *)state->vcpu);
			emit_memslots(out, state, control);
		}
	}
	emit_thread(out, task, state, cache->is_vcpu_valid, &cache->owner, control, cache);
	return true;
}

SEC("iter/task")
int sample_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct control *control = get_control();
	struct pass_cache *cache;

	if (!task || !control)
		return 0;
	cache = get_pass_cache(control);
	if (cache)
		sample(output_to_seq_file(ctx->meta->seq), task, control, cache);
	return 0;
}
