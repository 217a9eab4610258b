//! Sets the field offsets of vhost devices for the programs, once they are known.

use std::path::{Path, PathBuf};

use virtlens_abi::map::VhostFields;
use zerocopy::IntoBytes as _;

use crate::Error;
use crate::facts::vhost;
use crate::maps::Maps;

/// Whether the programs have the offsets.
pub(super) struct Vhost {
    root: PathBuf,
    is_set: bool,
}

impl Vhost {
    /// `root` contains /sys.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            is_set: false,
        }
    }

    /// Called before each pass over open files, because the module may have been loaded
    /// since the last one: until then this costs one file lookup.
    pub(super) fn set(&mut self, maps: &Maps, in_kernel: Option<VhostFields>) -> Result<(), Error> {
        if self.is_set {
            return Ok(());
        }
        if let Some(fields) = in_kernel.or_else(|| vhost::of_module(&self.root)) {
            maps.update("vhost_fields", 0u32.as_bytes(), fields.as_bytes())?;
            self.is_set = true;
        }
        Ok(())
    }
}
