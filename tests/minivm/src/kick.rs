//! Interrupts `KVM_RUN` of a thread, without a race.
//!
//! A signal alone is lost if it comes between the thread's last check of its orders and
//! its entry into `KVM_RUN`. So the signal handler also sets the `immediate_exit` byte in
//! the `kvm_run` page of its thread (`KVM_CAP_IMMEDIATE_EXIT`, since v4.13): the next
//! entry returns at once.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;

use kvm_ioctls::VcpuFd;

thread_local! {
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// The signal that kicks: a real-time signal that no runtime uses.
pub(crate) fn signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// While this exists, the calling thread can be kicked out of running `fd`. `fd`'s
/// `kvm_run` page must outlive it.
pub(crate) struct Kickable(());

impl Kickable {
    /// Makes the calling thread kickable.
    pub(crate) fn new(fd: &mut VcpuFd) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| install(signal(), on_kick));
        IMMEDIATE_EXIT.set(&raw mut fd.get_kvm_run().immediate_exit);
        Self(())
    }
}

impl Drop for Kickable {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.set(ptr::null_mut());
    }
}

/// Installs a signal handler without `SA_RESTART`: blocked calls return.
pub(crate) fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all zeroes is a valid sigaction; the handlers of this program
    // do only what is allowed in a signal handler.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    assert_eq!(failed, 0, "the signal number is valid");
}

/// Kicks a thread of this process; a thread that has ended is not an error.
pub(crate) fn kick(tid: i32) {
    // SAFETY: tgkill takes plain numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) };
}

extern "C" fn on_kick(_: libc::c_int) {
    let byte = IMMEDIATE_EXIT.get();
    if !byte.is_null() {
        // SAFETY: non-null only while a Kickable exists on this thread, whose kvm_run
        // page is then mapped. The cell needs no lazy initialisation, so reading it in a
        // handler is sound.
        unsafe { byte.write_volatile(1) };
    }
}
