/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the device of each vhost worker. All workers of a VM have the same name, and only
 * the device's open file leads to them:
 *
 *   /dev/vhost-net, /dev/vhost-vsock ─► struct vhost_dev
 *        ├─ before v6.5 ───────────────► its worker ─┐
 *        └─ each virtqueue ────────────► its worker ─┴─► task_struct: tid, start
 *
 * These types are in the module vhost, which may be loaded after the programs: the agent
 * sets the offsets of their fields (map `vhost_fields`).
 */
#ifndef VIRTLENS_VHOST_BPF_H
#define VIRTLENS_VHOST_BPF_H

#include "record_abi.h"
#include "vm.bpf.h"

/* Field offsets of vhost devices; set by the agent once they are known. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vhost_fields);
} vhost_fields SEC(".maps");

/* Maximum number of virtqueues of a device whose workers are read. Both devices have two:
 * VHOST_NET_VQ_MAX (drivers/vhost/net.c), vhost_vsock.vqs (drivers/vhost/vsock.c), v5.10
 * to v7.2. */
#define VHOST_QUEUES_MAX 4

/* Type of a vhost character device, as enum vhost_device; 0: another file. The device
 * number decides, because a path can be anything. */
static __always_inline __u32 vhost_device(struct inode *inode)
{
	__u32 number = inode->i_rdev;

	if (number != VHOST_NET_DEV && number != VHOST_VSOCK_DEV)
		return 0;
	if ((inode->i_mode & S_IFMT) != S_IFCHR)
		return 0;
	return number == VHOST_NET_DEV ? VHOST_NET : VHOST_VSOCK;
}

/* Reads the pointer at `offset` bytes after `base`; NULL if there is none. */
static __always_inline const void *pointer_at(const void *base, __u32 offset)
{
	const void *pointer = NULL;

	if (!base || offset == NO_FIELD)
		return NULL;
	bpf_probe_read_kernel(&pointer, sizeof(pointer), base + offset);
	return pointer;
}

/* Returns the thread of the worker of the virtqueue or device at `from`. */
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

/* Emits the workers of the device at `dev`, the first member of struct vhost_net and
 * struct vhost_vsock, if its owner has the address space of `task`: a process that only
 * inherited the file has another one. If a worker exits meanwhile, its tid and start time
 * match no thread. */
static __noinline void emit_vhost_workers(struct seq_file *out, const void *dev,
					  struct task_struct *task, __u32 device)
{
	struct vhost_worker_record record = {
		.head = { RECORD_VHOST_WORKER, sizeof(record) },
		.device = device,
	};
	const struct mm_struct *mm = FOLLOW(task->mm);
	struct task_struct *thread, *before = NULL;
	const struct vhost_fields *fields;
	const void *queues;
	__u32 zero = 0, count = 1;

	fields = bpf_map_lookup_elem(&vhost_fields, &zero);
	if (!fields || !fields->is_known || !mm || pointer_at(dev, fields->mm) != mm)
		return;
	vm_owner(task, &record.owner);
	queues = pointer_at(dev, fields->vqs);
	if (fields->vqs != NO_FIELD &&
	    (!queues || bpf_probe_read_kernel(&count, sizeof(count), dev + fields->nvqs)))
		return;
	for (__u32 at = 0; at < VHOST_QUEUES_MAX && at < count; at++) {
		thread = vhost_thread(fields, queues ? pointer_at(queues, at * 8) : dev);
		/* Mostly all queues of a device share one worker. */
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
