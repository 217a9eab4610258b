//! Source of pod names.

use std::path::PathBuf;
use std::str::FromStr;

/// The configured source of pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// The API server.
    ApiServer,
    /// The node's kubelet.
    Kubelet,
    /// A file with a list of pods.
    File(PathBuf),
    /// No pod names.
    None,
}

impl FromStr for Metadata {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("file:")) {
            ("apiserver", _) => Ok(Self::ApiServer),
            ("kubelet", _) => Ok(Self::Kubelet),
            ("none", _) => Ok(Self::None),
            (_, Some(path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(format!(
                "unknown source of pod names {text:?}; expected apiserver, kubelet, file:PATH or none"
            )),
        }
    }
}
