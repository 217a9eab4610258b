//! Programs under a seccomp filter.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::set_no_new_privs;

/// Makes one system call fail in the program, with its first argument or with any.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a filter's codes have 16 bits"
)]
pub fn refuse(command: &mut Command, call: libc::c_long, first: Option<u32>, errno: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let call = u32::try_from(call).expect("numbers of calls are small");
    let refused = libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    // struct seccomp_data: the call's number at 0, its first argument at 16.
    let mut steps = vec![step(LOAD, 0, 0)];
    if let Some(first) = first {
        steps.push(step(IF_EQUAL, call, 3));
        steps.push(step(LOAD, 16, 0));
        steps.push(step(IF_EQUAL, first, 1));
    } else {
        steps.push(step(IF_EQUAL, call, 1));
    }
    steps.push(step(RETURN, refused, 0));
    steps.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0));
    let install = move || {
        let program = libc::sock_fprog {
            len: steps.len() as u16,
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
