/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, written by hand with only the fields that are read. The loader
 * relocates each access to the field's offset in the running kernel (CO-RE), so order and
 * size have no meaning here, only names and types. A type with ___suffix is a variant of
 * one kernel range, used in compat.bpf.h and kvm_exit.bpf.h only. KVM's types are in
 * kvm.bpf.h.
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
	BPF_RB_NO_WAKEUP = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
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

/* The same file. The verifier knows the type by its name. */
struct bpf_spin_lock {
	__u32 val;
};

/* The same file. Only the existence of the values is tested. */
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
	BPF_FUNC_cgrp_storage_get = 210,
};

/* The same file: the context of a raw tracepoint program. */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

/* include/linux/sched.h: v5.10 to v7.3. */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400
#define PF_IO_WORKER 0x00000010
/* Since v6.4; another flag before (see is_user_worker in compat.bpf.h). */
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/* include/uapi/asm-generic/mman-common.h */
#define MADV_WILLNEED 3
#define MADV_DONTNEED 4
/* include/uapi/linux/falloc.h */
#define FALLOC_FL_KEEP_SIZE 1
#define FALLOC_FL_PUNCH_HOLE 2
/* include/linux/mm_types_task.h; MM_SWAPENTS is not resident memory. */
#define MM_FILEPAGES 0
#define MM_ANONPAGES 1
#define MM_SWAPENTS 2
#define MM_SHMEMPAGES 3
#define PAGE_SIZE 4096ULL
/* include/linux/page_counter.h */
#define PAGE_COUNTER_MAX (0x7fffffffffffffffULL / PAGE_SIZE)

/* include/uapi/linux/magic.h */
#define ANON_INODE_FS_MAGIC 0x09041934

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFCHR 0020000
/* task_struct.policy, include/uapi/linux/sched.h: the policies of the fair class. */
#define SCHED_NORMAL 0
#define SCHED_BATCH 3
#define SCHED_IDLE 5
/* include/linux/miscdevice.h: MISC_MAJOR, VHOST_NET_MINOR, VHOST_VSOCK_MINOR; as dev_t of
 * include/linux/kdev_t.h. v5.10 to v7.2. */
#define VHOST_NET_DEV (10 << 20 | 238)
#define VHOST_VSOCK_DEV (10 << 20 | 241)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};
struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};

/* include/linux/bpf_local_storage.h */
#define STORAGE_CACHE 16
struct bpf_local_storage_data {
	__u8 data[0];
};
struct bpf_local_storage {
	struct bpf_local_storage_data *cache[STORAGE_CACHE];
};
struct kernfs_node {
	const char *name;
	__u64 id;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
/* include/linux/psi_types.h. `total` has two dimensions there, and one in the kernel's type
 * information: pahole flattens arrays. */
struct psi_group {
	bool enabled;
	void *pcpu;
	__u64 total[1];
};
enum psi_states {
	PSI_IO_SOME = 0,
	PSI_IO_FULL = 1,
	PSI_MEM_SOME = 2,
	PSI_MEM_FULL = 3,
	PSI_CPU_SOME = 4,
	PSI_CPU_FULL = 5,
	PSI_IRQ_FULL = 6,
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
	struct psi_group *psi;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
	memory_cgrp_id = 4,
};

typedef struct {
	long counter;
} atomic_long_t;
struct page_counter {
	atomic_long_t usage;
	unsigned long max;
};
struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	atomic_long_t memory_events[1];
};
/* include/linux/memcontrol.h */
enum memcg_memory_event {
	MEMCG_HIGH = 1,
	MEMCG_MAX = 2,
	MEMCG_OOM = 3,
	MEMCG_OOM_KILL = 4,
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
	unsigned long pcount;
	unsigned long long run_delay;
};
struct thread_info {
	__u32 cpu;
};
struct cpumask {
	unsigned long bits[1];
};
struct percpu_counter {
	__s64 count;
};
struct mm_struct {
	struct {
		int counter;
	} mm_users;
	long map_count;
	unsigned long hiwater_rss;
	struct percpu_counter rss_stat[4];
	atomic_long_t hugetlb_usage;
	struct task_struct *owner;
	struct mmu_notifier_subscriptions *notifier_subscriptions;
};
/* mm/mmu_notifier.c, include/linux/mmu_notifier.h */
struct mmu_notifier_subscriptions {
	struct hlist_head list;
};
struct mmu_notifier {
	struct hlist_node hlist;
};
/* kernel/bpf/hashtab.c, include/linux/list_nulls.h: an entry of a hash map. Its value follows the
 * key, which is padded to eight bytes. */
struct hlist_nulls_node {
	struct hlist_nulls_node *next;
	struct hlist_nulls_node **pprev;
};
struct htab_elem {
	struct hlist_nulls_node hash_node;
	char key[1];
};
/* include/linux/xarray.h */
struct xarray {
	void *xa_head;
};
struct xa_node {
	void *slots[1];
};
struct kthread_worker {
	struct task_struct *task;
};
struct pid {
	int level;
	struct hlist_head tasks[1];
	struct upid {
		int nr;
	} numbers[1];
};

struct signal_struct {
	int nr_threads;
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	/* Signed before v7.2, and u8 since (seen in the BTF of 7.2.12). Unsigned here, because a
	 * loader only adjusts the size of an unsigned read. */
	unsigned int on_cpu;
	unsigned int on_rq;
	unsigned int policy;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct hlist_head preempt_notifiers;
	struct cpumask cpus_mask;
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct list_head tasks;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct pid *thread_pid;
	struct list_head thread_node;
	void *stack;
	__u64 gtime;
	unsigned long nvcsw;
	unsigned long nivcsw;
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

struct super_block {
	unsigned long s_magic;
	__u32 s_dev;
};
struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_rdev;
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
struct address_space {
	unsigned long nrpages;
};
struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
	struct path f_path;
	void *private_data;
};

/* arch/x86/include/asm/ptrace.h: the first three arguments of a system call. */
struct pt_regs {
	unsigned long dx;
	unsigned long si;
	unsigned long di;
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
