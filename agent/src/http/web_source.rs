//! Access to the files that a web configuration names.

use std::path::Path;

/// Reads a file as text, or returns an error with its name.
pub type ReadText<'a> = &'a mut dyn FnMut(&Path) -> Result<String, String>;
