//! In which ways files fail.

use std::time::Duration;

use fuser::Errno;

/// What is wrong with a file, a link or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not there: ENOENT.
    Missing,
    /// It may not be opened: EACCES.
    Denied,
    /// It opens, and what it belongs to has ended when it is read: ESRCH.
    Ended,
    /// It opens and cannot be read: EIO.
    Unreadable,
    /// There is nothing in it.
    Empty,
    /// Half of it is missing.
    Cut,
    /// As long as it should be, and none of it has a meaning.
    Garbage,
    /// A file that never ends.
    Endless,
    /// Right, after [`SLOW`].
    Slow,
}

/// How long a slow answer takes.
pub(super) const SLOW: Duration = Duration::from_millis(5);

impl Fault {
    /// All that there are.
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

    /// What it makes of a text.
    pub(super) fn spoil(self, mut text: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Empty => text.clear(),
            Self::Cut => text.truncate(text.len() / 2),
            Self::Garbage => {
                // No digit, no letter, no line, and not UTF-8.
                let noise = (0x80..=0xffu8).cycle().step_by(7);
                text = noise.take(text.len().max(64)).collect();
            }
            _ => {}
        }
        text
    }
}
