//! The present web configuration, which follows changes of its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::web_config::WebConfig;
use crate::config::ConfigError;
use crate::http::file_watch::FileWatch;

/// Minimum time between checks of the files for changes. Files are checked only when
/// clients connect, at the cost of a few system calls of about a microsecond.
const RECHECK: Duration = Duration::from_secs(1);

/// A web configuration file, or none.
#[derive(Default)]
pub struct Web {
    path: Option<PathBuf>,
    current: Arc<WebConfig>,
    files: FileWatch,
    checked: Option<Instant>,
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Web {
    /// Reads the file. Without a file there is no TLS, and requests need no password.
    ///
    /// # Errors
    ///
    /// If the file or a file that it names is invalid.
    pub fn open(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let mut files = FileWatch::default();
        let current = WebConfig::read(path, &mut files).map_err(|reason| ConfigError::Web {
            path: path.to_owned(),
            reason,
        })?;
        let web = Self {
            path: Some(path.to_owned()),
            current: Arc::new(current),
            files,
            checked: None,
        };
        web.log("loaded the web configuration");
        Ok(web)
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.current.tls.is_some()
    }

    /// Returns the configuration for a new connection.
    pub(super) fn current(&mut self) -> Arc<WebConfig> {
        if let Some(path) = &self.path {
            let recent = |at: Instant| at.elapsed() < RECHECK;
            if !self.checked.is_some_and(recent) {
                self.checked = Some(Instant::now());
                if self.files.have_changed() {
                    self.reread(path.clone().as_path());
                }
            }
        }
        Arc::clone(&self.current)
    }

    /// Reads the files. An invalid configuration is logged once, until the files change
    /// again.
    fn reread(&mut self, path: &Path) {
        self.files = FileWatch::default();
        let read = WebConfig::read(path, &mut self.files).and_then(|new| self.not_weaker(new));
        match read {
            Ok(new) => {
                self.current = Arc::new(new);
                self.log("reloaded the web configuration");
            }
            Err(reason) => tracing::error!(
                file = %path.display(),
                reason,
                "cannot reload the web configuration; the previous one stays in use"
            ),
        }
    }

    fn not_weaker(&self, new: WebConfig) -> Result<WebConfig, String> {
        let demands = self.current.demands().into_iter().zip(new.demands());
        let mut gone = demands.filter_map(|((name, was), (_, is))| (was && !is).then_some(name));
        match gone.next() {
            None => Ok(new),
            Some(name) => Err(format!(
                "the new file no longer requires {name}; restart the agent to apply it"
            )),
        }
    }

    fn log(&self, what: &str) {
        tracing::info!(
            file = self.path.as_ref().map(|path| path.display().to_string()),
            tls = self.current.tls.is_some(),
            client_certificates = self.current.client_certificates,
            users = self.current.users.len(),
            "{what}"
        );
    }
}
