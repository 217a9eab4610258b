//! A timeline as a file: for the Perfetto viewer, or for those that read
//! Chrome's older JSON.
//!
//! Pieces are written as they come, so nothing is kept but which names and tracks
//! are known already, and a file that is ended at any time is whole.

mod chrome;
mod perfetto;
mod title;

use virtlens_model::timeline::Piece;

use self::chrome::Chrome;
use self::perfetto::Perfetto;
pub use self::title::{Clocks, Title};

/// The format of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protocol buffers.
    Perfetto,
    /// Chrome's trace events, JSON.
    Chrome,
}

/// Writes a timeline, piece by piece, as bytes.
pub struct Writer(Kind);

enum Kind {
    Perfetto(Box<Perfetto>),
    Chrome(Chrome),
}

impl Writer {
    /// Begins a file.
    pub fn new(format: Format, title: Title, out: &mut Vec<u8>) -> Self {
        Self(match format {
            Format::Perfetto => Kind::Perfetto(Box::new(Perfetto::new(title, out))),
            Format::Chrome => Kind::Chrome(Chrome::new(title, out)),
        })
    }

    /// Goes on with `piece`.
    pub fn write(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match &mut self.0 {
            Kind::Perfetto(perfetto) => perfetto.write(piece, out),
            Kind::Chrome(chrome) => chrome.write(piece, out),
        }
    }

    /// Ends the file.
    pub fn end(self, out: &mut Vec<u8>) {
        if let Kind::Chrome(_) = self.0 {
            out.extend_from_slice(chrome::END);
        }
    }
}
