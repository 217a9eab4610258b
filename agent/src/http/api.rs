//! The API: readings as JSON, now, continuously and from the recording, incidents, traces and
//! alerts.
//!
//! `openapi.json` describes it; `agent/tests/agent/api/described.rs` compares the two.

mod alerts;
mod file;
mod history;
mod incidents;
mod stream;
mod trace;
mod view;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};

pub use self::alerts::check_alerts;
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
    /// The incidents of the recording.
    Incidents,
    /// An incident.
    Incident,
    /// The trace of an incident.
    IncidentTrace,
    /// A new trace.
    Trace,
    /// Alerts of Alertmanager.
    Alerts,
    /// The description of the API.
    Description,
}

impl Route {
    /// All routes.
    pub const ALL: [Self; 9] = [
        Self::Snapshot,
        Self::Stream,
        Self::History,
        Self::Incidents,
        Self::Incident,
        Self::IncidentTrace,
        Self::Trace,
        Self::Alerts,
        Self::Description,
    ];

    /// The path, with `{id}` for the id of an incident.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Snapshot => "/api/v1/snapshot",
            Self::Stream => "/api/v1/stream",
            Self::History => "/api/v1/history",
            Self::Incidents => "/api/v1/incidents",
            Self::Incident => "/api/v1/incidents/{id}",
            Self::IncidentTrace => "/api/v1/incidents/{id}/trace",
            Self::Trace => "/api/v1/trace",
            Self::Alerts => "/api/v1/alerts",
            Self::Description => "/api/v1/openapi.json",
        }
    }

    /// The route of a path, with the id in it, as the client sent it.
    fn of(path: &str) -> Option<(Self, &str)> {
        let matches = |route: &Self| match route.path().split_once("{id}") {
            None => (path == route.path()).then_some(""),
            Some((before, after)) => {
                let id = path.strip_prefix(before)?.strip_suffix(after)?;
                (!id.is_empty() && !id.contains('/')).then_some(id)
            }
        };
        let mut routes = Self::ALL.into_iter();
        routes.find_map(|route| Some((route, matches(&route)?)))
    }
}

/// Whether requests for a path use POST: it does something.
pub(super) fn is_posted(path: &str) -> bool {
    path == Route::Trace.path() || has_body(path)
}

/// Whether requests for a path have a body.
pub(super) fn has_body(path: &str) -> bool {
    path == Route::Alerts.path()
}

/// Answers a request for a path of the API.
pub(super) async fn respond(caller: Caller, body: Incoming, access: Access) -> Answer {
    let path = caller.head.uri.path().to_owned();
    let answered = match Route::of(&path) {
        Some((Route::Snapshot, _)) => snapshot(&caller, &access).await,
        Some((Route::Stream, _)) => stream::start(caller, &access).await,
        Some((Route::History, _)) => history::start(caller).await,
        Some((Route::Incidents, _)) => incidents::list(&caller, &access).await,
        Some((Route::Incident, id)) => incidents::show(&caller, &access, id).await,
        Some((Route::IncidentTrace, id)) => incidents::trace(caller, &access, id).await,
        Some((Route::Trace, _)) => trace::take(caller).await,
        Some((Route::Alerts, _)) => alerts::take(caller, body).await,
        Some((Route::Description, _)) => description(&caller),
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
