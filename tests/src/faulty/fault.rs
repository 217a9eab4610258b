//! Faults of files.

use std::time::Duration;

use fuser::Errno;

/// A fault of a file, a link or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file does not exist: ENOENT.
    Missing,
    /// The file may not be opened: EACCES.
    Denied,
    /// The file opens, but its process has ended when it is read: ESRCH.
    Ended,
    /// The file opens and cannot be read: EIO.
    Unreadable,
    /// The file is empty.
    Empty,
    /// Half of the file is missing.
    Cut,
    /// The file has its usual length and meaningless content.
    Garbage,
    /// The file never ends.
    Endless,
    /// The file is correct, after [`SLOW`].
    Slow,
}

/// Delay of a slow answer.
pub(super) const SLOW: Duration = Duration::from_millis(5);

impl Fault {
    /// All faults.
    pub const ALL: [Self; 9] = [
        Self::Missing,
        Self::Denied,
        Self::Ended,
        Self::Unreadable,
        Self::Empty,
        Self::Cut,
        Self::Garbage,
        Self::Endless,
        Self::Slow,
    ];

    pub(super) fn of_open(self) -> Option<Errno> {
        match self {
            Self::Missing => Some(Errno::ENOENT),
            Self::Denied => Some(Errno::EACCES),
            _ => None,
        }
    }

    pub(super) fn of_read(self) -> Option<Errno> {
        match self {
            Self::Ended => Some(Errno::ESRCH),
            Self::Unreadable => Some(Errno::EIO),
            _ => None,
        }
    }

    /// Applies the fault to a text.
    pub(super) fn spoil(self, mut text: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Empty => text.clear(),
            Self::Cut => text.truncate(text.len() / 2),
            Self::Garbage => {
                // No digit, no letter, no newline, and not UTF-8.
                let noise = (0x80..=0xffu8).cycle().step_by(7);
                text = noise.take(text.len().max(64)).collect();
            }
            _ => {}
        }
        text
    }
}
