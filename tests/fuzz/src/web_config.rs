//! The web configuration file, with the certificates that it names.

use std::path::Path;

use virtlens::http::check_web_config;

/// `data` is the file's content and, after a NUL, the content of each file it names.
pub fn web_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (text, named) = text.split_once('\0').unwrap_or((text, ""));
    let mut read = |path: &Path| {
        if named.is_empty() {
            Err(format!("cannot read {}", path.display()))
        } else {
            Ok(named.to_owned())
        }
    };
    if let Err(reason) = check_web_config(text, &mut read) {
        assert!(!reason.is_empty());
    }
}
