//! What the agent reads, and whether it can tell that something is amiss with it.

use virtlens_tests::Fault;

/// What the agent reads, and where.
pub(super) struct Place {
    pub(super) kind: Kind,
    /// By parts of a path; `*` is any one, `PID` that of the VM, `POD` the directory
    /// of its pod.
    pub(super) path: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// Older kernels and some machines have none.
    MaybeFile,
    /// A line for each of something.
    List,
    Dir,
    Links,
}

impl Kind {
    /// Whether a fault must be counted; `None` where it cannot be told from what is
    /// well: a process closes files, a directory lists what there is.
    pub(super) fn is_lost(self, fault: Fault) -> Option<bool> {
        let is_gone = [Fault::Missing, Fault::Ended].contains(&fault);
        let is_refused = [Fault::Denied, Fault::Unreadable].contains(&fault);
        match self {
            _ if fault == Fault::Slow => Some(false),
            Self::File => Some(true),
            Self::MaybeFile => Some(!is_gone),
            Self::List => (![Fault::Empty, Fault::Cut].contains(&fault)).then_some(true),
            Self::Dir => (is_gone || is_refused).then_some(true),
            Self::Links => is_refused.then_some(true),
        }
    }
}

pub(super) const fn file(path: &'static str) -> Place {
    let kind = Kind::File;
    Place { kind, path }
}

pub(super) const fn maybe(path: &'static str) -> Place {
    let kind = Kind::MaybeFile;
    Place { kind, path }
}

pub(super) const fn list(path: &'static str) -> Place {
    let kind = Kind::List;
    Place { kind, path }
}

pub(super) const fn dir(path: &'static str) -> Place {
    let kind = Kind::Dir;
    Place { kind, path }
}

pub(super) const fn links(path: &'static str) -> Place {
    let kind = Kind::Links;
    Place { kind, path }
}
