//! `/api/v1/incidents`: what the agent kept of warnings.
//!
//! Ids come from clients: `virtlens_record` checks them before they are part of a path.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use virtlens_record::{Incident, TRACE_FILE, incident, incident_path, incidents};

use crate::http::answer::{Answer, JSON, OCTETS, Problem, data};
use crate::http::api::file::{self, Contents};
use crate::http::auth::Access;
use crate::http::namespaces::Namespaces;
use crate::http::query;
use crate::http::state::Caller;
use crate::views::incidents::{Shown, is_of, list_json, readings};

/// All incidents that the client may see, oldest first.
pub(super) async fn list(caller: &Caller, access: &Access) -> Result<Answer, Problem> {
    let vm = query::vm(caller.query()).map_err(Problem::bad_request)?;
    let folder = records(caller)?;
    if caller.is_head() {
        return Ok(data(JSON, Bytes::new()));
    }
    let place = caller.state.incident()?;
    let all = blocking(place, move || incidents(&folder)).await?;
    let (all, unreadable) = all.map_err(|error| unreadable(&error))?;
    for error in unreadable {
        tracing::debug!(%error, "an incident is unreadable");
    }
    let is_wanted = |one: &Incident| vm.as_deref().is_none_or(|vm| is_of(one, vm));
    let wanted: Vec<Incident> = all.into_iter().filter(is_wanted).collect();
    let visible = visible(caller, access, &wanted).await?;
    let seen = wanted
        .into_iter()
        .filter_map(|one| seen(one, visible.as_ref()));
    let seen: Vec<Incident> = seen.collect();
    let text = caller.state.work(move || list_json(&seen).ok()).await;
    Ok(data(JSON, text.flatten().ok_or_else(broken)?))
}

/// One incident, with the usage of its VM before and during it.
pub(super) async fn show(caller: &Caller, access: &Access, id: &str) -> Result<Answer, Problem> {
    query::none(caller.query()).map_err(Problem::bad_request)?;
    let place = caller.state.incident()?;
    let (directory, found, place) = find(caller, access, id, place).await?;
    if caller.is_head() {
        return Ok(data(JSON, Bytes::new()));
    }
    let is_whole = *access == Access::Whole;
    let report = blocking(place, move || report(found, &directory, is_whole)).await?;
    Ok(data(JSON, report.map_err(|error| unreadable(&error))?))
}

/// The trace of an incident.
pub(super) async fn trace(caller: Caller, access: &Access, id: &str) -> Result<Answer, Problem> {
    query::none(caller.query()).map_err(Problem::bad_request)?;
    let place = caller.state.incident()?;
    let (directory, found, place) = find(&caller, access, id, place).await?;
    if *access != Access::Whole {
        let text = "forbidden: traces name threads of others and are only for readers of the whole \
                    node";
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    let missing = |why: &str| {
        let text = format!("the incident has no trace: {why}");
        Err(Problem::new(StatusCode::NOT_FOUND, text))
    };
    if found.trace.is_none() {
        return missing(found.trace_missing.as_deref().unwrap_or("not yet"));
    }
    let (place, kept) = (Arc::new(place), directory.join(TRACE_FILE));
    let opened = blocking(Arc::clone(&place), move || {
        let file = File::open(kept)?;
        let length = file.metadata()?.len();
        io::Result::Ok((file, length))
    });
    match opened.await? {
        Ok((file, length)) => {
            let contents = Contents { file, length };
            Ok(file::send(caller, OCTETS, contents, place))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => missing("it was removed"),
        Err(error) => Err(unreadable(&error)),
    }
}

/// The directory of the recording.
fn records(caller: &Caller) -> Result<PathBuf, Problem> {
    let folder = caller.state.readings.recorded_in();
    folder.map(Path::to_owned).ok_or_else(|| {
        let text = "the agent keeps no incidents without a recording; start it with --record DIR";
        Problem::new(StatusCode::NOT_FOUND, text)
    })
}

/// An incident with its directory, as the client may see it.
async fn find(
    caller: &Caller,
    access: &Access,
    id: &str,
    place: OwnedSemaphorePermit,
) -> Result<(PathBuf, Incident, OwnedSemaphorePermit), Problem> {
    let missing = || Problem::new(StatusCode::NOT_FOUND, "incident not found");
    let folder = records(caller)?;
    let directory = incident_path(&folder, id).ok_or_else(missing)?;
    let place = Arc::new(place);
    let id = id.to_owned();
    let found = blocking(Arc::clone(&place), move || incident(&folder, &id)).await?;
    let found = found.map_err(|error| {
        tracing::debug!(%error, "an incident is unreadable");
        let text = match access {
            Access::Whole => error.to_string(),
            // Its VM is unknown.
            Access::OwnPods(_) => return missing(),
        };
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    let found = found.ok_or_else(missing)?;
    let visible = visible(caller, access, std::slice::from_ref(&found)).await?;
    let seen = seen(found, visible.as_ref()).ok_or_else(missing)?;
    let place = Arc::into_inner(place).ok_or_else(broken)?;
    Ok((directory, seen, place))
}

/// The namespaces of incidents that the client may see; `None` if it may see the whole node.
async fn visible(
    caller: &Caller,
    access: &Access,
    all: &[Incident],
) -> Result<Option<Namespaces>, Problem> {
    let Access::OwnPods(token) = access else {
        return Ok(None);
    };
    let wanted = all.iter().filter_map(|one| one.vm.namespace.clone());
    Ok(Some(caller.namespaces(token, &wanted.collect()).await?))
}

/// The incident as the client may see it.
fn seen(incident: Incident, visible: Option<&Namespaces>) -> Option<Incident> {
    let Some(visible) = visible else {
        return Some(incident);
    };
    let namespace = incident.vm.namespace.as_deref()?;
    visible.contains(namespace).then(|| incident.for_tenant())
}

/// The JSON of an incident for a client that may see it, and the whole node or only its VM.
fn report(incident: Incident, directory: &Path, is_whole: bool) -> io::Result<String> {
    let namespace = incident.vm.namespace.clone();
    let lost = |error| tracing::debug!(%error, "a part of an incident is unreadable");
    let readings = if is_whole {
        readings(&incident, directory, |snapshot| snapshot, lost)?
    } else {
        let is_own = |name: &str| namespace.as_deref() == Some(name);
        readings(&incident, directory, |all| all.for_tenant(is_own), lost)?
    };
    let shown = Shown::new(incident, is_whole.then_some(directory), &readings);
    shown.json().map_err(io::Error::other)
}

/// Runs work that reads files apart from the thread that serves clients. The place is in use
/// until the work ends, even if the client has disconnected.
async fn blocking<T: Send + 'static>(
    place: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let working = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(place);
        result
    });
    working.await.map_err(|_| broken())
}

fn broken() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "cannot read the incident",
    )
}

/// The reason does not name files of the node.
fn unreadable(error: &io::Error) -> Problem {
    let text = format!("cannot read the recording: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}
