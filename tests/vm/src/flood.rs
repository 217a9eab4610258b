//! UDP packets that a vhost worker has to copy to its guest.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Sends packets to a guest until it is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts sending from one address to another.
    ///
    /// # Errors
    /// The host has no such address.
    pub fn start(from: &str, to: &str) -> std::io::Result<Self> {
        let socket = UdpSocket::bind((from, 0))?;
        // Port 9 is discard; the guest's kernel drops the packets, because no process
        // listens.
        socket.connect((to, 9))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || {
            let packet = [0; 1200];
            while !stopped.load(Ordering::Relaxed) {
                // At most 16 packets per millisecond, so that the sender leaves CPU time
                // for the measured threads. Rejected and dropped packets cause the same
                // work.
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
