//! A timeline as a file for the Perfetto viewer.
//!
//! Pieces are written as they come. The writer keeps only which names and tracks the file
//! has already, so a file that is cut off at any time is valid.

mod perfetto;
mod title;

pub use self::perfetto::Writer;
pub use self::title::{Clocks, Title};
