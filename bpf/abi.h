/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between the BPF programs and the agent: the values that the agent sets, and
 * the terms that all parts share. record_abi.h has the records of a pass, map_abi.h the keys
 * and values of maps, memory_abi.h the memory of VMs, trace_abi.h the events of a trace.
 *
 * All of these headers have only fixed-width plain integers, no pointers and no implicit
 * padding. Enums give values; fields that hold them are __u32. crates/abi mirrors every
 * struct and enum, and a test compares both by their BTF.
 *
 * Times are nanoseconds. UNKNOWN: this kernel does not provide the value.
 */
#ifndef VIRTLENS_ABI_H
#define VIRTLENS_ABI_H

#define UNKNOWN (~0ULL)
#define COMM_LEN 16
/* 2048 CPUs. On a larger host the records carry no affinity, and the agent reports
 * that. */
#define MASK_WORDS_MAX 32

/* Constants of the programs, set once before they are loaded (.rodata). */
struct config {
	/* The cpu controller is in a v1 hierarchy. */
	__u32 cgroup_v1;
	/* 64-bit words of an affinity mask; 0: the mask is too long to be emitted. */
	__u32 mask_words;
	/* The states of threads (bpf/thread_state.bpf.h) are in task storage (since v5.11),
	 * not in a hash. */
	__u32 task_storage;
	/* A pass runs as the program `walk_tasks` and writes to map `stream`. */
	__u32 walks;
	/* Every thread that is counted in `retired` and not freed yet has a thread state:
	 * a thread without one is not in `retired`. 0 if the agent took over `retired`
	 * from a former agent, but not the thread states that belong to it. */
	__u32 states_complete;
	/* Offset of the worker in struct kvm_pit, bytes; 0: unknown. */
	__u32 pit_worker;
	/* Maximum error of a process's resident memory where each CPU batches its updates
	 * (since v6.2). */
	__u64 rss_error_bytes;
	/* Fingerprint of these programs: they count only while map `active` holds it. */
	__u64 programs;
};

/* Position of a pass in the task list: argument and result of each run of the program
 * `walk_tasks`. */
struct walk {
	/* Thread to resume at. Input 0: start at the first task. Output 0: the pass is
	 * complete. */
	__u32 tid;
	/* Number of threads of the pass before this one, to which this pass may refer
	 * (struct slept_record); 0: emit all threads in full. */
	__u32 former_threads;
	/* Start time of that thread, ns since boot. */
	__u64 start_ns;
	/* Tasks visited by this run; 0 with `tid` set means that the resume thread has
	 * exited. */
	__u64 seen;
};

/* Set by the agent before each pass (map `control`, one entry). */
struct control {
	/* Changes when the agent has forgotten the cgroup names: they are emitted
	 * again. */
	__u64 session;
	/* Changes with each pass, and with each repetition of one. */
	__u64 pass;
	/* Changes with each change of `watched`. */
	__u32 epoch;
	/* Number of watched cgroups. */
	__u32 watched;
	/* A pass over open files ran just before: this pass looks up each thread among the
	 * vCPU threads that it found. */
	__u32 after_files;
	/* Low bits of the number of the pass whose data the last reading showed. */
	__u32 shown_pass;
	/* When that pass began, ns since boot: a thread that started later was in no
	 * reading. 0: no reading yet. */
	__u64 shown_ns;
	/* When the latest pass began, ns since boot. */
	__u64 begun_ns;
	/* The walk visits the threads of all processes, not only of those whose leader may
	 * have an owner. */
	__u32 all_threads;
	/* Histograms of the halts of vCPUs are emitted. */
	__u32 halts;
};

/*
 * The owner of a thread. VM: the start time (ns since boot) and the tgid of its process.
 * Pod: the id of its cgroup, and tgid 0.
 */
struct owner {
	__u64 id;
	__u32 tgid;
	__u32 pad;
};

#endif
