/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keys and values of maps that the programs and the agent share, by the rules of abi.h.
 * crates/abi/src/map.rs mirrors it. A map of a former agent is recognized by its layout
 * alone: a field whose meaning changes gets a new name.
 */
#ifndef VIRTLENS_MAP_ABI_H
#define VIRTLENS_MAP_ABI_H

#include "abi.h"

/* Value of map `watched`, key: a cgroup id. All threads in that subtree are read. */
struct watch {
	/* Cgroup id of the pod to which the threads are charged. */
	__u64 pod;
	/* Distinct names under which threads of this pod were added to `retired`. */
	__u32 names;
	/* Low bits of the last pass before it was watched. */
	__u32 since_pass;
};

/* Topological distance between two CPUs: index into vm.moves. */
enum distance {
	/* Threads of one core. */
	DISTANCE_SMT = 0,
	/* Cores of one last-level cache. */
	DISTANCE_CORE = 1,
	/* Last-level caches of one NUMA node. */
	DISTANCE_LLC = 2,
	DISTANCE_NUMA = 3,
	/* The location of one of them is unknown. */
	DISTANCE_UNKNOWN = 4,
	DISTANCES = 5,
};

/* Value of map `vms`, key: tgid. A VM, or a child of a pod's process that is itself in no
 * watched cgroup. */
struct vm {
	__u64 start_ns;
	/* 0: a VM. Otherwise a child process: the cgroup id of its parent's pod. */
	__u64 pod;
	/* Its address space, key of `vm_mms`: changes if the VMM execs another
	 * program. */
	__u64 mm;
	/* Distinct names under which threads of this VM were added to `retired`. */
	__u32 names;
	/* Low bits of the first pass that sees all of its threads. */
	__u32 since_pass;
	/* Migrations of its vCPUs between pCPUs, by enum distance. */
	__u64 moves[DISTANCES];
};

/* Value of array `places`, index: pCPU. Ids are unique on the host and start at 1; 0:
 * unknown. */
struct cpu_place {
	__u32 core;
	__u32 llc;
	__u32 node;
	__u32 pad;
};

/* Key of map `residency`: a vCPU on a pCPU. Its value, __u64: CPU time used there until
 * the last migration, ns. */
struct residency_key {
	struct owner owner;
	__u32 vcpu_id;
	__u32 pcpu;
};

/* Key of map `ended_vcpus`: a vCPU. Its value: a `vcpu_record` with KVM's counters as of
 * the last exit of its thread. Only the counters, `id` and `instance` are set. */
struct vcpu_key {
	struct owner owner;
	__u32 vcpu_id;
	__u32 pad;
};

/* A field that this kernel does not have. */
#define NO_FIELD (~0U)

/* Byte offsets of the fields that lead from a vhost device to the threads of its workers
 * (map `vhost_fields`, one entry). Not in `config`, because the module vhost may be
 * loaded long after the programs. */
struct vhost_fields {
	/* 0: the offsets are not known yet. */
	__u32 is_known;
	/* In struct vhost_dev. `vqs` is NO_FIELD where a device has one worker (before
	 * v6.5). */
	__u32 mm;
	__u32 vqs;
	__u32 nvqs;
	/* The pointer to the worker: in struct vhost_virtqueue, or in struct vhost_dev
	 * if `vqs` is NO_FIELD. NO_FIELD: struct vhost_dev itself has the worker's
	 * fields. */
	__u32 worker;
	/* In the worker: the pointers to its task_struct and its vhost_task. If both
	 * exist, only the one in use is not NULL. */
	__u32 task;
	__u32 vtsk;
	/* In struct vhost_task: the pointer to its task_struct. */
	__u32 vtsk_task;
};

/* Upper bounds of the buckets of throttle durations, ms; the last bucket has none. Periods
 * are 100 ms unless they are set, and a run queue waits for the rest of one. */
#define THROTTLE_BOUNDS_MS { 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200, 500 }
#define THROTTLE_DURATIONS 15

/* Value of map `levels`, key: the id of a VM's cgroup that can have a limit. Counted
 * since the entry was created. */
struct level {
	/* How often a CPU's run queue of this cgroup was throttled. */
	__u64 throttles;
	/* Wall time in which at least one run queue was throttled. A throttling is
	 * counted when it ends. */
	__u64 wall_ns;
	/* Unthrottled run queues by duration of the throttling, and the sum of the
	 * durations, which the kernel adds to cpu.stat. */
	__u64 durations[THROTTLE_DURATIONS];
	__u64 duration_sum_ns;
};

/* Class of threads that are counted together: key of the maps `retired` and
 * `throttle_hits`. */
