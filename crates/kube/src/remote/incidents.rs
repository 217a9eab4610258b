//! Incidents and traces of an agent.

use std::time::Duration;

use http::Method;

use super::agent::{ANSWER_TIMEOUT, Agent};
use super::{Remote, Unanswered};

/// Time for a trace beside its length: its start and end on a busy node, and its transfer.
pub(super) const TRACE_TIMEOUT: Duration = Duration::from_mins(2);

/// Longest trace that an agent takes on demand.
pub(super) const LONGEST_TRACE: Duration = Duration::from_secs(30);

/// A trace to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// The VM: its pod as NAMESPACE/NAME, its name, the uid of its pod or the pid of its VMM.
    pub vm: String,
    /// Duration.
    pub length: Duration,
    /// Size at which it ends early, MiB.
    pub max_mib: u64,
}

impl Agent {
    /// The kept incidents, as JSON.
    pub(crate) async fn incidents(&self) -> Result<Vec<u8>, Unanswered> {
        self.get("/api/v1/incidents", "").await
    }

    /// A part of what is kept of an incident: its report as JSON with an empty `part`.
    async fn incident(&self, id: &str, part: &str) -> Result<Vec<u8>, Unanswered> {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '-';
        if id.is_empty() || !id.chars().all(is_plain) {
            return Err(Unanswered(format!("invalid id of an incident: {id:?}")));
        }
        let timeout = if part.is_empty() {
            ANSWER_TIMEOUT
        } else {
            TRACE_TIMEOUT
        };
        let path = format!("/api/v1/incidents/{id}{part}");
        self.ask(Method::GET, &path, "", timeout).await
    }

    /// Takes a trace, a file for the Perfetto viewer.
    pub(crate) async fn trace(&self, request: &TraceRequest) -> Result<Vec<u8>, Unanswered> {
        let TraceRequest {
            vm,
            length,
            max_mib,
        } = request;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("vm", vm)
            .append_pair("for", &format!("{}ms", length.as_millis()))
            .append_pair("maxSize", &max_mib.to_string());
        let timeout = *length + TRACE_TIMEOUT;
        let path = "/api/v1/trace";
        self.ask(Method::POST, path, &query.finish(), timeout).await
    }
}

impl Remote {
    /// The kept incidents, as JSON.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn incidents(&self) -> Result<Vec<u8>, Unanswered> {
        self.runtime.block_on(self.agent.incidents())
    }

    /// The report of an incident, as JSON.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn incident(&self, id: &str) -> Result<Vec<u8>, Unanswered> {
        self.runtime.block_on(self.agent.incident(id, ""))
    }

    /// The trace of an incident, a file for the Perfetto viewer.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn incident_trace(&self, id: &str) -> Result<Vec<u8>, Unanswered> {
        self.runtime.block_on(self.agent.incident(id, "/trace"))
    }

    /// Traces a VM and returns a file for the Perfetto viewer. Waits for the length of the trace.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn trace(&self, request: &TraceRequest) -> Result<Vec<u8>, Unanswered> {
        self.runtime.block_on(self.agent.trace(request))
    }
}
