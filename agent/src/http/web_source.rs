//! The files that a web configuration names.

use std::path::Path;

/// Reads a file as text, or says with its name why it cannot.
pub type ReadText<'a> = &'a mut dyn FnMut(&Path) -> Result<String, String>;
