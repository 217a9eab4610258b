//! HTTP requests to a program of a test.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// An address of this machine whose port was free a moment ago, for programs that do not
/// report a port that they chose.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port is free")
}

/// The whole answer to a request whose body is JSON or empty. With HTTP/1.0 it is not chunked
/// and ends with the connection.
///
/// # Errors
///
/// Nothing listens there, or the connection breaks.
pub fn ask(address: SocketAddr, method: &str, target: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "{method} {target} HTTP/1.0\r\nHost: test\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
