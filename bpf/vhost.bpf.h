/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which device each vhost worker serves. All workers of a VM have the same name, and only
 * the device's open file leads to them:
 *
 *   /dev/vhost-net, /dev/vhost-vsock ─► struct vhost_dev
 *        ├─ before v6.5 ───────────────► its worker ─┐
 *        └─ each virtqueue ────────────► its worker ─┴─► task_struct: tid, start
 *
 * These types are in the module vhost, which may be loaded after the programs: where their
 * fields are comes from the agent (map `vhost_fields`).
 */
#ifndef VIRTLENS_VHOST_BPF_H
#define VIRTLENS_VHOST_BPF_H

#include "maps.bpf.h"

/* Virtqueues of a device whose workers are looked at. Both devices have two: VHOST_NET_VQ_MAX
 * (drivers/vhost/net.c), vhost_vsock.vqs (drivers/vhost/vsock.c), v5.10 to v7.2. */
#define VHOST_QUEUES_MAX 4

/* What is behind a character device, as enum vhost_device; 0: something else. By its
 * number, since a path can be anything. */
static __always_inline __u32 vhost_device(struct inode *inode)
{
	__u32 number = inode->i_rdev;

	if (number != VHOST_NET_DEV && number != VHOST_VSOCK_DEV)
		return 0;
	if ((inode->i_mode & S_IFMT) != S_IFCHR)
		return 0;
	return number == VHOST_NET_DEV ? VHOST_NET : VHOST_VSOCK;
}

/* The pointer that is `offset` bytes behind `base`; NULL where there is none. */
static __always_inline const void *pointer_at(const void *base, __u32 offset)
{
	const void *pointer = NULL;

	if (!base || offset == NO_FIELD)
		return NULL;
	bpf_probe_read_kernel(&pointer, sizeof(pointer), base + offset);
	return pointer;
}

/* The thread of the worker to which the virtqueue or device at `from` leads. */
static __always_inline struct task_struct *vhost_thread(const struct vhost_fields *fields,
							 const void *from)
{
	const void *worker = from, *task;

	if (fields->worker != NO_FIELD)
		worker = pointer_at(from, fields->worker);
	task = pointer_at(worker, fields->task);
	if (!task)
		task = pointer_at(pointer_at(worker, fields->vtsk), fields->vtsk_task);
	return (struct task_struct *)task;
}

/* Emits the workers of the device at `dev`, with which struct vhost_net and struct vhost_vsock
 * begin, if its owner is the address space `mm`: a process that only inherited the file has
 * another one. A worker may end meanwhile: its tid and start are then no thread's. */
static __noinline void emit_vhost_workers(struct seq_file *out, const void *dev,
					  const struct mm_struct *mm, __u32 device)
{
	struct vhost_worker_record record = {
		.head = { RECORD_VHOST_WORKER, sizeof(record) },
		.device = device,
	};
	struct task_struct *thread, *before = NULL;
	const struct vhost_fields *fields;
	const void *queues;
	__u32 zero = 0, count = 1;

	fields = bpf_map_lookup_elem(&vhost_fields, &zero);
	if (!fields || !fields->is_known || !mm || pointer_at(dev, fields->mm) != mm)
		return;
	queues = pointer_at(dev, fields->vqs);
	if (fields->vqs != NO_FIELD &&
	    (!queues || bpf_probe_read_kernel(&count, sizeof(count), dev + fields->nvqs)))
		return;
	for (__u32 at = 0; at < VHOST_QUEUES_MAX && at < count; at++) {
		thread = vhost_thread(fields, queues ? pointer_at(queues, at * 8) : dev);
		/* Mostly all queues of a device share one. */
		if (!thread || thread == before)
			continue;
		before = thread;
		if (bpf_core_read(&record.tid, sizeof(record.tid), &thread->pid) ||
		    bpf_core_read(&record.start_ns, sizeof(record.start_ns),
				  &thread->start_boottime))
			continue;
		bpf_seq_write(out, &record, sizeof(record));
	}
}

#endif
