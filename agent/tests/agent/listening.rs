//! The addresses on which the agent listens.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::set_no_new_privs;
use tempfile::TempDir;
use virtlens_tests::need;

use crate::errors::assert_fails;
use crate::program::{Agent, virtlens};
use crate::web::write_host;

/// An agent that listens on `listen`, on a minimal host of one CPU.
fn on(listen: &str, dir: &TempDir) -> Command {
    write_host(dir.path());
    let mut command = virtlens();
    command.args(["run", "--no-pin", "--listen", listen, "--root"]);
    command.arg(dir.path().join("host"));
    command
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn connects(agent: &Agent) -> [bool; 2] {
    let port = agent.address.port();
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    [four, six].map(|address| TcpStream::connect(address).is_ok())
}

fn has_ipv6(test: &str) -> bool {
    let bound = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    need::all(
        test,
        [need::that("ipv6", bound.is_ok(), "::1 is no address here")],
    )
}

#[test]
fn address_without_host_serves_ipv6_and_ipv4() {
    if !has_ipv6("address_without_host_serves_ipv6_and_ipv4") {
        return;
    }
    let dir = dir();
    let agent = Agent::run(&mut on(":0", &dir));
    assert_eq!(connects(&agent), [true, true]);
    assert_eq!(agent.get("/healthz").status, 200);
}

#[test]
fn explicit_ipv4_address_serves_ipv4_alone() {
    let dir = dir();
    let agent = Agent::run(&mut on("0.0.0.0:0", &dir));
    assert_eq!(connects(&agent), [true, false]);
}

#[test]
fn address_without_host_serves_ipv4_without_ipv6() {
    let dir = dir();
    let mut command = on(":0", &dir);
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(without_ipv6) };
    let agent = Agent::run(&mut command);
    assert!(agent.address.is_ipv4(), "{}", agent.address);
    assert_eq!(connects(&agent), [true, false]);
}

/// The port is free on IPv6 only: the agent must not serve one family alone.
#[test]
fn address_without_host_with_busy_ipv4_port_is_refused() {
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let address = format!(":{}", taken.local_addr().expect("an address").port());
    let dir = dir();
    let output = on(&address, &dir).output().expect("it starts");
    assert_fails(&output, 1, &[&address, "in use", "--listen"]);
}

/// Makes socket(2) fail for IPv6 in this process, as on a host without it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a filter's codes have 16 bits"
)]
fn without_ipv6() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    // struct seccomp_data: the call's number at 0, its first argument at 16.
    let mut steps = [
        step(LOAD, 0, 0),
        step(IF_EQUAL, u32::try_from(libc::SYS_socket).expect("small"), 3),
        step(LOAD, 16, 0),
        step(IF_EQUAL, libc::AF_INET6.cast_unsigned(), 1),
        step(
            RETURN,
            libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned(),
            0,
        ),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).expect("few"),
        filter: steps.as_mut_ptr(),
    };
    set_no_new_privs(true)?;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel copies the program, which lives until then.
    let failed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
