//! CPU clocks of threads, and timers on them that kick a thread.

use std::time::Duration;

use anyhow::{Context, bail};
use rustix::thread::gettid;

use crate::kick;

/// CPU time of the calling thread, ns.
pub(crate) fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the whole process, including its ended threads, ns.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of a living thread of this process, ns: the same value (`sum_exec_runtime`)
/// that /proc's schedstat shows.
pub(crate) fn thread_cpu_ns(tid: i32) -> u64 {
    // The kernel's encoding of "scheduler clock of one thread"
    // (include/linux/posix-timers_types.h: ~pid << 3 | PERTHREAD 4 | SCHED 2).
    clock_ns((!tid << 3) | 4 | 2)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live, writable timespec.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(failed, 0, "the clock of a living thread can be read");
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).expect("a CPU clock is never negative")
}

/// Uses the calling thread's CPU until its CPU clock has advanced by `cpu`.
pub(crate) fn burn_own(cpu: Duration) {
    let end_ns = own_cpu_ns() + ns_of(cpu);
    while own_cpu_ns() < end_ns {
        std::hint::spin_loop();
    }
}

/// A duration in ns.
pub(crate) fn ns_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a load of less than 584 years")
}

/// A one-shot timer that kicks its creating thread out of `KVM_RUN`.
pub(crate) struct KickTimer(libc::timer_t);

impl KickTimer {
    /// Creates a disarmed timer on a clock. A timer on a CPU clock fires at the first
    /// scheduler tick after its time, never before.
    pub(crate) fn new(clock: libc::clockid_t) -> anyhow::Result<Self> {
        // SAFETY: all zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = kick::signal();
        event.sigev_notify_thread_id = gettid().as_raw_pid();
        let mut timer = std::ptr::null_mut();
        // SAFETY: both pointers are to live locals.
        let failed = unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) };
        if failed != 0 {
            return Err(std::io::Error::last_os_error())
                .context("cannot create a timer: raise the limit of pending signals (ulimit -i)");
        }
        Ok(Self(timer))
    }

    /// Fires once, `after` from now on the timer's clock.
    pub(crate) fn arm(&self, after: Duration) -> anyhow::Result<()> {
        let never = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = libc::itimerspec {
            it_interval: never,
            it_value: libc::timespec {
                tv_sec: after.as_secs().try_into().context("time too long")?,
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        // SAFETY: the timer lives as long as self; `once` is a live local.
        if unsafe { libc::timer_settime(self.0, 0, &raw const once, std::ptr::null_mut()) } != 0 {
            bail!("cannot arm a timer: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for KickTimer {
    fn drop(&mut self) {
        // SAFETY: created by timer_create, deleted only here.
        unsafe { libc::timer_delete(self.0) };
    }
}
