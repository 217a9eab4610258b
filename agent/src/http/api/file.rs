//! A file as an answer, read in parts while it is sent.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use tokio::time::Instant;

use crate::http::answer::{Answer, data, set};
use crate::http::api::stream::{LONGEST, Part, STALLED};
use crate::http::auth::Access;
use crate::http::state::Caller;

/// Size of a part, bytes.
const PART: u64 = 64 << 10;

/// An open file.
pub(super) struct Contents {
    pub(super) file: File,
    /// Number of bytes to send.
    pub(super) length: u64,
}

/// State of an answer.
struct Sending<P> {
    caller: Caller,
    file: Arc<File>,
    at: u64,
    length: u64,
    end: Instant,
    _place: P,
}

/// Sends a file to a client that may see the whole node. The place is in use until then. If the
/// file cannot be sent completely, the connection is closed before the announced length.
pub(super) fn send<P: Send + 'static>(
    caller: Caller,
    content_type: HeaderValue,
    contents: Contents,
    place: P,
) -> Answer {
    let Contents { file, length } = contents;
    let mut response = data(content_type, Bytes::new());
    set(&mut response, CONTENT_LENGTH, length.into());
    if caller.is_head() {
        return response;
    }
    let sending = Sending {
        caller,
        file: Arc::new(file),
        at: 0,
        length,
        end: Instant::now() + LONGEST,
        _place: place,
    };
    let body = StreamBody::new(unfold(sending, Sending::next)).boxed_unsync();
    response.map(|_| Either::Right(body))
}

impl<P: Send + 'static> Sending<P> {
    /// The next part; `None` at the end.
    async fn next(mut self) -> Option<(Part, Self)> {
        let left = self.length.checked_sub(self.at).filter(|left| *left > 0)?;
        if Instant::now() >= self.end {
            return None;
        }
        self.caller.limit.extend(STALLED);
        // Rights may have been revoked since the last part.
        if self.caller.admit().await.ok()? != Access::Whole {
            return None;
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        let read = tokio::task::spawn_blocking(move || {
            let mut part = vec![0; usize::try_from(left.min(PART)).ok()?];
            let read = file.read_at(&mut part, at).ok()?;
            part.truncate(read);
            (read > 0).then_some(part)
        });
        let part = tokio::select! {
            () = self.caller.state.stopped() => return None,
            read = read => read.ok()??,
        };
        self.at += part.len() as u64;
        Some((Ok(Frame::data(part.into())), self))
    }
}
