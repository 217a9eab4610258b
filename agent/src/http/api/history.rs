//! `/api/v1/history`: the recorded readings of a time, one per line.
//!
//! ```text
//! files ──► thread: decodes ──► (one waits) ──► selected and encoded ──► the connection
//! ```
//!
//! A reading is read when the connection has room for it, so a slow client stops the thread.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::unfold;
use hyper::StatusCode;
use hyper::body::{Bytes, Frame};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use virtlens_model::snapshot::API_VERSION;
use virtlens_record::{Lost, Recorded, Recording};

use crate::http::answer::{Answer, NDJSON, Problem, data};
use crate::http::api::stream::{LONGEST, Part, STALLED, in_parts};
use crate::http::api::view;
use crate::http::auth::Access;
use crate::http::query;
use crate::http::state::Caller;

/// State of a history.
struct History {
    caller: Caller,
    vm: Option<String>,
    readings: mpsc::Receiver<Result<Recorded, Lost>>,
    /// Number of readings that may follow.
    left: usize,
    /// Time of the latest reading so far, ns since 1970.
    latest_ns: u64,
    end: Instant,
    /// The last line is sent.
    is_over: bool,
    _place: Arc<OwnedSemaphorePermit>,
}

pub(super) async fn start(caller: Caller) -> Result<Answer, Problem> {
    let given = query::history(caller.query(), Timestamp::now()).map_err(Problem::bad_request)?;
    let Some(folder) = caller.state.readings.recorded_in() else {
        let text = "the agent makes no recording; start it with --record DIR";
        return Err(Problem::new(StatusCode::NOT_FOUND, text));
    };
    if caller.is_head() {
        return Ok(data(NDJSON, Bytes::new()));
    }
    let place = Arc::new(caller.state.history()?);
    let readings = read(folder.to_owned(), given.time, Arc::clone(&place));
    let readings = readings.await.map_err(|error| {
        let text = format!("cannot read the recording: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    let history = History {
        caller,
        vm: given.vm,
        readings,
        left: given.limit,
        latest_ns: 0,
        end: Instant::now() + LONGEST,
        is_over: false,
        _place: place,
    };
    Ok(in_parts(unfold(history, History::next)))
}

/// Starts to read the recorded readings of a time, ns since 1970.
async fn read(
    folder: PathBuf,
    time: Range<u64>,
    place: Arc<OwnedSemaphorePermit>,
) -> io::Result<mpsc::Receiver<Result<Recorded, Lost>>> {
    let opened = tokio::task::spawn_blocking(move || Recording::open(&folder));
    let (recording, refused) = opened.await.map_err(io::Error::other)??;
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let refused = refused.into_iter().map(|one| Err(one.into()));
        let mut all = refused.chain(recording.between(time));
        // A send fails if the client has disconnected.
        while all
            .next()
            .is_some_and(|one| sender.blocking_send(one).is_ok())
        {}
        drop(place);
    });
    Ok(receiver)
}

impl History {
    /// The next line; `None` at the end.
    async fn next(mut self) -> Option<(Part, Self)> {
        while !self.is_over {
            self.caller.limit.extend(STALLED);
            let next = tokio::select! {
                () = self.caller.state.stopped() => return None,
                next = self.readings.recv() => next?,
            };
            let line = match self.line(next).await {
                Ok(Some(line)) => line,
                Ok(None) => continue,
                Err(problem) => {
                    self.is_over = true;
                    problem.json().into()
                }
            };
            return Some((Ok(Frame::data(line)), self));
        }
        None
    }

    /// The line for a reading; `None` if the client may not see it.
    async fn line(&mut self, next: Result<Recorded, Lost>) -> Result<Option<Bytes>, Problem> {
        // Rights may have been revoked since the last one.
        let access = self.caller.admit().await?;
        let Recorded { unix_ns, snapshot } = match next {
            Ok(recorded) => recorded,
            Err(lost) => return Ok(Some(unreadable(&lost, &access))),
        };
        if self.left == 0 || Instant::now() >= self.end {
            self.is_over = true;
            // The clock may have been set back: a client that goes on from there would get the
            // same readings again and again.
            let next_ns = unix_ns.max(self.latest_ns.saturating_add(1));
            return Ok(Some(go_on(next_ns)));
        }
        self.left -= 1;
        self.latest_ns = self.latest_ns.max(unix_ns);
        let snapshot = Arc::new(snapshot);
        let line = view::line(&self.caller, &access, self.vm.as_deref(), snapshot);
        line.await
    }
}

/// The line for an unreadable part. The reason may contain names of the node's files.
fn unreadable(lost: &Lost, access: &Access) -> Bytes {
    let text = match access {
        Access::Whole => format!("a part of the recording is unreadable: {lost}"),
        Access::OwnPods(_) => "a part of the recording is unreadable".to_owned(),
    };
    (json!({"error": text}).to_string() + "\n").into()
}

/// The last line, if readings from a time on, ns since 1970, are left.
fn go_on(unix_ns: u64) -> Bytes {
    let since = Timestamp::from_nanosecond(unix_ns.into()).unwrap_or(Timestamp::MAX);
    let line = json!({"apiVersion": API_VERSION, "kind": "Continue", "since": since.to_string()});
    (line.to_string() + "\n").into()
}
