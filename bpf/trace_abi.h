/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface of the programs that trace one VM, by the rules of abi.h.
 * crates/abi/src/trace.rs mirrors it.
 */
#ifndef VIRTLENS_TRACE_ABI_H
#define VIRTLENS_TRACE_ABI_H

/* PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h), one bit per thread. */
#define TRACED_WORDS (4 * 1024 * 1024 / 64)
/* Maximum number of traced threads: those of one VM and its helpers. */
#define TRACED_MAX 16384
/* Guest events that a pCPU may emit in 2^23 ns: 238 000 per second. */
#define TRACE_KVM_BUDGET 2000

/* Kind of an event. The events of a thread are in chronological order. */
enum trace_kind {
	/* It was scheduled in on `cpu`; the peer was scheduled out. */
	TRACE_ON = 1,
	/* It was scheduled out on `cpu`; the peer was scheduled in. */
	TRACE_OFF = 2,
	/* It woke up and is runnable on `cpu`. */
	TRACE_WOKEN = 3,
	/* It migrates to `cpu`. */
	TRACE_MOVED = 4,
	/* A new thread of process `value`; peer_comm is its own name. */
	TRACE_BORN = 5,
	/* VM exit. `value`: the exit reason in the lower 32 bits, KVM's count of the
	 * vCPU's exits in the upper 32 bits. `extra`: how long KVM would poll if the vCPU
	 * halted now, ns. */
	TRACE_EXIT = 6,
	/* VM entry. */
	TRACE_ENTRY = 7,
	/* Exit to user space. `value`: KVM_EXIT_*. */
	TRACE_TO_VMM = 8,
	/* The end of a halt of `value` ns. */
	TRACE_HALT_END = 9,
	/* The run queue of cgroup `value` on `cpu` is throttled or unthrottled. */
	TRACE_THROTTLED = 10,
	TRACE_UNTHROTTLED = 11,
};

/* Flags of an event. */
enum trace_flag {
	/* TRACE_OFF: it is still runnable. */
	TRACE_RUNNABLE = 1,
	/* TRACE_OFF: it sleeps uninterruptibly. */
	TRACE_UNINTERRUPTIBLE = 2,
	/* TRACE_OFF: it has exited. */
	TRACE_ENDED = 4,
	/* The kernel throttles single threads and shows which ones (since v6.18). */
	TRACE_SHOWS_THROTTLED = 8,
	/* The thread is throttled. Valid with TRACE_SHOWS_THROTTLED. */
	TRACE_IS_THROTTLED = 16,
	/* TRACE_EXIT: the reason is an SVM exit code, otherwise a VMX exit reason. */
	TRACE_SVM = 32,
	/* TRACE_EXIT: the exit reason could not be read. */
	TRACE_NO_REASON = 64,
	/* TRACE_HALT_END: it slept and did not only poll. */
	TRACE_SLEPT = 128,
};

struct trace_event {
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u64 value;
	/* 0 if the event belongs to a run queue. */
	__u32 tid;
	__u32 kind;
	__u32 cpu;
	__u32 flags;
	/* Events of the thread lost so far: those of scheduling, and those of its
	 * guest. */
	__u32 lost_states;
	__u32 lost_exits;
	__u32 extra;
	__u32 peer_tid;
	char peer_comm[16];
};

/* State of a traced thread (map `traced_threads`, key: tid). */
struct traced {
	__u32 lost_states;
	__u32 lost_exits;
};

#endif
