//! What a timeline is made of, for whoever draws it or writes it down.

use std::borrow::Cow;
use std::sync::Arc;

use crate::timeline::event::Peer;
use crate::timeline::exits::ExitReason;
use crate::vocab::{CgroupId, Comm, Role, VhostDevice};

/// A part of a timeline. Parts come in the order of their ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A thread whose slices follow.
    Actor(Actor),
    /// Something that lasted.
    Slice(Slice),
    /// A value from now on.
    Count {
        /// When, ns.
        time_ns: u64,
        /// Of what.
        counter: Counter,
        /// How much.
        value: f64,
    },
    /// Something that happened since the last one of its kind.
    Note {
        /// When it was seen, ns.
        time_ns: u64,
        /// What.
        text: String,
    },
}

/// A thread of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Its id.
    pub tid: u32,
    /// The process that it is a thread of.
    pub process: u32,
    /// Its name.
    pub name: Comm,
    /// What it does for the VM; `None` where that is not known.
    pub role: Option<Role>,
    /// The vCPU that it runs.
    pub vcpu: Option<u32>,
    /// What it serves, of a vhost worker, where that is known.
    pub device: Option<VhostDevice>,
    /// The cgroups with a quota that it runs on.
    pub groups: Arc<[CgroupId]>,
}

impl Actor {
    /// What people call it: its name, with the vCPU or the device that the name does not
    /// have.
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

/// Something that lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Where it is drawn.
    pub track: Track,
    /// Since when, ns.
    pub from_ns: u64,
    /// Until when, ns.
    pub to_ns: u64,
    /// What it was.
    pub what: Doing,
    /// After a wait: who ran on that CPU last before.
    pub peer: Option<Peer>,
}

impl Slice {
    /// How long it was, ns.
    pub fn took_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// One line of the picture. Slices of one track nest or follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// What a thread does on its host.
    Thread(u32),
    /// Whether the vCPU that a thread runs is in its guest, and if not why.
    Guest(u32),
    /// Which thread of the VM a CPU runs.
    Pcpu(u32),
    /// When the quota of a cgroup had run out.
    Quota(CgroupId),
}

/// What lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// It ran on this CPU.
    Running(u32),
    /// It waited for a CPU.
    Runnable,
    /// Its quota held it back.
    Throttled,
    /// It waited for something.
    Sleeping,
    /// It waited, and took no signals.
    Uninterruptible,
    /// What it did is not known: events were lost, or do not fit to each other.
    Unknown,
    /// It was in its guest.
    Guest,
    /// It was out of its guest.
    Exit(Option<ExitReason>),
    /// It polled in a halt.
    Polling,
    /// This thread ran.
    Thread(u32),
}

impl Doing {
    /// As it is shown; of a thread only its number is known here.
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

/// A value that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Cores that the threads of a cgroup with a quota used, of what they may.
    QuotaUsed(CgroupId),
    /// Resident memory of the VM, bytes.
    Resident,
    /// Events that were lost, all together.
    Lost,
}
