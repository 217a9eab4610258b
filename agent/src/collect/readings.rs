//! One thread that reads the host for all clients.
//!
//! ```text
//! scrape ─┐              ┌─ a reading younger than min_age? it answers
//! scrape ─┼► (bounded) ──┤
//! table  ─┘              └─ else collect once, for all who wait
//! ```
//!
//! The thread sleeps until it gets a request, or until a recording is due for a reading. It
//! also encodes and compresses, so that the
//! thread that serves clients never blocks, and a second Prometheus gets the same bytes
//! as the first.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use tokio::sync::oneshot;
use virtlens_export::{Format, Scrape, Selection, encode, json, json_line};
use virtlens_model::snapshot::Snapshot;

use crate::collect::alerts::Alerts;
use crate::collect::recorder::{Keeper, Order};
use crate::process;

/// More than the concurrent requests of all connections that the server allows.
const MAX_WAITING: usize = 128;

/// Text that a reading is encoded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// The metrics.
    Metrics(Format),
    /// The whole snapshot as indented JSON.
    Json,
    /// The whole snapshot as one line of JSON.
    JsonLine,
}

/// Requested encoding of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// The text.
    pub text: Text,
    /// Whether it is compressed.
    pub gzip: bool,
}

/// Reason for a missing reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Too many requests are waiting.
    #[error("too many requests wait for a reading; increase the scrape interval")]
    Busy,
    /// The thread has ended, which happens only while the program ends.
    #[error("the agent is stopping")]
    Stopping,
}

enum Request {
    Encoded(Encoding, oneshot::Sender<Bytes>),
    Snapshot(oneshot::Sender<Arc<Snapshot>>),
}

/// Requests readings from the thread.
#[derive(Clone)]
pub struct Readings {
    requests: SyncSender<Request>,
    collecting_since: Arc<Mutex<Option<Instant>>>,
    min_age: Duration,
    recorded_in: Option<Arc<Path>>,
    alerts: Option<Alerts>,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

impl Readings {
    /// Starts the thread, which calls `collect` on request if its last reading ended
    /// `min_age` ago or longer, and encodes the metrics of `selection`. With `record` all
    /// readings are recorded, and one is taken if none was for its interval. The thread ends
    /// with the last clone of the returned value.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(
        collect: impl FnMut() -> Arc<Snapshot> + Send + 'static,
        min_age: Duration,
        selection: Selection,
        record: Option<Order>,
    ) -> std::io::Result<Self> {
        let folder = |order: &Order| Arc::from(PathBuf::clone(&order.folder));
        let recorded_in = record.as_ref().map(folder);
        let incidents = record.as_ref().and_then(|order| order.incidents.as_ref());
        let alerts = incidents.map(|order| order.alerts.clone());
        let keeper = record.map(Keeper::start).transpose()?;
        let (requests, receiver) = sync_channel(MAX_WAITING);
        let collecting_since = Arc::new(Mutex::new(None));
        let reader = Reader {
            collect,
            min_age,
            selection,
            keeper,
            collecting_since: Arc::clone(&collecting_since),
            held: None,
            text: String::new(),
        };
        std::thread::Builder::new()
            .name("collect".to_owned())
            .spawn(move || reader.answer_all(&receiver))?;
        Ok(Self {
            requests,
            collecting_since,
            min_age,
            recorded_in,
            alerts,
        })
    }

    /// Returns a reading that is not older than `min_age`, encoded. Clients that ask for
    /// the same encoding of a reading share it.
    ///
    /// # Errors
    ///
    /// See [`Unavailable`].
    pub async fn encoded(&self, encoding: Encoding) -> Result<Bytes, Unavailable> {
        self.ask(|reply| Request::Encoded(encoding, reply)).await
    }

    /// Returns a reading that is not older than `min_age`.
    ///
    /// # Errors
    ///
    /// See [`Unavailable`].
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        self.ask(Request::Snapshot).await
    }

    /// With a recording, which is not made here but read.
    #[must_use]
    pub fn with_recording(self, path: &Path) -> Self {
        Self {
            recorded_in: Some(Arc::from(path)),
            ..self
        }
    }

    /// How long a reading is cached.
    pub fn min_age(&self) -> Duration {
        self.min_age
    }

    /// Alerts for the incidents of the recording; `None` if none are kept.
    pub fn alerts(&self) -> Option<&Alerts> {
        self.alerts.as_ref()
    }

    /// The directory or file of the recording; `None` without one.
    pub fn recorded_in(&self) -> Option<&Path> {
        self.recorded_in.as_deref()
    }

    /// Duration of the running collection; `None` if none is running.
    pub fn collecting_for(&self) -> Option<Duration> {
        let since = *self
            .collecting_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .try_send(request(reply))
            .map_err(|error| match error {
                TrySendError::Full(_) => Unavailable::Busy,
                TrySendError::Disconnected(_) => Unavailable::Stopping,
            })?;
        answer.await.map_err(|_| Unavailable::Stopping)
    }
}

