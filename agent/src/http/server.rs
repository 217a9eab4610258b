//! Accepts connections and serves one request on each.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::collect::readings::Readings;
use crate::collect::traces::Traces;
use crate::http::answer::{Answer, refuse};
use crate::http::auth::{Auth, Authorizers};
use crate::http::connections::{Connections, Slot};
use crate::http::routes;
use crate::http::state::{Caller, State};
use crate::http::time_limit::TimeLimit;
use crate::http::web::Web;
use crate::http::web_config::WebConfig;

/// A scraper sends its request head at once; ten seconds suffice on the worst network.
/// The preceding TLS handshake has the same timeout.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Prometheus times out after 10 s by default; other clients get three times as long.
/// Answers of the API that are made while they are sent extend it as they proceed.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Prometheus sends about 500 bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time for scrapes to finish after a stop signal; less than the 10 s after which
/// container runtimes send SIGKILL.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, mostly due to a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A client, with the configuration at the start of its connection.
struct Client {
    peer: IpAddr,
    config: Arc<WebConfig>,
    slot: Slot,
    limit: TimeLimit,
}

/// Byte stream of a connection, with or without TLS. A trait object is used so that the
/// program contains the HTTP code only once.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves until `stop`, and then waits for the running requests.
pub async fn serve(
    listener: TcpListener,
    mut web: Web,
    authorizers: Authorizers,
    readings: Readings,
    traces: Traces,
    stop: impl Future<Output = ()>,
) {
    let (stopping, is_stopping) = watch::channel(false);
    let auth = Auth::new(authorizers);
    let state = Arc::new(State::new(readings, traces, auth, is_stopping));
    let connections = Arc::<Connections>::default();
    let mut stop = pin!(stop);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            // Ended tasks come first, so that their memory is freed before new memory is
            // allocated.
            biased;
            () = &mut stop => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    // A dual-stack socket shows an IPv4 client as ::ffff:a.b.c.d.
                    let peer = address.ip().to_canonical();
                    let (slot, evicted) = connections.enter(peer);
                    let config = web.current();
                    let limit = TimeLimit::new(CONNECTION_TIMEOUT);
                    let client = Client { peer, config, slot, limit };
                    let state = Arc::clone(&state);
                    tasks.spawn(async move {
                        tokio::select! {
                            () = connection(stream, &client, &state) => {}
                            _ = evicted => tracing::debug!(%peer, "evicted by a newer connection"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    // Answers in parts end.
    stopping.send_replace(true);
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("stopped with requests in progress");
    }
}

async fn connection(stream: TcpStream, client: &Client, state: &Arc<State>) {
    let conversation = async {
        let stream = encrypted(stream, &client.config).await?;
        converse(stream, client, state).await
    };
    tokio::select! {
        conversed = conversation => if let Err(error) = conversed {
            tracing::debug!(peer = %client.peer, error, "connection failed");
        },
        () = client.limit.passed() => {
            tracing::debug!(peer = %client.peer, "connection timed out");
        }
    }
}

async fn encrypted(stream: TcpStream, config: &WebConfig) -> Result<Box<dyn Stream>, BoxError> {
    let Some(tls) = &config.tls else {
        return Ok(Box::new(stream));
    };
    let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
    match tokio::time::timeout(HEAD_TIMEOUT, handshake).await {
        Ok(stream) => Ok(Box::new(stream?)),
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

async fn converse(
    stream: Box<dyn Stream>,
    client: &Client,
    state: &Arc<State>,
) -> Result<(), BoxError> {
    let service =
        service_fn(async |request| Ok::<_, Infallible>(answer(request, client, state).await));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        // Limit on the buffer for a request head, whether it is complete or not.
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn answer(request: Request<Incoming>, client: &Client, state: &Arc<State>) -> Answer {
    let (head, body) = request.into_parts();
    let caller = Caller {
        state: Arc::clone(state),
        config: Arc::clone(&client.config),
        peer: client.peer,
        head,
        limit: client.limit.clone(),
    };
    let mut answer = match caller.admit().await {
        Ok(access) => {
            client.slot.admitted();
            routes::respond(caller, body, access).await
        }
        Err(refusal) => {
            let schemes = state.auth.schemes(&client.config);
            refuse(refusal, schemes, caller.head.uri.path())
        }
    };
    // `extend` would append them to the headers that the answer already has.
    for (name, value) in &client.config.headers {
        answer.headers_mut().insert(name, value.clone());
    }
    answer
}
