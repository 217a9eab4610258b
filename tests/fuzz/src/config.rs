//! The agent's configuration file.

use virtlens::config::{Config, Settings};

/// `data` is the file's content.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Settings::from_yaml(text) {
        Ok(settings) => {
            let alone = settings.clone().over(Settings::default());
            assert_eq!(alone, settings, "nothing below changes nothing");
            assert_eq!(Settings::default().over(settings.clone()), settings);
            drop(Config::from(settings));
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
}
