//! Rust mirror of `bpf/trace_abi.h`: events of the programs that trace one VM.

use crate::COMM_LEN;

/// Number of entries of the map `traced_bits`, 64 bits each.
pub const TRACED_WORDS: u32 = 4 * 1024 * 1024 / 64;

mirror! {
    /// `struct trace_event`: an event.
    trace_event => TraceEvent {
        time_ns: u64,
        value: u64,
        tid: u32,
        kind: u32,
        cpu: u32,
        flags: u32,
        lost_states: u32,
        lost_exits: u32,
        extra: u32,
        peer_tid: u32,
        peer_comm: [u8; COMM_LEN],
    }
    /// `struct traced`: state of a traced thread.
    traced => Traced {
        lost_states: u32,
        lost_exits: u32,
    }
}

enumerators! {
    /// The thread was scheduled in.
    TRACE_ON = 1,
    /// The thread was scheduled out.
    TRACE_OFF = 2,
    /// The thread woke up.
    TRACE_WOKEN = 3,
    /// The thread migrates to another CPU.
    TRACE_MOVED = 4,
    /// A new thread.
    TRACE_BORN = 5,
    /// VM exit.
    TRACE_EXIT = 6,
    /// VM entry.
    TRACE_ENTRY = 7,
    /// Exit to user space.
    TRACE_TO_VMM = 8,
    /// The end of a halt.
    TRACE_HALT_END = 9,
    /// A run queue of a cgroup is throttled.
    TRACE_THROTTLED = 10,
    /// A run queue of a cgroup is unthrottled.
    TRACE_UNTHROTTLED = 11,
    /// The thread is still runnable.
    TRACE_RUNNABLE = 1,
    /// The thread sleeps uninterruptibly.
    TRACE_UNINTERRUPTIBLE = 2,
    /// The thread has exited.
    TRACE_ENDED = 4,
    /// The kernel throttles single threads and shows which ones.
    TRACE_SHOWS_THROTTLED = 8,
    /// The thread is throttled.
    TRACE_IS_THROTTLED = 16,
    /// The reason is an SVM exit code, otherwise a VMX exit reason.
    TRACE_SVM = 32,
    /// The exit reason could not be read.
    TRACE_NO_REASON = 64,
    /// The vCPU slept during the halt and did not only poll.
    TRACE_SLEPT = 128,
}
