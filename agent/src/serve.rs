//! The agent's HTTP face.
//!
//! One request a connection, and a bound on everything: how long its head may
//! take, how large it may be, how long the whole may last, how many there are
//! at once. So a client can cost its own connection and no one else's scrape,
//! and with no client there is no timer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use virtlens_export::Format;

use crate::page;
use crate::readings::{Encoding, Readings, Unavailable};

/// A scraper sends its head at once; ten seconds are for the worst network.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Prometheus gives up after 10 s by default; three times that is for others.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Enough for a pair of Prometheus, kubelet's probes and some curious people.
const MAX_CONNECTIONS: usize = 64;
/// Prometheus sends about 500 bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How long scrapes may take to finish once the agent is told to stop; less
/// than the 10 s that container runtimes give before they kill.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// A collection that takes longer hangs: it takes milliseconds.
const STUCK: Duration = Duration::from_secs(10);
/// After an error to accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Serves until `stop`; then lets the requests that are there finish.
pub async fn serve(listener: TcpListener, readings: Readings, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, readings.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("stopped with requests unanswered");
    }
}

async fn connection(stream: TcpStream, readings: Readings) {
    let service = service_fn(|request| {
        let readings = readings.clone();
        async move { Ok::<_, Infallible>(respond(&request, &readings).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a client broke off"),
        Err(_) => tracing::debug!("a client was too slow"),
    }
}

async fn respond(request: &Request<Incoming>, readings: &Readings) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !["/", "/metrics", "/healthz", "/readyz"].contains(&path) {
        return plain(StatusCode::NOT_FOUND, "not found; try /metrics\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        set(&mut response, ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => metrics(request.headers(), readings)
            .await
            .unwrap_or_else(unavailable),
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => ready(readings),
        _ => landing(readings).await.unwrap_or_else(unavailable),
    }
}

async fn metrics(
    headers: &HeaderMap,
    readings: &Readings,
) -> Result<Response<Full<Bytes>>, Unavailable> {
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

/// Ready is who would answer a scrape. Says so without a collection, for
/// kubelet asks often.
fn ready(readings: &Readings) -> Response<Full<Bytes>> {
    match readings
        .collecting_for()
        .filter(|duration| *duration > STUCK)
    {
        None => plain(StatusCode::OK, "ok\n"),
        Some(duration) => {
            let why = format!(
                "a collection has been going on for {} s\n",
                duration.as_secs()
            );
            plain(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

async fn landing(readings: &Readings) -> Result<Response<Full<Bytes>>, Unavailable> {
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

fn unavailable(reason: Unavailable) -> Response<Full<Bytes>> {
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
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

fn set(response: &mut Response<Full<Bytes>>, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}

/// Whether an `Accept-Encoding` header takes gzip: it is named, or all are
/// taken, and not with quality 0.
fn accepts_gzip(header: &HeaderValue) -> bool {
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
    fn gzip_is_sent_only_to_those_who_take_it() {
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
