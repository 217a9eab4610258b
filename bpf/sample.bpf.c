/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The task pass: one walk over the host's tasks emits all data of every VM that the
 * kernel maintains itself.
 *
 *   task ── in KVM_RUN? ──► its vCPU: mark the thread, register its VM
 *        └─ owner? (owner.bpf.h) ──► no owner: done
 *   its cgroups up to the root, each once per pass ──► stream
 *   its times, its vCPU's counters, its affinity ──► stream
 *
 * When a pass finds a new VM, it may already have visited some of that VM's threads: the
 * agent sees the new VM and repeats the pass.
 *
 * If the buffer of the stream is full, the kernel drops all output of the current task
 * and calls the program again for the same task (bpf_seq_read, kernel/bpf/bpf_iter.c):
 * emitting must be repeatable.
 */
#include "ahead.bpf.h"
#include "cgroup_record.bpf.h"
#include "placement.bpf.h"
#include "retire.bpf.h"
#include "vcpu.bpf.h"

/* Returns the vCPU that `task` has loaded, usually inside KVM_RUN. KVM is the only user
 * of preempt notifiers (kvm_main.c: vcpu_load), but other vCPU ioctls load the vCPU too,
 * hence runs_vcpu. */
static __always_inline struct kvm_vcpu *loaded_vcpu(struct task_struct *task)
{
	struct hlist_node *link = task->preempt_notifiers.first;

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

/* Marks `task` as the thread of `vcpu`. If an earlier reading showed the thread in
 * another class, its time so far stays in that class: the vCPU may be hot-plugged, or the
 * thread was in user space when its VM was found. */
static __always_inline struct mark *mark_vcpu(struct task_struct *task, struct mark *mark,
					      struct kvm_vcpu *vcpu,
					      const struct control *control,
					      struct neighbour *last)
{
	bool is_new = !mark;
	__u32 vcpu_id;

	if (mark && mark->vcpu == (__u64)vcpu)
		return mark;
	vm_owner(task, &last->owner);
	learn_vm(task, &last->owner, control);
	if (!mark)
		mark = make_mark(task, &last->owner);
	if (mark && mark->vcpu != (__u64)vcpu) {
		/* A thread can run one vCPU after another. */
		charge_pcpu(task, mark);
		vcpu_id = READ_OR(~0U, vcpu->vcpu_id);
		last->before = mark->owner;
		if (is_new ? shown_owner(task, &last->before, control) :
			     mark->vcpu_id != vcpu_id && task->start_boottime < control->shown_ns)
			retire_class(task, mark, &last->before, control);
		mark->owner = last->owner;
		mark->placed_ns = task->se.sum_exec_runtime;
		mark->cpuid_session = 0;
		mark->other_exits = 0;
		mark->kinds = 0;
		mark->pit = 0;
		mark->vcpu_id = vcpu_id;
		mark->vcpu_idx = READ_OR(~0U, vcpu->vcpu_idx);
		mark->vcpu = (__u64)vcpu;
	}
	return mark;
}

/* Number of vCPUs that KVM has for the process of `task`; 0 if this pass has already
 * emitted it. */
static __always_inline __u32 new_online_vcpus(struct task_struct *task, struct kvm_vcpu *vcpu,
					      struct neighbour *last)
{
	struct kvm *kvm;

	if (last->vm_tgid == (__u32)task->tgid && last->vm_tid != (__u32)task->pid)
		return 0;
	last->vm_tgid = task->tgid;
	last->vm_tid = task->pid;
	kvm = PEEK(vcpu->kvm);
	return PEEK(kvm->online_vcpus.counter);
}

/* Whether the thread was preempted inside the guest. Only a runnable task can have been
 * preempted (kvm_sched_out, virt/kvm/kvm_main.c), so the read is skipped otherwise. */
static __always_inline __u32 is_preempted(struct task_struct *task, struct kvm_vcpu *vcpu)
{
	return is_runnable(task) ? READ_OR(0, vcpu->preempted) : 0;
}

static __always_inline void fill_vcpu(struct vcpu_record *record, struct task_struct *task,
				      struct mark *mark, bool is_alive, __u64 *span,
				      struct neighbour *last)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)mark->vcpu;

	__builtin_memset(record, 0, sizeof(*record));
	record->id = mark->vcpu_id;
	record->index = mark->vcpu_idx;
	record->instance = mark->vcpu;
	/* Excludes the time in `retired`, like the times in the thread_record. */
	if (mark->placed_ns > mark->retired.run_ns)
		record->placed_ns = mark->placed_ns - mark->retired.run_ns;
	record->exits = UNKNOWN;
	if (!is_alive)
		return;
	fill_counters(record, vcpu, span);
	keep_other_exits(record, mark, vcpu);
	record->preempted = is_preempted(task, vcpu);
	record->online_vcpus = new_online_vcpus(task, vcpu, last);
}

