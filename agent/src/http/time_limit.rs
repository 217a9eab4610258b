//! The time limit of a connection, which an answer in parts extends as it proceeds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time at which a connection is closed. Clones share it.
#[derive(Clone)]
pub(super) struct TimeLimit(Arc<Mutex<Instant>>);

impl TimeLimit {
    /// The connection may last that long from now on.
    pub(super) fn new(duration: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + duration)))
    }

    /// The connection may last that long from now on.
    pub(super) fn extend(&self, duration: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + duration;
    }

    /// Waits until the time has passed.
    pub(super) async fn passed(&self) {
        loop {
            let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}
