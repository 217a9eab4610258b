//! System calls that fail on demand: seccomp's user notification passes the calls of one
//! thread to another thread, which lets them continue or answers with an error in the
//! kernel's place. The code under test is unchanged.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::filter::{jump, load, verdict};

/// How often the end of the thread is checked: 20 ms.
const POLLED_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// State of the failures of one thread's system calls.
#[derive(Debug, Clone, Default)]
pub struct Refusal(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of calls that pass before those that fail; `u64::MAX`: none fails.
    passing: AtomicU64,
    /// Number of calls that fail after that.
    failing: AtomicU64,
    /// Number of calls that have failed.
    failed: AtomicU64,
}

impl Refusal {
    /// Runs `walk` in a separate thread in which these system calls can fail. Threads and
    /// processes that it starts inherit the filter, so it must not start any.
    ///
    /// # Panics
    /// If the kernel has no user notification (before 5.5), and if `walk` panics.
    pub fn scope<T: Send>(calls: &[libc::c_long], walk: impl FnOnce(&Self) -> T + Send) -> T {
        let refusal = Self::default();
        refusal.0.passing.store(u64::MAX, Ordering::SeqCst);
        let (give, taken) = mpsc::channel();
        thread::scope(|scope| {
            let walking = scope.spawn(|| {
                give.send(listen(calls)).expect("the other side waits");
                walk(&refusal)
            });
            let listener = taken.recv().expect("the other side gives it");
            refusal.answer_until(&listener, || walking.is_finished());
            match walking.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Lets the next `passing` calls pass, and then `failing` calls fail with EIO.
    pub fn set(&self, passing: u64, failing: u64) {
        self.0.failed.store(0, Ordering::SeqCst);
        self.0.failing.store(failing, Ordering::SeqCst);
        self.0.passing.store(passing, Ordering::SeqCst);
    }

    /// Lets all calls pass from now on; returns how many failed since the last
    /// [`set`](Self::set).
    pub fn heal(&self) -> u64 {
        self.0.passing.store(u64::MAX, Ordering::SeqCst);
        self.0.failed.load(Ordering::SeqCst)
    }

    fn fails(&self) -> bool {
        let passing = self.0.passing.load(Ordering::SeqCst);
        if passing == u64::MAX {
            return false;
        }
        if passing > 0 {
            self.0.passing.store(passing - 1, Ordering::SeqCst);
            return false;
        }
        let failing = self.0.failing.load(Ordering::SeqCst);
        if failing == 0 {
            return false;
        }
        self.0.failing.store(failing - 1, Ordering::SeqCst);
        self.0.failed.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn answer_until(&self, listener: &OwnedFd, is_over: impl Fn() -> bool) {
        while !is_over() {
            let mut ready = [PollFd::new(listener, PollFlags::IN)];
            if poll(&mut ready, Some(&POLLED_EVERY)).is_err() {
                continue;
            }
            let events = ready[0].revents();
            // The last thread with the filter has exited. Debian 6.1 would then wait
            // forever for a call to receive.
            if events.contains(PollFlags::HUP) {
                return;
            }
            if events.contains(PollFlags::IN) {
                self.answer(listener);
            }
        }
    }

    /// Answers one call, if it is still pending.
    fn answer(&self, listener: &OwnedFd) {
        // SAFETY: plain numbers; the kernel requires zeroes.
        let mut asked: libc::seccomp_notif = unsafe { zeroed() };
        // SAFETY: the kernel writes within `asked`.
        let got = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut asked,
            )
        };
        if got < 0 {
            return;
        }
        let fails = self.fails();
        let mut answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: if fails { -libc::EIO } else { 0 },
            flags: if fails {
                0
            } else {
                u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("one bit")
            },
        };
        // SAFETY: the kernel reads `answer`. A thread that has exited needs no answer.
        unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw mut answer,
            );
        }
    }
}

/// Sends these calls of this thread to the holder of the returned descriptor.
fn listen(calls: &[libc::c_long]) -> OwnedFd {
    let mut filter = vec![load(0)];
    for (at, call) in (0u8..).zip(calls) {
        let left = u8::try_from(calls.len()).expect("few") - 1 - at;
        let call = u32::try_from(*call).expect("a number of a call");
        filter.push(jump(call, left + 1, 0));
    }
    filter.push(verdict(libc::SECCOMP_RET_ALLOW));
    filter.push(verdict(libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("few"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the live program; root needs no `no_new_privs`.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.unwrap_or_else(|| panic!("seccomp: {}", io::Error::last_os_error()));
    // SAFETY: the kernel gave this descriptor to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Refusal;
    use crate::need;

    #[test]
    fn refused_call_fails_and_the_next_passes() {
        if !need::all("refused_call_fails_and_the_next_passes", [need::root()]) {
            return;
        }
        let read = || fs::read("/proc/self/comm").is_ok();
        let (seen, failed) = Refusal::scope(&[libc::SYS_openat], |refusal| {
            let before = read();
            refusal.set(0, 1);
            let seen = [before, read(), read()];
            (seen, refusal.heal())
        });
        assert_eq!((seen, failed), ([true, false, true], 1));
    }
}
