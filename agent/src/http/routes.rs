//! Routes and answers.

use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderValue, VARY,
};
use hyper::{Method, StatusCode};
use serde_json::json;
use virtlens_export::Format;

use crate::collect::readings::{Encoding, Readings, Text, Unavailable};
use crate::http::accept::accepts_gzip;
use crate::http::answer::{Answer, JSON, Problem, data, full, plain, refuse, set};
use crate::http::auth::{API, Access, SESSION};
use crate::http::state::Caller;
use crate::http::{api, page, ui};

/// A collection that takes longer than this hangs: normally it takes milliseconds.
const STUCK: Duration = Duration::from_secs(10);

/// Answers an authorized request, of a client that may see this part of the node.
pub(super) async fn respond(caller: Caller, body: Incoming, access: Access) -> Answer {
    let (head, readings) = (&caller.head, &caller.state.readings);
    let path = head.uri.path();
    let is_api = path.starts_with(API);
    let file = ui::file(path);
    let is_known = ["/metrics", "/sources", "/healthz", "/readyz"].contains(&path);
    let is_session = path == SESSION && caller.state.auth.has_sessions();
    if !is_api && !is_known && !is_session && file.is_none() {
        return plain(StatusCode::NOT_FOUND, "not found; try /metrics");
    }
    let (methods, allow, text) = if is_session || api::is_posted(path) {
        (&[Method::POST][..], "POST", "use POST")
    } else {
        let text = "use GET or HEAD";
        (&[Method::GET, Method::HEAD][..], "GET, HEAD", text)
    };
    if !methods.contains(&head.method) {
        let text = format!("method not allowed; {text}");
        let mut response = Problem::new(StatusCode::METHOD_NOT_ALLOWED, text).answer(path);
        set(&mut response, ALLOW, HeaderValue::from_static(allow));
        return response;
    }
    // Other bodies are not read, so that they cannot use memory; a client that sends one gets
    // an error.
    if !body.is_end_stream() && !api::has_body(path) {
        let text = "request bodies are not accepted";
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text).answer(path);
    }
    if let Some(file) = file {
        return file.answer(&head.headers);
    }
    match path {
        _ if is_session => session(&caller),
        _ if is_api => api::respond(caller, body, access).await,
        "/metrics" => metrics(&head.headers, readings)
            .await
            .unwrap_or_else(unavailable),
        "/healthz" => plain(StatusCode::OK, "ok"),
        "/readyz" => ready(readings),
        _ => sources(readings).await.unwrap_or_else(unavailable),
    }
}

/// Answers with the token of `virtlens ui`.
fn session(caller: &Caller) -> Answer {
    let schemes = caller.state.auth.schemes(&caller.config);
    match caller.state.auth.session(&caller.head) {
        Ok(token) => data(JSON, json!({"token": token}).to_string()),
        Err(refusal) => refuse(refusal, schemes, API),
    }
}

async fn metrics(headers: &HeaderMap, readings: &Readings) -> Result<Answer, Unavailable> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip);
    let text = Text::Metrics(format);
    let body = readings.encoded(Encoding { text, gzip }).await?;

    let mut response = full(body);
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
        None => plain(StatusCode::OK, "ok"),
        Some(duration) => {
            let why = format!(
                "the current collection has been running for {} s",
                duration.as_secs()
            );
            plain(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

async fn sources(readings: &Readings) -> Result<Answer, Unavailable> {
    let snapshot = readings.snapshot().await?;
    let mut response = full(page::html(&snapshot));
    set(
        &mut response,
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    set(&mut response, CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

fn unavailable(reason: Unavailable) -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, &reason.to_string())
}
