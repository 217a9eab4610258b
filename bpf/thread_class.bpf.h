/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The class of a thread: everything that decides which counter its time is added to.
 */
#ifndef VIRTLENS_THREAD_CLASS_BPF_H
#define VIRTLENS_THREAD_CLASS_BPF_H

#include "thread_state.bpf.h"

/* Converts the kernel's task flags to enum thread_flag. */
static __always_inline __u32 thread_flags(struct task_struct *task)
{
	unsigned int flags = task->flags;

	return (flags & PF_KTHREAD ? THREAD_KTHREAD : 0) |
	       (flags & PF_IO_WORKER ? THREAD_IO_WORKER : 0) |
	       (is_user_worker(flags) ? THREAD_USER_WORKER : 0);
}

/* Whether the thread group leader of `task` still exists: each thread is freed after a
 * separate grace period, so the leader may be freed before `task` (release_task,
 * kernel/exit.c). */
static __always_inline bool has_leader(struct task_struct *task)
{
	return FOLLOW(task->group_leader)->pid == task->tgid;
}

/* Fills in the class of a thread; the agent derives the role from the names. */
static __always_inline void classify(struct task_struct *task, const struct thread_state *state,
				     const struct owner *owner, __u64 level,
				     struct thread_class *class)
{
	struct task_struct *leader = READ_WORD(task->group_leader);
	const char *leader_comm = task->comm;

	if ((__u32)READ_WORD(leader->pid) == (__u32)task->tgid)
		leader_comm = leader->comm;
	else if (state && state->has_exited)
		leader_comm = state->leader_comm;
	__builtin_memset(class, 0, sizeof(*class));
	class->owner = *owner;
	class->level = level;
	class->vcpu_id = state ? state->vcpu_id : ~0U;
	class->flags = thread_flags(task);
	bpf_probe_read_kernel_str(class->comm, sizeof(class->comm), task->comm);
	bpf_probe_read_kernel_str(class->leader_comm, sizeof(class->leader_comm), leader_comm);
}

#endif
