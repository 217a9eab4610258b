//! Rust mirror of `bpf/trace_abi.h`: what the programs that trace one VM tell.

use crate::COMM_LEN;

/// Words of the map `traced_bits`.
pub const TRACED_WORDS: u32 = 4 * 1024 * 1024 / 64;

mirror! {
    /// `struct trace_event`: something that happened.
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
    /// `struct traced`: what is known of a traced thread.
    traced => Traced {
        lost_states: u32,
        lost_exits: u32,
    }
}

enumerators! {
    /// It runs now.
    TRACE_ON = 1,
    /// It runs no more.
    TRACE_OFF = 2,
    /// It slept and may run now.
    TRACE_WOKEN = 3,
    /// Another CPU will take it.
    TRACE_MOVED = 4,
    /// A new thread.
    TRACE_BORN = 5,
    /// Its guest was left.
    TRACE_EXIT = 6,
    /// Its guest is entered.
    TRACE_ENTRY = 7,
    /// The VMM has to see to the exit.
    TRACE_TO_VMM = 8,
    /// A halt ended.
    TRACE_HALT_END = 9,
    /// A run queue of a cgroup is throttled.
    TRACE_THROTTLED = 10,
    /// It is set free.
    TRACE_UNTHROTTLED = 11,
    /// It still wants to run.
    TRACE_RUNNABLE = 1,
    /// It sleeps and takes no signals.
    TRACE_UNINTERRUPTIBLE = 2,
    /// It has ended.
    TRACE_ENDED = 4,
    /// The kernel tells of each thread whether it is throttled.
    TRACE_TELLS_THROTTLED = 8,
    /// It is.
    TRACE_IS_THROTTLED = 16,
    /// An exit of AMD's kind.
    TRACE_SVM = 32,
    /// The exit's reason could not be read.
    TRACE_NO_REASON = 64,
    /// The halt was slept through.
    TRACE_SLEPT = 128,
}
