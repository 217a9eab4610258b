/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract of the programs that trace one VM, beside abi.h and by the same
 * rules. crates/abi/src/trace.rs mirrors it.
 */
#ifndef VIRTLENS_TRACE_ABI_H
#define VIRTLENS_TRACE_ABI_H

/* PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h), a bit each. */
#define TRACED_WORDS (4 * 1024 * 1024 / 64)
/* Threads of one VM and its helpers. */
#define TRACED_MAX 16384
/* Events of guests that a pCPU tells in 2^23 ns: 238 000 a second. */
#define TRACE_KVM_BUDGET 2000

/* What happened. A thread's events come in the order in which they were. */
enum trace_kind {
	/* It runs now on `cpu`; the peer ran there before. */
	TRACE_ON = 1,
	/* It ran on `cpu` and runs no more; the peer runs there now. */
	TRACE_OFF = 2,
	/* It slept and may run now, as soon as `cpu` takes it. */
	TRACE_WOKEN = 3,
	/* It will be taken by `cpu`, not by another. */
	TRACE_MOVED = 4,
	/* A new thread of process `value`; the peer's name is its own. */
	TRACE_BORN = 5,
	/* Its guest was left. `value`: the reason, and above that what KVM has
	 * counted of the vCPU's exits, 32 bits each. `extra`: for how long KVM
	 * would poll if the vCPU halted now, ns. */
	TRACE_EXIT = 6,
	/* Its guest is entered. */
	TRACE_ENTRY = 7,
	/* The exit is one that the VMM has to see to. `value`: KVM_EXIT_*. */
	TRACE_TO_VMM = 8,
	/* A halt ended that took `value` ns. */
	TRACE_HALT_END = 9,
	/* The run queue of cgroup `value` on `cpu` is throttled, or set free. */
	TRACE_THROTTLED = 10,
	TRACE_UNTHROTTLED = 11,
};

/* Of an event. */
enum trace_flag {
	/* TRACE_OFF: it still wants to run. */
	TRACE_RUNNABLE = 1,
	/* TRACE_OFF: it sleeps and takes no signals. */
	TRACE_UNINTERRUPTIBLE = 2,
	/* TRACE_OFF: it has ended. */
	TRACE_ENDED = 4,
	/* The kernel tells of each thread whether it is throttled (since v6.18). */
	TRACE_TELLS_THROTTLED = 8,
	/* It is. */
	TRACE_IS_THROTTLED = 16,
	/* TRACE_EXIT: of AMD's kind, else of Intel's. */
	TRACE_SVM = 32,
	/* TRACE_EXIT: its reason could not be read. */
	TRACE_NO_REASON = 64,
	/* TRACE_HALT_END: it slept, and did not only poll. */
	TRACE_SLEPT = 128,
};

struct trace_event {
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u64 value;
	/* 0 where it is no thread's. */
	__u32 tid;
	__u32 kind;
	__u32 cpu;
	__u32 flags;
	/* How many of the thread's events were lost before: those of its CPU and
	 * sleep, and those of its guest. */
	__u32 lost_states;
	__u32 lost_exits;
	__u32 extra;
	__u32 peer_tid;
	char peer_comm[16];
};

/* What is known of a traced thread (map `traced_threads`, by tid). */
struct traced {
	__u32 lost_states;
	__u32 lost_exits;
};

#endif
