//! A TCP proxy between the agent and the API server that can be cut.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to a server until it is cut.
pub(crate) struct Proxy {
    address: SocketAddr,
    wire: Arc<Mutex<Wire>>,
}

#[derive(Default)]
struct Wire {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// Listens on a free port for `url`, an `https://ADDRESS:PORT`.
    pub(crate) fn start(url: &str) -> Self {
        let server: SocketAddr = url
            .strip_prefix("https://")
            .and_then(|address| address.parse().ok())
            .expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let wire = Arc::new(Mutex::new(Wire::default()));
        let passed = Arc::clone(&wire);
        // The thread ends with the process: accept has no other end.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                pass(&client, server, &passed);
            }
        });
        Self { address, wire }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Breaks all connections and every new one.
    pub(crate) fn cut(&self) {
        let mut wire = self.wire.lock().expect("nobody panicked");
        wire.is_cut = true;
        for stream in wire.streams.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Forwards new connections again.
    pub(crate) fn mend(&self) {
        self.wire.lock().expect("nobody panicked").is_cut = false;
    }
}

fn pass(client: &TcpStream, server: SocketAddr, wire: &Mutex<Wire>) {
    let mut wire = wire.lock().expect("nobody panicked");
    if wire.is_cut {
        return;
    }
    let Ok(upstream) = TcpStream::connect(server) else {
        return;
    };
    let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor is free");
    for (mut from, mut to) in [
        (twin(client), twin(&upstream)),
        (twin(&upstream), twin(client)),
    ] {
        thread::spawn(move || {
            drop(copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
    wire.streams.push(twin(client));
    wire.streams.push(upstream);
}
