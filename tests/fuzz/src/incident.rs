//! Files of incidents. Their names come from tenants, and anyone may have copied them.

use virtlens_record::{TRACE_FILE, incident_path, parse_incident};

/// `data` is the file.
pub fn incident(data: &[u8]) {
    let Ok(incident) = parse_incident(data) else {
        return;
    };
    let path = incident_path("records".as_ref(), &incident.id);
    let path = path.expect("only valid ids are accepted");
    assert!(path.starts_with("records/incidents"));
    assert_eq!(path.components().count(), 3, "{}", path.display());
    assert!(incident.trace.iter().all(|name| name == TRACE_FILE));
    let text = serde_json::to_vec(&incident).expect("it is JSON");
    if let Ok(again) = parse_incident(&text) {
        assert_eq!((again.id, again.vm), (incident.id, incident.vm));
    }
}
