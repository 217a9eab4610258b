//! Creates the agent's listening socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::Listen;

/// Limit on pending connections, tokio's default.
const BACKLOG: u32 = 1024;

/// Listens on an address. For all addresses it creates one socket for IPv6 and IPv4, like
/// Go's `net.Listen`, and a socket for IPv4 alone if the host has no IPv6.
///
/// # Errors
///
/// If the address is in use or does not belong to the host.
pub(crate) async fn listen(on: Listen) -> io::Result<TcpListener> {
    let port = match on {
        Listen::At(address) => return TcpListener::bind(address).await,
        Listen::Every(port) => port,
    };
    match both_families(port) {
        Err(error) if has_no_ipv6(&error) => {
            tracing::info!(%error, "IPv6 not available, listening on IPv4 only");
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        listener => listener,
    }
}

fn both_families(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    // As in TcpListener::bind: a port with connections in TIME_WAIT can be reused.
    socket.set_reuseaddr(true)?;
    // The default of net.ipv6.bindv6only differs between distributions.
    set_ipv6_v6only(&socket, false)?;
    socket.bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    socket.listen(BACKLOG)
}

/// Whether the error means that the host has no IPv6. Without the address family, as with
/// `ipv6.disable=1` or a seccomp filter, the socket cannot be created; without any IPv6
/// address `[::]` may be rejected.
fn has_no_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}
