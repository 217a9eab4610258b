//! CPU clocks: on a shared machine only CPU time measures a piece of work, not wall time.

use virtlens_tests::process::own_cpu_ns;

/// CPU time of the calling thread for `work`, ns.
pub(crate) fn thread_ns<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start_ns = own_cpu_ns();
    let result = work();
    (result, own_cpu_ns() - start_ns)
}

/// CPU time of this process, including all ended threads, ns.
pub(crate) fn process_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live, writable timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "a process has a clock");
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).expect("a CPU clock is never negative")
}
