//! `/api/v1/stream`: a reading each interval, one per line.
//!
//! A line is made when the connection has room for it. A slow client therefore gets fewer
//! readings, at most one waits for it, and its connection is closed when it takes none for
//! too long.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{iter, unfold};
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::http::answer::{Answer, NDJSON, Problem, data};
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
    /// The last line is sent.
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

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
    let stream = Stream {
        caller,
        vm: given.vm,
        ticks,
        end: now + LONGEST,
        is_over: false,
        _place: place,
    };
    let first: Part = Ok(Frame::data(first));
    Ok(in_parts(iter([first]).chain(unfold(stream, Stream::next))))
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
                () = self.caller.state.stopped() => return None,
                _ = self.ticks.tick() => {}
            }
            if Instant::now() >= self.end {
                return None;
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
            return Some((Ok(Frame::data(line)), self));
        }
        None
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
