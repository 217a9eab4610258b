//! UDP packets that a vhost worker must copy to its guest.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Packets to a guest, until this is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts to send from one address to another.
    ///
    /// # Errors
    /// The host has no such address.
    pub fn start(from: &str, to: &str) -> std::io::Result<Self> {
        let socket = UdpSocket::bind((from, 0))?;
        // Port 9 discards; the guest's kernel does, nobody listens there.
        socket.connect((to, 9))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || {
            let packet = [0; 1200];
            while !stopped.load(Ordering::Relaxed) {
                // At most 16 packets a millisecond, so that the sender leaves
                // the emulated CPUs to those who are to be measured. Refused
                // and dropped packets are as good as others.
                for _ in 0..16 {
                    let _ = socket.send(&packet);
                }
                sleep(Duration::from_millis(1));
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
