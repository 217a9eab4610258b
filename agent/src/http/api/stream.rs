//! `/api/v1/stream`: a reading each interval, one per line.
//!
//! A line is made when the connection has room for it. A slow client therefore gets fewer
//! readings, at most one waits for it, and its connection is closed when it takes none for
//! too long. Lines are compressed if the client accepts gzip: each part ends at the end of a line,
//! so that the client gets the line at once.

use std::convert::Infallible;
use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt as _;
use futures_util::stream::{iter, unfold};
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::http::accept::accepts_gzip;
use crate::http::answer::{Answer, NDJSON, Problem, data, set};
use crate::http::api::view::{self, LINE};
use crate::http::auth::Access;
use crate::http::query;
use crate::http::state::Caller;

/// Duration of a stream. The client then connects again.
pub(super) const LONGEST: Duration = Duration::from_mins(10);
/// A client that takes nothing for this time is disconnected.
pub(super) const STALLED: Duration = Duration::from_secs(30);

/// A part of an answer.
pub(super) type Part = Result<Frame<Bytes>, Infallible>;

/// State of a stream.
struct Stream {
    caller: Caller,
    vm: Option<String>,
    ticks: Interval,
    end: Instant,
    /// Compresses the lines, if the client accepts that.
    encoder: Option<Encoder>,
    /// The last line is sent.
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

/// Compresses at the fastest level, as for scrapes (`readings::gzip`), with the lines before as
/// dictionary.
type Encoder = GzEncoder<Vec<u8>>;

pub(super) async fn start(caller: Caller, access: &Access) -> Result<Answer, Problem> {
    let min_age = caller.state.readings.min_age();
    let given = query::stream(caller.query(), min_age).map_err(Problem::bad_request)?;
    if caller.is_head() {
        return Ok(data(NDJSON, Bytes::new()));
    }
    let place = caller.state.stream()?;
    let now = Instant::now();
    let first = view::present(&caller, access, given.vm.as_deref(), LINE).await?;
    let mut ticks = interval_at(now + given.interval, given.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let headers = &caller.head.headers;
    let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip);
    let mut stream = Stream {
        caller,
        vm: given.vm,
        ticks,
        end: now + LONGEST,
        encoder: gzip.then(|| Encoder::new(Vec::new(), Compression::fast())),
        is_over: false,
        _place: place,
    };
    let first: Part = Ok(Frame::data(stream.packed(first).await?));
    let mut answer = in_parts(iter([first]).chain(unfold(stream, Stream::next)));
    let encoding = HeaderValue::from_static("Accept-Encoding");
    set(&mut answer, VARY, encoding);
    if gzip {
        let gzip = HeaderValue::from_static("gzip");
        set(&mut answer, CONTENT_ENCODING, gzip);
    }
    Ok(answer)
}

/// An answer of lines that are made while it is sent.
pub(super) fn in_parts(parts: impl futures_util::Stream<Item = Part> + Send + 'static) -> Answer {
    let body = StreamBody::new(parts).boxed_unsync();
    data(NDJSON, Bytes::new()).map(|_| Either::Right(body))
}

impl Stream {
    /// The next line; `None` at the end.
    async fn next(mut self) -> Option<(Part, Self)> {
        while !self.is_over {
            let limit = self.ticks.period() + STALLED;
            self.caller.limit.extend(limit);
            tokio::select! {
                () = self.caller.state.stopped() => return self.last(),
                _ = self.ticks.tick() => {}
            }
            if Instant::now() >= self.end {
                return self.last();
            }
            let line = match self.line().await {
                Ok(Some(line)) => line,
                Ok(None) => continue,
                // The next reading may be available again.
                Err(problem) if problem.retry_after.is_some() => continue,
                Err(problem) => {
                    self.is_over = true;
                    problem.json().into()
                }
            };
            let part = self.packed(line).await.ok()?;
            return Some((Ok(Frame::data(part)), self));
        }
        self.last()
    }

    /// A line as it is sent.
    async fn packed(&mut self, line: Bytes) -> Result<Bytes, Problem> {
        let Some(mut encoder) = self.encoder.take() else {
            return Ok(line);
        };
        let packed = self.caller.state.work(move || {
            let written = encoder.write_all(&line).and_then(|()| encoder.flush());
            written.expect("writing to a Vec cannot fail");
            let part = std::mem::take(encoder.get_mut());
            (encoder, Bytes::from(part))
        });
        let (encoder, part) = packed.await.ok_or_else(view::broken)?;
        self.encoder = Some(encoder);
        Ok(part)
    }

    /// The end of the compressed lines.
    fn last(mut self) -> Option<(Part, Self)> {
        let rest = self.encoder.take()?.finish();
        self.is_over = true;
        let rest = rest.expect("writing to a Vec cannot fail");
        Some((Ok(Frame::data(rest.into())), self))
    }

    /// The present reading; `None` if it shows nothing to the client. Rights may have been
    /// revoked since the last one.
    async fn line(&self) -> Result<Option<Bytes>, Problem> {
        let access = self.caller.admit().await?;
        let readings = &self.caller.state.readings;
        if access == Access::Whole && self.vm.is_none() {
            return Ok(Some(readings.encoded(LINE).await?));
        }
        let snapshot = readings.snapshot().await?;
        view::line(&self.caller, &access, self.vm.as_deref(), snapshot).await
    }
}
