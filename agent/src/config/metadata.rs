//! Where names of pods come from.

use std::path::PathBuf;
use std::str::FromStr;

/// Where names of pods come from, as one is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// The API server.
    ApiServer,
    /// The node's kubelet.
    Kubelet,
    /// A file with a list of pods.
    File(PathBuf),
    /// From nowhere.
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
                "{text:?} is no source of pod names (expected apiserver, kubelet, file:PATH or none)"
            )),
        }
    }
}