struct thread_class {
	struct owner owner;
	/* In `retired`: the nearest ancestor cgroup in `levels`, including its own, 0 if
	 * there is none. In `throttle_hits`: the cgroup that was throttled. */
	__u64 level;
	/* THREAD_KTHREAD, _USER_WORKER, _IO_WORKER, or 0. */
	__u32 flags;
	/* ~0 if it runs no vCPU. */
	__u32 vcpu_id;
	char comm[COMM_LEN];
	char leader_comm[COMM_LEN];
};

/* Value of map `retired`: times and counts summed over threads, up to their exit or class
 * change. */
struct retired {
	/* Threads that have exited. */
	__u64 threads;
	__u64 run_ns;
	__u64 wait_ns;
	__u64 guest_ns;
	__u64 timeslices;
	__u64 involuntary_switches;
};

/* Index into map `drops`: kind and reason of a loss. Each is named after its value of the
 * label `reason` (`mark` is the former name of the thread state). */
enum drop_reason {
	/* A thread exited, and `retired` had no free entry, not even the one for its
	 * owner without names: its time is lost. */
	DROP_RETIRED_FULL = 0,
	/* A thread state could not be created: a vCPU then counts as an emulator thread,
	 * and an exiting thread is missing until it is freed. */
	DROP_MARK_FULL = 1,
	/* `vms` or `vm_mms` was full: the VM's other threads are not found. Or `strays` was
	 * full: a pod's single threads are not found until the next pass over all threads. */
	DROP_VM_FULL = 2,
	/* A thread exited with a name beyond its owner's share of `retired`: its time is
	 * kept, its role is lost. */
	DROP_RETIRED_NAMES = 3,
	/* A cgroup is deeper than MAX_CGROUP_DEPTH: its path is unknown. */
	DROP_CGROUP_DEPTH = 4,
	/* `residency` was full: a vCPU's time on a pCPU is lost. */
	DROP_RESIDENCY_FULL = 5,
	/* `throttle_hits` was full: the thread that ran when a quota was exhausted is
	 * lost. */
	DROP_HITS_FULL = 6,
	/* A throttled cgroup has no entry in `walls`: its wall time is lost. */
	DROP_WALLS_FULL = 7,
	/* A VM has more memslots than MEMSLOTS_MAX: the others are not emitted. */
	DROP_MEMSLOTS = 8,
	/* Two threads of a VMM made large discards at once: the time and the released
	 * memory of the first one are lost. */
	DROP_DISCARDS_AT_ONCE = 9,
	/* `ended_vcpus` was full: KVM's counters of an exited vCPU thread are lost. */
	DROP_ENDED_VCPUS_FULL = 10,
	/* The exit program did not run for a vCPU thread, because another run of it was
	 * interrupted: KVM's counts since the last record may be lost. */
	DROP_ENDED_VCPUS_MISSED = 11,
	/* The state of a freed thread could not be read: the time that it used after its
	 * exit is lost, or all of its time if it was not in `retired` yet. */
	DROP_MARK_UNREAD = 12,
	/* The kernel did not look up the state of a VM's thread: a vCPU's migration is not
	 * counted, or a throttle hit or a pass attributes the thread to the emulator. */
	DROP_MARK_BUSY = 13,
	/* A multi-threaded process of a pod was renamed: the time of its other threads
	 * moves to their new role. */
	DROP_PROCESS_RENAMED = 14,
	DROP_REASONS = 15,
};

/* Index into map `changes`: number of changes of maps that are large and change rarely, so
 * that the agent reads them only if this number differs from the one before its last
 * read. A program counts a change after it. */
enum change {
	/* `retired` and `ended_vcpus`. */
	CHANGE_RETIRED = 0,
	/* `levels` and `throttle_hits`. */
	CHANGE_THROTTLE = 1,
	/* The keys of `vms`. Migrations do not count: they are in struct vm_record. */
	CHANGE_VMS = 2,
	CHANGES = 3,
};

/* Key of map `book`: a page of the state of a VM that the agent hands over to the next
 * agent. */
struct handover_key {
	/* Start time of the VM's process, ns since boot. */
	__u64 start_ns;
	__u32 tgid;
	/* The highest complete edition is valid. */
	__u32 edition;
	/* Starts at 0. Page 0 is written last: an edition with page 0 is complete. */
	__u32 page;
	__u32 pad;
};

#define HANDOVER_PAGE_LEN 1016

/* Value of map `book`. BPF programs never read it. */
struct handover_page {
	/* Number of pages of this edition. */
	__u32 pages;
	/* Number of valid bytes in `bytes`. */
	__u32 len;
	__u8 bytes[HANDOVER_PAGE_LEN];
};

#endif
