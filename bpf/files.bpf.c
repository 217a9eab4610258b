/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pass over the open files of a VM's process: finds the threads of vCPUs that are in
 * user space or have exited, and the workers of vhost devices. It runs for a new VM and
 * periodically, if the VM has more vCPUs than threads that run one, or a new vhost worker.
 */
#include "vhost.bpf.h"
#include "vm.bpf.h"

/* Users cannot name anonymous inodes, so the name together with the file system's magic
 * identifies a vCPU (create_vcpu_fd, virt/kvm/kvm_main.c). */
SEC("iter/task_file")
int sample_files(struct bpf_iter__task_file *ctx)
{
	struct vcpu_fd_record record = { .head = { RECORD_VCPU_FD, sizeof(record) } };
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct kvm_vcpu *vcpu;
	struct pid *pid = NULL;
	union {
		char text[16];
		__u64 first8;
	} name = {}, vcpu_name = { .text = "kvm-vcpu" };
	__u64 instance;
	__u32 device;

	if (!task || !file)
		return 0;
	device = vhost_device(file->f_inode);
	if (device)
		emit_vhost_workers(ctx->meta->seq, file->private_data, task, device);
	if (file->f_inode->i_sb->s_magic != ANON_INODE_FS_MAGIC)
		return 0;
	bpf_probe_read_kernel_str(name.text, sizeof(name.text), file->f_path.dentry->d_name.name);
	/* Excludes "kvm-vcpu-stats:N". */
	if (name.first8 != vcpu_name.first8 || name.text[8] != ':')
		return 0;
	vcpu = file->private_data;
	/* A child created by fork has the files too, but is not a VMM: KVM serves only
	 * the address space that created the VM (kvm_vcpu_ioctl, virt/kvm/kvm_main.c). */
	if (BPF_CORE_READ(vcpu, kvm, mm) != task->mm)
		return 0;
	instance = (__u64)vcpu;
	vm_owner(task, &record.owner);
	record.instance = instance;
	record.vcpu_id = READ_OR(~0U, vcpu->vcpu_id);
	bpf_core_read(&pid, sizeof(pid), &vcpu->pid);
	if (pid)
		record.tid = BPF_CORE_READ(pid, numbers[0].nr);
	if (record.tid)
		bpf_map_update_elem(&vcpu_of_tid, &record.tid, &instance, BPF_ANY);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
