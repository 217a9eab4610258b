//! Messages of Alertmanager, which has names that tenants choose.

use virtlens::http::check_alerts;

/// `data` is the body of a request.
pub fn alerts(data: &[u8]) {
    match check_alerts(data) {
        Ok(()) => {
            // Texts that are ignored may be invalid UTF-8.
            serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("only JSON");
            let first = data.trim_ascii_start().first();
            assert!(matches!(first, Some(b'{' | b'[')));
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
}
