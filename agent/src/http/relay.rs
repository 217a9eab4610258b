//! The page for browsers on a local port, with the API of an agent on another node.
//!
//! ```text
//! browser ─► page of this program
//!         ─► API: code or token of this command ─► request with its credentials ─► agent
//! ```
//!
//! A browser cannot reach the agent itself: its certificate has another name, and its port may be
//! behind a cluster's API server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use virtlens_kube::Remote;

use crate::http::answer::{Answer, JSON, Problem, data, plain, refuse};
use crate::http::auth::{Refusal, SESSION, Schemes, bearer};
use crate::http::connections::{Connections, Slot};
use crate::http::one_time::OneTime;
use crate::http::time_limit::TimeLimit;
use crate::http::ui;

/// Time for the head of a request, from a browser on this host.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without a part of an answer: the agent sends one every few seconds.
const PART_TIMEOUT: Duration = Duration::from_secs(30);

/// Time until the answer of the agent begins: a trace takes 30 s, and is then sent.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(3);

/// Limit on the size of a request's head; browsers send about 1 KB.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Pause after a failed accept, mostly due to a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The only headers of a request that reach the agent.
const PASSED: [HeaderName; 2] = [ACCEPT, ACCEPT_ENCODING];

/// Headers of an answer that are about one connection only (RFC 9110, 7.6.1).
const OF_CONNECTION: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, UPGRADE];

const SCHEMES: Schemes = Schemes {
    basic: false,
    bearer: true,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An answer of this program, or one that is passed on while it arrives.
type Passed = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// An agent on another node, for the browsers of one user of this host.
pub struct Relay {
    /// The agent.
    pub agent: Remote,
    /// The code and the token that other users of this host do not have. Without them a request
    /// reaches the agent with its own credentials, so the agent must not get others.
    pub one_time: Option<OneTime>,
}

/// Serves until `stop`, which ends the open connections, too. Run it with [`Remote::block_on`].
pub async fn relay(listener: TcpListener, relay: Relay, stop: impl Future<Output = ()>) {
    let (relay, connections) = (Arc::new(relay), Arc::<Connections>::default());
    let (mut stop, mut tasks) = (pin!(stop), JoinSet::new());
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let (slot, evicted) = connections.enter(peer.ip());
                    let relay = Arc::clone(&relay);
                    tasks.spawn(async move {
                        tokio::select! {
                            () = relay.serve(stream, &slot) => {}
                            _ = evicted => tracing::debug!("evicted by a newer connection"),
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
}

impl Relay {
    /// Serves one request.
    async fn serve(&self, stream: TcpStream, slot: &Slot) {
        let limit = TimeLimit::new(PART_TIMEOUT);
        let Ok(here) = stream.local_addr() else {
            return;
        };
        let service = service_fn(async |request| {
            Ok::<_, Infallible>(self.respond(request, here, slot, &limit).await)
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            served = served => if let Err(error) = served {
                tracing::debug!(%error, "connection failed");
            },
            () = limit.passed() => tracing::debug!("connection timed out"),
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        here: SocketAddr,
        slot: &Slot,
        limit: &TimeLimit,
    ) -> Passed {
        let (head, body) = request.into_parts();
        let passed = if let Some(own) = self.own(&head, &body, here) {
            Err(own)
        } else {
            slot.admitted();
            limit.extend(ANSWER_TIMEOUT);
            self.pass(&head).await
        };
        match passed {
            Ok(answer) => {
                let limit = limit.clone();
                answer.map(|body| {
                    let body = body.map_frame(move |part| {
                        limit.extend(PART_TIMEOUT);
                        part
                    });
                    body.boxed_unsync()
                })
            }
            Err(own) => own.map(|content| content.map_err(BoxError::from).boxed_unsync()),
        }
    }

    /// The answer of this program; `None` if the request is for the agent.
    fn own(&self, head: &Parts, body: &Incoming, here: SocketAddr) -> Option<Answer> {
        let path = head.uri.path();
        // A web site whose name has this address must not read the agent's answers.
        let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
        if host != Some(here.to_string().as_bytes()) {
            let text = format!("unknown host; this is {here}");
            return Some(plain(StatusCode::MISDIRECTED_REQUEST, &text));
        }
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            return Some(plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"));
        }
        if !body.is_end_stream() {
            let text = "request bodies are not accepted";
            return Some(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text).answer(path));
        }
        if let Some(file) = ui::file(path) {
            return Some(file.answer(&head.headers));
        }
        let one_time = self.one_time.as_ref()?;
        let given = head.headers.get(AUTHORIZATION).and_then(bearer);
        let refused = || Some(refuse(Refusal::Unknown, SCHEMES, path));
        if path == SESSION {
            let is_post = head.method == Method::POST;
            let code = given.filter(|_| is_post);
            return match code.and_then(|code| one_time.redeem(code)) {
                Some(token) => Some(data(JSON, json!({"token": token}).to_string())),
                None => refused(),
            };
        }
        match given {
            Some(given) if one_time.admits(given) => None,
            _ => refused(),
        }
    }

    /// Passes a request on to the agent.
    async fn pass(&self, head: &Parts) -> Result<Passed, Answer> {
        let path = head.uri.path();
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new(StatusCode::BAD_GATEWAY, error.to_string()).answer(path)
        };
        let target = head.uri.path_and_query().map_or(path, |both| both.as_str());
        let mut request = Request::builder().method(&head.method).uri(target);
        // The client's token is that of this command, if there is one.
        let credentials = self.one_time.is_none().then_some(AUTHORIZATION);
        for name in PASSED.into_iter().chain(credentials) {
            for value in head.headers.get_all(&name) {
                request = request.header(&name, value);
            }
        }
        let request = request.body(()).map_err(|error| failed(&error))?;
        let answer = self.agent.pass(request).await;
        let mut answer = answer.map_err(|error| failed(&error))?;
        if answer.status() == StatusCode::UNAUTHORIZED && self.one_time.is_some() {
            // The page would ask for credentials, which would not reach the agent.
            return Err(failed(&"the agent refused the credentials of this command"));
        }
        for name in OF_CONNECTION {
            answer.headers_mut().remove(name);
        }
        Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }
}
