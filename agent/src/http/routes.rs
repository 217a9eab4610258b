//! Routes and answers.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use virtlens_export::Format;

use crate::collect::readings::{Encoding, Readings, Unavailable};
use crate::http::auth::{Refusal, Schemes};
use crate::http::page;

/// A collection that takes longer than this hangs: normally it takes milliseconds.
const STUCK: Duration = Duration::from_secs(10);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A complete answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Answers an authorized request.
pub(super) async fn respond(head: &Parts, body: &Incoming, readings: &Readings) -> Answer {
    let path = head.uri.path();
    if !["/", "/metrics", "/healthz", "/readyz"].contains(&path) {
        return plain(StatusCode::NOT_FOUND, "not found; try /metrics\n");
    }
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        let mut response = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed; use GET or HEAD\n",
        );
        set(&mut response, ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    // Bodies are not read, so that they cannot use memory; a client that sends one gets
    // an error.
    if !body.is_end_stream() {
        return plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request bodies are not accepted\n",
        );
    }
    match path {
        "/metrics" => metrics(&head.headers, readings)
            .await
            .unwrap_or_else(unavailable),
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => ready(readings),
        _ => landing(readings).await.unwrap_or_else(unavailable),
    }
}

async fn metrics(headers: &HeaderMap, readings: &Readings) -> Result<Answer, Unavailable> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip);
    let body = readings.metrics(Encoding { format, gzip }).await?;

    let mut response = Response::new(Full::new(body));
    set(
        &mut response,
        CONTENT_TYPE,
        HeaderValue::from_static(format.content_type()),
    );
    set(
        &mut response,
        VARY,
        HeaderValue::from_static("Accept, Accept-Encoding"),
    );
    if gzip {
        set(
            &mut response,
            CONTENT_ENCODING,
            HeaderValue::from_static("gzip"),
        );
    }
    Ok(response)
}

/// Reports whether a scrape would be answered. Does not start a collection, because
/// kubelet probes often.
fn ready(readings: &Readings) -> Answer {
    match readings
        .collecting_for()
        .filter(|duration| *duration > STUCK)
    {
        None => plain(StatusCode::OK, "ok\n"),
        Some(duration) => {
            let why = format!(
                "the current collection has been running for {} s\n",
                duration.as_secs()
            );
            plain(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

async fn landing(readings: &Readings) -> Result<Answer, Unavailable> {
    let snapshot = readings.snapshot().await?;
    let mut response = Response::new(Full::from(page::html(&snapshot)));
    set(
        &mut response,
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    set(&mut response, CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// Answers a refused request.
pub(super) fn refuse(refusal: Refusal, schemes: Schemes) -> Answer {
    match refusal {
        Refusal::Unknown => {
            let text = match (schemes.basic, schemes.bearer) {
                (_, false) => "authentication required: user and password\n",
                (false, true) => "authentication required: bearer token\n",
                (true, true) => "authentication required: user and password, or bearer token\n",
            };
            let mut response = plain(StatusCode::UNAUTHORIZED, text);
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
        Refusal::Forbidden => plain(
            StatusCode::FORBIDDEN,
            "forbidden: the token's user lacks the verb get on this nonResourceURL\n",
        ),
        Refusal::Busy => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many authentication checks are pending; try again\n",
        ),
        Refusal::Away => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "cannot review the token: the API server is not available; try again\n",
        ),
    }
}

fn unavailable(reason: Unavailable) -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, TEXT);
    set(
        &mut response,
        X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

fn set(response: &mut Answer, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}

/// Whether an `Accept-Encoding` header accepts gzip: by name or by `*`, and not with
/// quality 0.
pub fn accepts_gzip(header: &HeaderValue) -> bool {
    let codings = header.to_str().unwrap_or_default().split(',');
    codings
        .map(|coding| coding.split_once(';').unwrap_or((coding, "")))
        .find(|(name, _)| ["gzip", "*"].contains(&name.trim()))
        .is_some_and(|(_, parameters)| {
            let quality = parameters.trim().strip_prefix("q=");
            quality.is_none_or(|quality| quality.parse().is_ok_and(|quality: f32| quality > 0.0))
        })
}

#[cfg(test)]
mod tests {
    use super::{HeaderValue, accepts_gzip};

    #[test]
    fn gzip_is_sent_only_if_accepted() {
        for (header, taken) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("identity", false),
            ("", false),
            ("xgzip", false),
        ] {
            assert_eq!(
                accepts_gzip(&HeaderValue::from_static(header)),
                taken,
                "{header:?}"
            );
        }
    }
}
