//! The socket that the agent serves on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::Listen;

/// Connections that wait to be accepted, as many as tokio has by default.
const BACKLOG: u32 = 1024;

/// Listens. Every address is one socket for IPv6 and IPv4, as of Go's `net.Listen`, and
/// IPv4 alone where the host has no IPv6.
///
/// # Errors
///
/// When the address is in use or not the host's.
pub(crate) async fn listen(on: Listen) -> io::Result<TcpListener> {
    let port = match on {
        Listen::At(address) => return TcpListener::bind(address).await,
        Listen::Every(port) => port,
    };
    match both_families(port) {
        Err(error) if has_no_ipv6(&error) => {
            tracing::info!(%error, "no IPv6 on this host; listening on IPv4 alone");
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        listener => listener,
    }
}

fn both_families(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    // As TcpListener::bind: a port whose last connections still fade away is free.
    socket.set_reuseaddr(true)?;
    // Distributions differ in net.ipv6.bindv6only.
    set_ipv6_v6only(&socket, false)?;
    socket.bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    socket.listen(BACKLOG)
}

/// Without the family, as with `ipv6.disable=1` or a filter of system calls, there is no
/// socket; with the family and without any address [::] may be refused.
fn has_no_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}
