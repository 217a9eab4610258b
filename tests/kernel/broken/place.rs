//! Files that the agent reads, and which of their faults it can detect.

use virtlens_tests::Fault;

/// A file or directory that the agent reads.
pub(super) struct Place {
    pub(super) kind: Kind,
    /// Components of the path: `*` matches any one, `PID` is the VM's pid, `POD` the
    /// cgroup directory of its pod.
    pub(super) path: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A file that older kernels and some machines lack.
    MaybeFile,
    /// A file with one line per item.
    List,
    Dir,
    Links,
}

impl Kind {
    /// Whether a fault must be counted as a loss. `None` if the fault looks like a valid
    /// state: a process closes files, a directory may list fewer entries.
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
