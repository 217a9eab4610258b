//! Programs under a seccomp filter.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::set_no_new_privs;

/// Loads a word of `struct seccomp_data`: the call's number is at 0, its first argument at 16.
pub(crate) fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

/// Skips `then` statements if the loaded word is `k`, and `otherwise` if it is not.
pub(crate) fn jump(k: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter {
        jt: then,
        jf: otherwise,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    }
}

/// Ends with a verdict, `SECCOMP_RET_…`.
pub(crate) fn verdict(k: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, k)
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("a code of classic BPF"),
        jt: 0,
        jf: 0,
        k,
    }
}

/// Makes one system call fail in the program, with its first argument or with any.
pub fn refuse(command: &mut Command, call: libc::c_long, first: Option<u32>, errno: i32) {
    let call = u32::try_from(call).expect("numbers of calls are small");
    let mut steps = vec![load(0)];
    if let Some(first) = first {
        steps.extend([jump(call, 0, 3), load(16), jump(first, 0, 1)]);
    } else {
        steps.push(jump(call, 0, 1));
    }
    steps.push(verdict(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()));
    steps.push(verdict(libc::SECCOMP_RET_ALLOW));
    let len = u16::try_from(steps.len()).expect("few");
    let install = move || {
        let program = libc::sock_fprog {
            len,
            filter: steps.as_ptr().cast_mut(),
        };
        set_no_new_privs(true)?;
        // SAFETY: the kernel copies the program, which lives until then.
        let failed = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}
