//! The API: readings as JSON, now, continuously and from the recording.
//!
//! `openapi.json` describes it; `agent/tests/agent/api/described.rs` compares the two.

mod history;
mod stream;
mod view;

use hyper::StatusCode;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};

use crate::collect::readings::{Encoding, Text};
use crate::http::accept::accepts_gzip;
use crate::http::answer::{Answer, JSON, Problem, data, set};
use crate::http::auth::Access;
use crate::http::query;
use crate::http::state::Caller;

/// The description of the API, `OpenAPI` 3.1.
pub const DESCRIPTION: &str = include_str!("api/openapi.json");

/// A path of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The present reading.
    Snapshot,
    /// Readings, continuously.
    Stream,
    /// Recorded readings.
    History,
    /// The description of the API.
    Description,
}

impl Route {
    /// All routes.
    pub const ALL: [Self; 4] = [
        Self::Snapshot,
        Self::Stream,
        Self::History,
        Self::Description,
    ];

    /// The path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Snapshot => "/api/v1/snapshot",
            Self::Stream => "/api/v1/stream",
            Self::History => "/api/v1/history",
            Self::Description => "/api/v1/openapi.json",
        }
    }
}

/// Answers a request for a path of the API.
pub(super) async fn respond(caller: Caller, access: Access) -> Answer {
    let path = caller.head.uri.path().to_owned();
    let route = Route::ALL.into_iter().find(|route| route.path() == path);
    let answered = match route {
        Some(Route::Snapshot) => snapshot(&caller, &access).await,
        Some(Route::Stream) => stream::start(caller, &access).await,
        Some(Route::History) => history::start(caller).await,
        Some(Route::Description) => description(&caller),
        None => {
            let text = "not found; GET /api/v1/openapi.json describes the API";
            Err(Problem::new(StatusCode::NOT_FOUND, text))
        }
    };
    answered.unwrap_or_else(|problem| problem.answer(&path))
}

async fn snapshot(caller: &Caller, access: &Access) -> Result<Answer, Problem> {
    let vm = query::vm(caller.query()).map_err(Problem::bad_request)?;
    let headers = &caller.head.headers;
    let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip);
    let text = Text::Json;
    let body = view::present(caller, access, vm.as_deref(), Encoding { text, gzip }).await?;
    let mut response = data(JSON, body);
    set(
        &mut response,
        VARY,
        HeaderValue::from_static("Accept-Encoding"),
    );
    if gzip {
        let gzip = HeaderValue::from_static("gzip");
        set(&mut response, CONTENT_ENCODING, gzip);
    }
    Ok(response)
}

fn description(caller: &Caller) -> Result<Answer, Problem> {
    query::none(caller.query()).map_err(Problem::bad_request)?;
    Ok(data(JSON, DESCRIPTION))
}
