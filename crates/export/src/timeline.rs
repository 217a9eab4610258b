//! A timeline as a file for the Perfetto viewer.
//!
//! Pieces are written as they arrive. The writer keeps only the names and tracks that the
//! file already defines. A file that is cut off at any time is valid.

mod perfetto;
mod title;

pub use self::perfetto::Writer;
pub use self::title::{Clocks, Title};
