//! CPU clocks: on a shared machine only CPU time measures a piece of work, not wall time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use virtlens_tests::process::own_cpu_ns;

/// CPU time of the calling thread for `work`, ns.
pub(crate) fn thread_ns<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start_ns = own_cpu_ns();
    let result = work();
    (result, own_cpu_ns() - start_ns)
}

/// CPU time of this process, including all ended threads, ns.
pub(crate) fn process_ns() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let now = Duration::try_from(now).expect("a CPU clock is never negative");
    u64::try_from(now.as_nanos()).expect("584 years")
}