/// State of the thread.
struct Reader<C> {
    collect: C,
    min_age: Duration,
    selection: Selection,
    keeper: Option<Keeper>,
    collecting_since: Arc<Mutex<Option<Instant>>>,
    held: Option<Held>,
    /// Reused by all scrapes, to avoid mapping 2 MB again each time.
    text: String,
}

/// The last reading, and its encodings so far.
struct Held {
    reading: Arc<Scrape>,
    ended: Instant,
    bodies: Vec<(Encoding, Bytes)>,
}

impl<C: FnMut() -> Arc<Snapshot>> Reader<C> {
    fn answer_all(mut self, requests: &Receiver<Request>) {
        while let Some(first) = self.wait(requests) {
            // All requests that wait now get the same reading, even if `min_age` is 0.
            let waiting: Vec<_> = iter::once(first).chain(requests.try_iter()).collect();
            let mut held = self.fresh();
            for request in waiting {
                // A send fails if the client has disconnected meanwhile.
                match request {
                    Request::Snapshot(reply) => {
                        drop(reply.send(Arc::clone(&held.reading.snapshot)));
                    }
                    Request::Encoded(encoding, reply) => {
                        let body = held.body(encoding, &self.selection, &mut self.text);
                        drop(reply.send(body));
                    }
                }
            }
            self.held = Some(held);
        }
    }

    /// The next request; until then readings are taken for the recording. `None` at the end.
    fn wait(&mut self, requests: &Receiver<Request>) -> Option<Request> {
        let Some(keeper) = &self.keeper else {
            return requests.recv().ok();
        };
        let interval = keeper.interval;
        loop {
            let since = self.held.as_ref().map(|held| held.ended.elapsed());
            let left = since.map_or(Duration::ZERO, |since| interval.saturating_sub(since));
            match requests.recv_timeout(left) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    // The reading before it is dropped first, so that its memory is reused.
                    self.held = None;
                    self.held = Some(self.read());
                }
            }
        }
    }

    /// Returns the last reading if it is young enough, else a new one.
    fn fresh(&mut self) -> Held {
        let young = |held: &Held| held.ended.elapsed() < self.min_age;
        match self.held.take().filter(young) {
            Some(held) => held,
            None => self.read(),
        }
    }

    fn read(&mut self) -> Held {
        let start = Instant::now();
        self.set_collecting(Some(start));
        let snapshot = (self.collect)();
        self.set_collecting(None);
        let collection_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(keeper) = &self.keeper {
            keeper.keep(&snapshot);
        }
        let recording = self.keeper.as_ref().map(Keeper::state);
        Held {
            reading: Arc::new(Scrape {
                snapshot,
                agent: Some(process::agent(collection_ns, recording)),
            }),
            ended: Instant::now(),
            bodies: Vec::new(),
        }
    }

    fn set_collecting(&self, since: Option<Instant>) {
        *self
            .collecting_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = since;
    }
}

impl Held {
    fn body(&mut self, encoding: Encoding, selection: &Selection, buffer: &mut String) -> Bytes {
        if let Some((_, body)) = self.bodies.iter().find(|(made, _)| *made == encoding) {
            return body.clone();
        }
        let snapshot = &self.reading.snapshot;
        let text = match encoding.text {
            Text::Metrics(format) => {
                buffer.clear();
                encode(&self.reading, selection, format, buffer);
                Cow::Borrowed(&**buffer)
            }
            Text::Json => Cow::from(json(snapshot).expect("all its values have a JSON")),
            Text::JsonLine => Cow::from(json_line(snapshot).expect("all its values have a JSON")),
        };
        let body = if encoding.gzip {
            Bytes::from(gzip(text.as_bytes()))
        } else {
            // It is kept until the next reading: without unused capacity.
            Bytes::from(text.into_owned().into_boxed_str().into_boxed_bytes())
        };
        self.bodies.push((encoding, body.clone()));
        body
    }
}

/// Compresses at the fastest level: 3 ms for 2 MB. The default level takes 22 ms for
/// output that is a sixth smaller.
pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder
        .write_all(text)
        .expect("writing to a Vec cannot fail");
    encoder.finish().expect("writing to a Vec cannot fail")
}