static __always_inline void fill_thread(struct thread_record *thread, struct task_struct *task,
					const struct mark *mark, const struct owner *owner,
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
	thread->pcpu = task_pcpu(task);
	thread->flags = thread_flags(task);
	__builtin_memcpy(thread->comm, task->comm, COMM_LEN);
	leader = task->group_leader;
	if (has_leader(task)) {
		/* Without this the compiler reads one name through a pointer of two
		 * types. */
		barrier_var(leader);
		__builtin_memcpy(thread->leader_comm, leader->comm, COMM_LEN);
	} else {
		__builtin_memcpy(thread->leader_comm, task->comm, COMM_LEN);
	}
	thread->class_changes = 0;
	thread->pad = 0;
	if (!mark)
		return;
	if (mark->has_exited)
		thread->flags |= THREAD_RETIRED;
	if (mark->class_changes && mark->changed_pass == (__u32)control->pass)
		thread->flags |= THREAD_CHANGED;
	thread->class_changes = mark->class_changes;
	thread->run_ns -= mark->retired.run_ns;
	thread->wait_ns -= mark->retired.wait_ns;
	thread->guest_ns -= mark->retired.guest_ns;
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

static __always_inline void tell_thread(void *out, struct task_struct *task,
					struct mark *mark, bool is_alive,
					const struct owner *owner, const struct control *control,
					struct neighbour *last)
{
	__u32 mask_size = cfg.mask_words * 8, size = sizeof(struct thread_record);
	__u64 cgroup = tell_own_cgroups(out, task, last, control);
	struct thread_buffer *buffer = thread_room(out);
	void *mask;

	if (!buffer || mask_size > sizeof(buffer->mask))
		return;
	buffer->thread.cgroup = cgroup;
	fill_thread(&buffer->thread, task, mark, owner, control);
	mask = &buffer->vcpu;
	if (mark && mark->vcpu) {
		buffer->thread.flags |= THREAD_VCPU;
		/* The mask overwrites the span later. */
		fill_vcpu(&buffer->vcpu, task, mark, is_alive, buffer->mask, last);
		size += sizeof(buffer->vcpu);
		mask = &buffer->mask;
	}
	copy_mask(mask, task);
	size += mask_size;
	buffer->thread.head.size = size;
	tell_thread_in(out, buffer, size);
}

/* Finds the owner of `task` and whether it is inside KVM_RUN, and stores both in `last`.
 * Marks `task` if it is a VM's vCPU or its owner changed. False if it has no owner. */
static __always_inline bool identify(struct task_struct *task, struct mark **found,
				     const struct control *control, struct neighbour *last)
{
	struct mark *mark = mark_or_miss(task);
	struct kvm_vcpu *vcpu = loaded_vcpu(task);

	/* A thread that ran this vCPU before and has it loaded needs no further check. */
	last->is_alive = vcpu && ((mark && mark->vcpu == (__u64)vcpu) || runs_vcpu(task, vcpu));
	if (last->is_alive)
		mark = mark_vcpu(task, mark, vcpu, control, last);
	if (!owner_of(task, mark, control, last, true, &last->owner))
		return false;
	if (mark) {
		follow_owner(task, mark, &last->owner, control);
	} else if (last->owner.tgid && !(task->flags & PF_KTHREAD) &&
		   !was_shown(last->vm_since_pass, control) &&
		   shown_owner(task, &last->before, control)) {
		/* The process belonged to the pod before it created its VM. */
		mark = make_mark(task, &last->owner);
		if (mark)
			retire_class(task, mark, &last->before, control);
	}
	*found = mark;
	return true;
}

/* Handles one task of a pass; false if it has no owner. */
static __always_inline bool sample(void *out, struct task_struct *task,
				   const struct control *control, struct neighbour *last)
{
	struct kvm_vcpu *vcpu;
	struct mark *mark;

	if (!identify(task, &mark, control, last))
		return false;
	if (!cfg.walks)
		read_ahead(task);
	if (!mark && task->flags & PF_KTHREAD) {
		/* Also for kernel threads of a pod: KVM's leave the pod's cgroup just
		 * before they exit (virt/kvm/kvm_main.c: kvm_vm_worker_thread, since
		 * v5.18). */
		mark = make_mark(task, &last->owner);
	} else if (last->owner.tgid && control->after_files && (!mark || !mark->vcpu)) {
		vcpu = found_vcpu(task);
		last->is_alive = runs_vcpu(task, vcpu);
		if (last->is_alive)
			mark = mark_vcpu(task, mark, vcpu, control, last);
	}
	if (mark && !last->is_alive)
		last->is_alive = runs_vcpu(task, (struct kvm_vcpu *)mark->vcpu);
	if (mark && last->is_alive)
		tell_cpuid(out, mark, control);
	if (mark && mark->vcpu && !mark->vcpu_idx) {
		tell_memory(out, task, mark);
		if (last->is_alive) {
			learn_pit(mark, (struct kvm_vcpu *)mark->vcpu);
			tell_memslots(out, mark, control);
		}
	}
	tell_thread(out, task, mark, last->is_alive, &last->owner, control, last);
	return true;
}

SEC("iter/task")
int sample_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct control *control = get_control();
	struct neighbour *last;

	if (!task || !control)
		return 0;
	last = get_neighbour(control);
	if (last)
		sample(ctx->meta->seq, task, control, last);
	return 0;
}
