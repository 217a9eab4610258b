//! Answers to requests, and errors in the form of each route.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde_json::json;

use crate::collect::readings::Unavailable;
use crate::http::auth::{API, Refusal, Schemes};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// JSON, one value per line.
pub(super) const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// A file.
pub(super) const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// An answer that is complete, or made while it is sent.
pub(super) type Answer = Response<Content>;

/// Content of an answer.
pub(super) type Content = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// Reason for which a request to the API has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// A sentence.
    pub(super) text: String,
    /// Time after which the client may try again, s.
    pub(super) retry_after: Option<u32>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            retry_after: None,
        }
    }

    pub(super) fn bad_request(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// The request may succeed some seconds later.
    pub(super) fn for_now(text: impl Into<String>, retry_after: u32) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }

    /// The error as JSON.
    pub(super) fn json(&self) -> String {
        json!({"error": self.text}).to_string() + "\n"
    }

    /// The answer to a request for `path`: JSON for the API, text for other paths.
    pub(super) fn answer(&self, path: &str) -> Answer {
        let mut response = if path.starts_with(API) {
            data(JSON, self.json())
        } else {
            let mut response = full(self.text.clone() + "\n");
            set(&mut response, CONTENT_TYPE, TEXT);
            set(&mut response, X_CONTENT_TYPE_OPTIONS, NOSNIFF);
            response
        };
        *response.status_mut() = self.status;
        if let Some(seconds) = self.retry_after {
            set(&mut response, RETRY_AFTER, seconds.into());
        }
        response
    }
}

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

impl From<Unavailable> for Problem {
    fn from(reason: Unavailable) -> Self {
        Self::for_now(reason.to_string(), 1)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown => Self::new(StatusCode::UNAUTHORIZED, "authentication required"),
            Refusal::Forbidden => Self::new(
                StatusCode::FORBIDDEN,
                "forbidden: the token's user lacks the verb get on this nonResourceURL",
            ),
            Refusal::NoTrace(reason) => Self::new(StatusCode::FORBIDDEN, reason),
            Refusal::Busy => {
                Self::for_now("too many authentication checks are pending; try again", 1)
            }
            Refusal::Away => Self::for_now(
                "cannot review the token: the API server is not available; try again",
                1,
            ),
        }
    }
}

/// Answers a refused request for `path`.
pub(super) fn refuse(refusal: Refusal, schemes: Schemes, path: &str) -> Answer {
    let mut problem = Problem::from(refusal);
    if refusal != Refusal::Unknown {
        return problem.answer(path);
    }
    problem.text += match (schemes.basic, schemes.bearer) {
        (_, false) => ": user and password",
        (false, true) => ": bearer token",
        (true, true) => ": user and password, or bearer token",
    };
    let mut response = problem.answer(path);
    let basic = schemes
        .basic
        .then_some("Basic realm=\"virtlens\", charset=\"UTF-8\"");
    let bearer = schemes.bearer.then_some("Bearer realm=\"virtlens\"");
    for scheme in basic.into_iter().chain(bearer) {
        let headers = response.headers_mut();
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
    response
}

/// A complete text.
pub(super) fn plain(status: StatusCode, text: &str) -> Answer {
    Problem::new(status, text).answer("")
}

/// An answer with this content and no headers.
pub(super) fn full(content: impl Into<Bytes>) -> Answer {
    Response::new(Either::Left(Full::new(content.into())))
}

/// An answer of the API. It depends on the client, so it is not cached.
pub(super) fn data(content_type: HeaderValue, content: impl Into<Bytes>) -> Answer {
    let mut response = full(content);
    set(&mut response, CONTENT_TYPE, content_type);
    set(&mut response, X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let no_store = HeaderValue::from_static("no-store");
    set(&mut response, CACHE_CONTROL, no_store);
    response
}

pub(super) fn set(response: &mut Answer, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}
