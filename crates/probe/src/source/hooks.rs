//! Programs that are attached to hooks, and may stay attached without the agent.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use crate::load::{Programs, not_pinned};
use crate::pins::Pins;
use crate::plan::Feature;
use crate::{Error, sys};

/// An attached program.
pub(super) struct Hook {
    pub(super) name: &'static str,
    pub(super) feature: Feature,
    /// Keeps the program attached; a pin keeps it attached longer.
    _link: OwnedFd,
}

impl Hook {
    /// Attaches a program, unless a former agent has left it attached. With `pins` it
    /// stays attached for the next agent.
    pub(super) fn attach(
        programs: &mut Programs,
        (feature, name): (Feature, &'static str),
        pins: Option<&Pins>,
        which: u64,
    ) -> Result<Self, Error> {
        let left = pins.and_then(|pins| Self::left(programs, (feature, name), pins, which));
        if let Some(left) = left {
            return Ok(left);
        }
        let program = programs.get(name).ok_or(Error::Missing(name))?;
        let link = programs.attach(name).map_err(Error::Load)?;
        if let Some(pins) = pins {
            let place = pins.program(name, which);
            // Left by an agent that exited before it pinned the link.
            drop(fs::remove_file(&place));
            sys::pin(program, &place).map_err(not_pinned(&place))?;
            let place = pins.link(name, which);
            sys::pin(link.as_fd(), &place).map_err(not_pinned(&place))?;
        }
        Ok(Self {
            name,
            feature,
            _link: link,
        })
    }

    /// Returns a program that a former agent has left attached.
    pub(super) fn left(
        programs: &mut Programs,
        (feature, name): (Feature, &'static str),
        pins: &Pins,
        which: u64,
    ) -> Option<Self> {
        let link = sys::pinned(&pins.link(name, which)).ok()?;
        let program = sys::pinned(&pins.program(name, which)).ok()?;
        programs.adopt(name, program);
        Some(Self {
            name,
            feature,
            _link: link,
        })
    }

    /// Removes its pins: it is detached once it is dropped.
    ///
    /// # Errors
    /// [`Error::Pin`]: its link is still pinned.
    pub(super) fn unpin(&self, pins: &Pins, which: u64) -> Result<(), Error> {
        let place = pins.link(self.name, which);
        match fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(not_pinned(&place)(error));
            }
            _ => {}
        }
        // A program without a link does not run, and is replaced when it is attached again.
        drop(fs::remove_file(pins.program(self.name, which)));
        Ok(())
    }
}

/// Whether programs are attached to hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// They wait for a VM. Some may still have to be detached.
    Waiting,
    /// They are attached.
    Attached {
        /// When the first of the last readings without a VM ended, ns since boot.
        idle_since_ns: Option<u64>,
    },
}

impl Attachment {
    /// The attachment in use from now on.
    pub(super) const NEW: Self = Self::Attached {
        idle_since_ns: None,
    };

    /// Records a reading. Returns whether there has been no VM for at least `limit`, so that
    /// the programs are to be detached.
    pub(super) fn is_over(&mut self, is_idle: bool, now_ns: u64, limit: Duration) -> bool {
        match self {
            Self::Waiting => is_idle,
            Self::Attached { idle_since_ns } if is_idle => {
                let since_ns = *idle_since_ns.get_or_insert(now_ns);
                u128::from(now_ns.saturating_sub(since_ns)) >= limit.as_nanos()
            }
            Self::Attached { idle_since_ns } => {
                *idle_since_ns = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_nanos(100);

    #[test]
    fn attachment_is_over_when_all_readings_for_the_limit_had_no_vm() {
        let mut attachment = Attachment::NEW;
        let mut is_over = |is_idle, now_ns| attachment.is_over(is_idle, now_ns, LIMIT);
        assert!(!is_over(false, 1000));
        assert!(!is_over(true, 2000), "the first without a VM");
        assert!(!is_over(true, 2099));
        assert!(is_over(true, 2100));
        assert!(is_over(true, 2101), "until they are detached");
    }

    #[test]
    fn reading_with_a_vm_restarts_the_limit() {
        let mut attachment = Attachment::NEW;
        let mut is_over = |is_idle, now_ns| attachment.is_over(is_idle, now_ns, LIMIT);
        assert!(!is_over(true, 1000));
        assert!(!is_over(false, 1099));
        assert!(!is_over(true, 1100));
        assert!(!is_over(true, 1199));
        assert!(is_over(true, 1200));
    }

    #[test]
    fn programs_that_wait_for_a_vm_are_to_be_detached() {
        let mut attachment = Attachment::Waiting;
        assert!(attachment.is_over(true, 1, LIMIT));
        assert!(!attachment.is_over(false, 2, LIMIT));
    }

    #[test]
    fn limit_of_zero_is_over_at_once() {
        let mut attachment = Attachment::NEW;
        assert!(attachment.is_over(true, 5, Duration::ZERO));
    }
}
