//! Detects whether the kernel has blocked a thread.
//!
//! A thread cannot report that it is blocked, but other threads can see it: /proc shows
//! the system call of a blocked thread, and `running` for any other (fs/proc/base.c
//! `proc_pid_syscall`; every x86 kernel has the file).

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The place in which a thread is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The kernel's part of `KVM_RUN`: its guest is halted.
    KvmRun,
    /// A futex: the thread waits for an order, in user space.
    Futex,
}

/// `_IO(KVMIO, 0x80)`, include/uapi/linux/kvm.h.
const KVM_RUN: &str = "0xae80";

/// Waits until the thread is blocked there. The caller guarantees that it will be.
pub(crate) fn wait(tid: i32, rest: Rest) -> anyhow::Result<()> {
    let path = format!("/proc/self/task/{tid}/syscall");
    loop {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        if is(&text, rest) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn is(syscall: &str, rest: Rest) -> bool {
    let mut fields = syscall.split_ascii_whitespace();
    let number = fields
        .next()
        .and_then(|field| field.parse::<libc::c_long>().ok());
    match rest {
        Rest::Futex => number == Some(libc::SYS_futex),
        Rest::KvmRun => number == Some(libc::SYS_ioctl) && fields.nth(1) == Some(KVM_RUN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_awaited_syscall_is_idle() {
        let halted = "16 0x9 0xae80 0x0 0x0 0x7f 0x0 0x7f10 0x7f12\n";
        let other_ioctl = "16 0x9 0xae81 0x0 0x0 0x7f 0x0 0x7f10 0x7f12\n";
        let waiting = "202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7f10 0x7f12\n";
        assert!(is(halted, Rest::KvmRun) && !is(halted, Rest::Futex));
        assert!(is(waiting, Rest::Futex) && !is(waiting, Rest::KvmRun));
        assert!(!is(other_ioctl, Rest::KvmRun));
        assert!(!is("running\n", Rest::KvmRun) && !is("running\n", Rest::Futex));
    }
}
