//! What is known of an incident, and its file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use virtlens_model::snapshot::{API_VERSION, Check, Finding, Vm};

/// Longest file of an incident that is read or written, bytes. Tenants choose the names in it.
pub(crate) const MAX_FILE: usize = 256 << 10;

/// Name of the file with the trace, in the directory of its incident.
pub const TRACE_FILE: &str = "trace.pftrace";

const KIND: &str = "Incident";

/// Warnings that began together on a VM, or an alert, and what was kept of that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Version of the JSON shape.
    #[serde(rename = "apiVersion")]
    api_version: String,
    /// Always "Incident".
    kind: String,
    /// Name of its directory: the time of the onset and a number that rises.
    pub id: String,
    /// Time of the first reading with the warnings, or after the alert, RFC 3339, UTC.
    pub time: String,
    /// The same, ns since 1970.
    pub unix_ns: u64,
    /// Name of the node.
    pub node: String,
    /// The VM.
    pub vm: IncidentVm,
    /// The warnings that began, by rank; with alerts the findings of the VM.
    pub findings: Vec<Finding>,
    /// Names of the alerts that began it, or fired while it lasted.
    #[serde(default)]
    pub alerts: Vec<String>,
    /// Start of the time whose readings are kept, ns since 1970.
    pub from_ns: u64,
    /// End of this time, ns since 1970.
    pub until_ns: u64,
    /// Whether all readings of this time are kept; false while the time lasts.
    pub is_complete: bool,
    /// Name of the file with the trace, [`TRACE_FILE`].
    pub trace: Option<String>,
    /// Why it has no trace.
    pub trace_missing: Option<String>,
}

/// The VM of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentVm {
    /// Namespace of the pod, if known.
    pub namespace: Option<Arc<str>>,
    /// Name of the pod, if known.
    pub pod: Option<Arc<str>>,
    /// Uid of the pod, if known.
    pub uid: Option<Arc<str>>,
    /// Name of the VM; unique on the node.
    pub vm: Arc<str>,
    /// VMM of the VM.
    pub vmm: String,
    /// Runtime of the VM, if known.
    pub runtime: Option<String>,
    /// Process id of the VMM.
    pub pid: u32,
}

impl IncidentVm {
    /// Whether it is this VM, with the same VMM process.
    pub fn is(&self, vm: &Vm) -> bool {
        self.pid == vm.pid && self.vm == vm.vm
    }
}

impl From<&Vm> for IncidentVm {
    fn from(vm: &Vm) -> Self {
        Self {
            namespace: vm.namespace.clone(),
            pod: vm.pod.clone(),
            uid: vm.uid.clone(),
            vm: Arc::clone(&vm.vm),
            vmm: vm.vmm.to_owned(),
            runtime: vm.runtime.map(str::to_owned),
            pid: vm.pid,
        }
    }
}

impl Incident {
    /// An incident that begins with the reading of `time` (RFC 3339), which is `unix_ns`. It
    /// gets its id when it is stored.
    pub fn new(vm: &Vm, findings: Vec<Finding>, node: &str, time: &str, unix_ns: u64) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            id: String::new(),
            time: time.to_owned(),
            unix_ns,
            node: node.to_owned(),
            vm: vm.into(),
            findings,
            alerts: Vec::new(),
            from_ns: unix_ns.saturating_sub(BEFORE_NS),
            until_ns: unix_ns.saturating_add(AFTER_NS),
            is_complete: false,
            trace: None,
            trace_missing: None,
        }
    }

    /// The incident as the owner of its VM's pod may see it: without the trace, which names
    /// threads of others.
    #[must_use]
    pub fn for_tenant(&self) -> Self {
        // A new field does not compile before it is decided here whether tenants see it.
        let Self {
            api_version,
            kind,
            id,
            time,
            unix_ns,
            node,
            vm,
            findings,
            alerts,
            from_ns,
            until_ns,
            is_complete,
            trace: _,
            // May have values of the node and paths.
            trace_missing: _,
        } = self;
        let findings = findings.iter();
        let findings = findings.map(|one| one.for_tenant(vm.runtime.as_deref()));
        Self {
            api_version: api_version.clone(),
            kind: kind.clone(),
            id: id.clone(),
            time: time.clone(),
            unix_ns: *unix_ns,
            node: node.clone(),
            vm: vm.clone(),
            findings: findings.collect(),
            alerts: alerts.clone(),
            from_ns: *from_ns,
            until_ns: *until_ns,
            is_complete: *is_complete,
            trace: None,
            trace_missing: Some(WITHHELD.to_owned()),
        }
    }

    /// Adds the name of an alert; false if it is known, or if too many are.
    pub fn add_alert(&mut self, alert: &str) -> bool {
        let is_new = self.alerts.len() < MAX_ALERTS && self.alerts.iter().all(|one| one != alert);
        if is_new {
            self.alerts.push(alert.to_owned());
        }
        is_new
    }

    /// The checks that it began with.
    pub fn checks(&self) -> impl Iterator<Item = Check> + use<'_> {
        self.findings.iter().map(|finding| finding.check)
    }
}

/// Most alerts of an incident.
const MAX_ALERTS: usize = 16;

/// Replaces the trace for tenants.
const WITHHELD: &str = "traces name threads of others and are only for readers of the whole node";

/// Time before the onset whose readings are kept.
const BEFORE_NS: u64 = 300_000_000_000;

/// Time after the onset whose readings are kept.
const AFTER_NS: u64 = 60_000_000_000;

/// Parses the file of an incident.
///
/// # Errors
///
/// If the file is not an incident, or not of this version, with the reason.
pub fn parse_incident(bytes: &[u8]) -> Result<Incident, String> {
    if bytes.len() > MAX_FILE {
        return Err(format!("longer than {MAX_FILE} bytes"));
    }
    let incident: Incident = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if incident.api_version != API_VERSION || incident.kind != KIND {
        let (version, kind) = (&incident.api_version, &incident.kind);
        return Err(format!("{kind:?} of {version:?} is unknown"));
    }
    if number_of(&incident.id).is_none() {
        return Err("invalid id".to_owned());
    }
    if incident
        .trace
        .as_deref()
        .is_some_and(|name| name != TRACE_FILE)
    {
        return Err("invalid name of the trace".to_owned());
    }
    Ok(incident)
}

/// The id of incident `number`, from its time.
pub(crate) fn id(time: &str, number: u64) -> String {
    // 20260131T031000Z of 2026-01-31T03:10:00Z.
    let digits = time
        .chars()
        .filter(|char| char.is_ascii_digit() || *char == 'T');
    let time: String = digits.take(15).collect();
    format!("{time}Z-{number:06}")
}

/// The number at the end of an id; `None` if the text is not one.
pub(crate) fn number_of(id: &str) -> Option<u64> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '-';
    if id.len() > 64 || !id.chars().all(is_plain) {
        return None;
    }
    id.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{id, number_of};

    #[test]
    fn id_sorts_by_time_and_has_no_other_characters() {
        let first = id("2026-01-31T03:10:00.123456789Z", 7);
        assert_eq!(first, "20260131T031000Z-000007");
        assert_eq!(number_of(&first), Some(7));
        assert!(first < id("2026-01-31T03:10:01Z", 8));
        assert_eq!(number_of(&id("", 1)), Some(1));
        for wrong in [
            "",
            "..",
            "a/b-1",
            "../x-1",
            "lost+found",
            "1",
            "-",
            &"1-".repeat(40),
        ] {
            assert_eq!(number_of(wrong), None, "{wrong}");
        }
    }
}
