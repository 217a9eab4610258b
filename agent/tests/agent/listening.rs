//! The addresses on which the agent listens.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use tempfile::TempDir;
use virtlens_tests::{filter, need};

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
    // As on a host without IPv6.
    let ipv6 = u32::try_from(libc::AF_INET6).ok();
    filter::refuse(&mut command, libc::SYS_socket, ipv6, libc::EAFNOSUPPORT);
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
