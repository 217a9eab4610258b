//! A timeline as a file: for the Perfetto viewer, or for those that read
//! Chrome's older JSON.
//!
//! Pieces are written as they come, so nothing is kept but which names and tracks
//! are known already, and a file that is ended at any time is whole.

mod chrome;
mod perfetto;

use rustc_hash::FxHashMap;
use virtlens_model::facts::CgroupId;
use virtlens_model::timeline::{Counter, Piece};

use self::chrome::Chrome;
use self::perfetto::Perfetto;

/// The format of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protocol buffers.
    Perfetto,
    /// Chrome's trace events, JSON.
    Chrome,
}

/// What a file says of itself.
#[derive(Debug, Clone)]
pub struct Title {
    /// What people call the VM.
    pub vm: String,
    /// The names of its processes, by id.
    pub processes: FxHashMap<u32, String>,
    /// The names of the cgroups whose quotas hold it.
    pub quotas: FxHashMap<CgroupId, String>,
    /// When it began.
    pub began: Clocks,
}

/// One moment on three clocks, ns.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, that of the pieces.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, that of the file.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: u64,
}

impl Title {
    /// A time of a piece on the clock of the file, ns.
    fn file_ns(&self, monotonic_ns: u64) -> u64 {
        let boottime_ns = self.began.boottime_ns.saturating_add(monotonic_ns);
        boottime_ns.saturating_sub(self.began.monotonic_ns)
    }

    fn quota(&self, group: CgroupId) -> String {
        let name = self.quotas.get(&group);
        format!("quota {}", name.map_or("of a cgroup", |name| name))
    }

    fn process(&self, pid: u32) -> String {
        let name = self.processes.get(&pid).map_or("process", |name| name);
        format!("{}: {name}", self.vm)
    }

    fn counter(&self, counter: Counter) -> (String, &'static str) {
        match counter {
            Counter::QuotaUsed(group) => (format!("{} used", self.quota(group)), "cores"),
            Counter::Resident => ("resident memory".to_owned(), "bytes"),
            Counter::Lost => ("events lost".to_owned(), "events"),
        }
    }
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
