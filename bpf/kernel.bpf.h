/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, written by hand: only the fields that are read. The
 * loader moves each access to where the running kernel has the field (CO-RE),
 * so order and size mean nothing here, names and types do. A type with
 * ___suffix is a variant of one kernel range, used in compat.bpf.h only.
 */
#ifndef VIRTLENS_KERNEL_BPF_H
#define VIRTLENS_KERNEL_BPF_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* The same: the verifier knows it by its name. */
struct bpf_spin_lock {
	__u32 val;
};

/* include/linux/sched.h */
#define PF_IO_WORKER 0x00000010
/* Since v6.4; another flag before (see is_user_worker in compat.bpf.h). */
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/* include/uapi/linux/magic.h */
#define ANON_INODE_FS_MAGIC 0x09041934

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};

struct bpf_local_storage;
struct kernfs_node {
	const char *name;
	__u64 id;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

struct cfs_bandwidth {
	__s64 period;
	__u64 quota;
	__u64 burst;
	int nr_periods;
	int nr_throttled;
	__u64 throttled_time;
};
struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};
struct sched_info {
	unsigned long long run_delay;
};
struct thread_info {
	__u32 cpu;
};
struct cpumask {
	unsigned long bits[1];
};
struct mm_struct {
	long map_count;
};
struct pid {
	int level;
	struct upid {
		int nr;
	} numbers[1];
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct hlist_head preempt_notifiers;
	struct cpumask cpus_mask;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 gtime;
	__u64 start_boottime;
	char comm[16];
	struct css_set *cgroups;
	struct bpf_local_storage *bpf_storage;
};

/* kernel/sched/sched.h */
struct rq {
	int cpu;
	__u64 clock;
	struct task_struct *curr;
};
struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	int throttled;
	__u64 throttled_clock;
	struct hlist_node throttled_csd_list;
};

/* virt/kvm: include/linux/kvm_host.h, arch/x86/include/asm/kvm_host.h */
struct kvm {
	struct {
		int counter;
	} online_vcpus;
};
struct preempt_notifier {
	struct hlist_node link;
};
struct kvm_vcpu_stat_generic {
	__u64 halt_poll_success_ns;
	__u64 halt_poll_fail_ns;
	__u64 halt_wait_ns;
};
struct kvm_vcpu_stat {
	struct kvm_vcpu_stat_generic generic;
	__u64 pf_taken;
	__u64 pf_fixed;
	__u64 exits;
	__u64 io_exits;
	__u64 mmio_exits;
	__u64 irq_window_exits;
	__u64 nmi_window_exits;
	__u64 halt_exits;
	__u64 irq_exits;
	__u64 hypercalls;
};
struct kvm_vcpu_arch {
	int cpuid_nent;
	void *cpuid_entries;
};
struct kvm_vcpu {
	struct kvm *kvm;
	struct preempt_notifier preempt_notifier;
	int vcpu_id;
	int vcpu_idx;
	struct pid *pid;
	bool preempted;
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
};

struct super_block {
	unsigned long s_magic;
};
struct inode {
	struct super_block *i_sb;
};
struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

#endif
