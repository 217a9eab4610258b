//! A queue for slow checks: limited concurrency, and limits on the waiting requests in
//! total and for each client address.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::connections::origin;

/// Limit on waiting requests: about a second's worth.
const MAX_WAITING: usize = 16;
/// Limit on waiting requests of one address, so that a flood of guesses does not block
/// others.
pub(super) const MAX_WAITING_OF_ONE: usize = 4;

pub(super) struct Queue {
    waiting: Mutex<Vec<IpAddr>>,
    pub(super) permits: Arc<Semaphore>,
}

impl Queue {
    /// Creates a queue that runs `at_once` checks concurrently.
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            permits: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Enters the queue for `peer`; `None` if it is full.
    pub(super) fn wait(&self, peer: IpAddr) -> Option<Waiting<'_>> {
        let peer = origin(peer);
        let mut waiting = lock(&self.waiting);
        let of_one = waiting.iter().filter(|one| **one == peer).count();
        if waiting.len() >= MAX_WAITING || of_one >= MAX_WAITING_OF_ONE {
            return None;
        }
        waiting.push(peer);
        Some(Waiting(self, peer))
    }
}

/// A place in the queue, released when dropped.
pub(super) struct Waiting<'a>(&'a Queue, IpAddr);

impl Waiting<'_> {
    /// Waits for a permit to run, held until it is dropped.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.permits).acquire_owned().await.ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        if let Some(place) = waiting.iter().position(|peer| *peer == self.1) {
            waiting.swap_remove(place);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
