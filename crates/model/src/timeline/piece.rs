//! Parts of a timeline, for drawing or export.

use std::borrow::Cow;
use std::sync::Arc;

use crate::timeline::event::Peer;
use crate::timeline::exits::ExitReason;
use crate::vocab::{CgroupId, Comm, Role, VhostDevice};

/// A part of a timeline. Parts are ordered by their end.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A thread whose slices follow.
    Actor(Actor),
    /// A state with a duration.
    Slice(Slice),
    /// A new value of a counter.
    Count {
        /// Time, ns.
        time_ns: u64,
        /// The counter.
        counter: Counter,
        /// The value.
        value: f64,
    },
    /// Something that happened since the last note of its kind.
    Note {
        /// Time when it was seen, ns.
        time_ns: u64,
        /// Description.
        text: String,
    },
}

/// A thread of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Thread id.
    pub tid: u32,
    /// The process of the thread.
    pub process: u32,
    /// Name of the thread.
    pub name: Comm,
    /// Role of the thread; `None` if unknown.
    pub role: Option<Role>,
    /// The vCPU that it runs.
    pub vcpu: Option<u32>,
    /// The device that a vhost worker serves, if known.
    pub device: Option<VhostDevice>,
    /// The cgroups of the thread that have a quota.
    pub groups: Arc<[CgroupId]>,
}

impl Actor {
    /// Display name: the thread's name, plus the vCPU or the device if the name lacks it.
    pub fn title(&self) -> String {
        match (self.vcpu, self.device) {
            (Some(id), _) if !self.name.as_bytes().starts_with(b"CPU ") => {
                format!("vCPU {id} {}", self.name)
            }
            (None, Some(device)) => format!("{} {device}", self.name),
            _ => self.name.to_string(),
        }
    }
}

/// A state with a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The track on which it is drawn.
    pub track: Track,
    /// Start, ns.
    pub from_ns: u64,
    /// End, ns.
    pub to_ns: u64,
    /// The state.
    pub what: Doing,
    /// After a wait: the thread that ran on the CPU before.
    pub peer: Option<Peer>,
}

impl Slice {
    /// Duration, ns.
    pub fn took_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// One track of the picture. Slices of one track are nested or disjoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// State of a thread on its host.
    Thread(u32),
    /// Guest mode of a thread's vCPU, and its exits.
    Guest(u32),
    /// The VM's thread that a CPU runs.
    Pcpu(u32),
    /// The times in which a cgroup's quota was exhausted.
    Quota(CgroupId),
}

/// State of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// Running on this CPU.
    Running(u32),
    /// Waiting for a CPU.
    Runnable,
    /// Throttled by a quota.
    Throttled,
    /// Sleeping, interruptible.
    Sleeping,
    /// Sleeping, uninterruptible.
    Uninterruptible,
    /// Unknown: events were lost or are inconsistent.
    Unknown,
    /// In guest mode.
    Guest,
    /// In an exit.
    Exit(Option<ExitReason>),
    /// Polling in a halt.
    Polling,
    /// A CPU runs this thread.
    Thread(u32),
}

impl Doing {
    /// Display name; for a thread only its id is available here.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Running(pcpu) => return format!("running p{pcpu}").into(),
            Self::Runnable => "runnable",
            Self::Throttled => "throttled",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "uninterruptible",
            Self::Unknown => "unknown",
            Self::Guest => "guest",
            Self::Exit(None) => "exit",
            Self::Exit(Some(reason)) => return reason.name(),
            Self::Polling => "halt polling",
            Self::Thread(tid) => return tid.to_string().into(),
        })
    }
}

/// A counter over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Cores used by the threads of a cgroup with a quota.
    QuotaUsed(CgroupId),
    /// Resident memory of the VM, bytes.
    Resident,
    /// Total number of lost events.
    Lost,
}
