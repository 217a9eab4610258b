//! Messages of Alertmanager, which has names that tenants choose.

use virtlens::http::check_alerts;

/// `data` is the body of a request.
pub fn alerts(data: &[u8]) {
    match check_alerts(data) {
        Ok(()) => {
            let value: serde_json::Value = serde_json::from_slice(data).expect("only JSON");
            assert!(value.is_object() || value.is_array());
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
}
