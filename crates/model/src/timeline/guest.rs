//! Guest mode of a vCPU and its exits: all time between two entries outside guest mode
//! belongs to one exit.

use std::collections::BTreeMap;

use crate::timeline::event::{Event, What};
use crate::timeline::exits::ExitReason;
use crate::timeline::piece::{Doing, Piece, Slice, Track};
use crate::timeline::summary::{ExitUse, GuestSplit};

/// State of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// From the start of the trace to the first event.
    Unseen,
    Inside,
    Outside(Exit),
    /// Events were lost.
    Unknown,
}

/// An exit that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exit {
    /// `None` if the exit began before the trace.
    reason: Option<ExitReason>,
    /// Limit of halt polling, ns.
    poll_ns: u64,
    to_vmm: bool,
    /// Time of polling while running, ns.
    polled_ns: u64,
    /// End of the last halt in this exit, ns.
    free_ns: u64,
}

impl Exit {
    fn new(reason: Option<ExitReason>, poll_ns: u64) -> Self {
        Self {
            reason,
            poll_ns,
            to_vmm: false,
            polled_ns: 0,
            free_ns: 0,
        }
    }
}

/// A time in which the thread was not running.
#[derive(Debug, Clone, Copy)]
struct Pause {
    from_ns: u64,
    /// `None` while the pause lasts.
    to_ns: Option<u64>,
    slept: bool,
}

/// Maximum number of kept pauses per exit. In a longer exit the last pauses suffice.
const PAUSES: usize = 64;

/// Guest mode of one vCPU.
#[derive(Debug)]
pub(super) struct Guest {
    tid: u32,
    place: Place,
    since_ns: u64,
    /// Run time of the thread at `since_ns`, ns.
    ran_ns: u64,
    lost: u32,
    pauses: Vec<Pause>,
    split: GuestSplit,
    pub(super) exits: BTreeMap<Option<ExitReason>, ExitUse>,
    /// KVM's exit count at the first and at the last exit.
    counted: Option<(u32, u32)>,
    recorded: u64,
}

impl Guest {
    pub(super) fn new(tid: u32, began_ns: u64) -> Self {
        Self {
            tid,
            place: Place::Unseen,
            since_ns: began_ns,
            ran_ns: 0,
            lost: 0,
            pauses: Vec::new(),
            split: GuestSplit::default(),
            exits: BTreeMap::new(),
            counted: None,
            recorded: 0,
        }
    }

    /// The thread starts running.
    pub(super) fn on(&mut self, now_ns: u64) {
        if let Some(last) = self.pauses.last_mut() {
            last.to_ns.get_or_insert(now_ns);
        }
    }

    /// The thread stops running.
    pub(super) fn off(&mut self, now_ns: u64, slept: bool) {
        if !matches!(self.place, Place::Outside(_)) {
            return;
        }
        if self.pauses.len() == PAUSES {
            self.pauses.remove(0);
        }
        self.pauses.push(Pause {
            from_ns: now_ns,
            to_ns: None,
            slept,
        });
    }

    /// Adds an event; `ran_ns`: run time of the thread until then.
    pub(super) fn feed(&mut self, event: &Event, ran_ns: u64, out: &mut Vec<Piece>) {
        let now_ns = event.time_ns;
        if event.lost.exits != self.lost {
            self.lost = event.lost.exits;
            self.place = Place::Unknown;
        }
        match event.what {
            What::Exit {
                reason,
                counted,
                poll_ns,
            } => {
                if self.place == Place::Unseen {
                    // An earlier entry would have been seen.
                    self.place = Place::Inside;
                }
                self.recorded += 1;
                let first = self.counted.map_or(counted, |(first, _)| first);
                self.counted = Some((first, counted));
                let exit = Exit::new(reason, poll_ns.into());
                self.change_state(Place::Outside(exit), now_ns, ran_ns, out);
            }
            What::Entry => {
                if self.place == Place::Unseen {
                    self.place = Place::Outside(Exit::new(None, 0));
                }
                self.change_state(Place::Inside, now_ns, ran_ns, out);
            }
            What::ToVmm => {
                if let Place::Outside(exit) = &mut self.place {
                    exit.to_vmm = true;
                }
            }
            What::HaltEnd { took_ns, slept } => self.halt_ended(took_ns, slept, now_ns, out),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, now_ns: u64, ran_ns: u64, out: &mut Vec<Piece>) {
        if self.place != Place::Unseen {
            self.change_state(Place::Unseen, now_ns, ran_ns, out);
        }
    }

    /// `None` for a thread without guest events.
    pub(super) fn split(&self) -> Option<GuestSplit> {
        let counted = self
            .counted
            .map(|(first, last)| u64::from(last.wrapping_sub(first)) + 1);
        let knows = self.recorded > 0 || self.split.guest_ns > 0 || !self.exits.is_empty();
        knows.then_some(GuestSplit {
            exits_recorded: self.recorded,
            exits_counted: counted,
            ..self.split
        })
    }

    /// Polling lasts from the start of the halt until the thread slept, was woken up, or
    /// reached KVM's limit (`kvm_vcpu_halt`, `virt/kvm/kvm_main.c`).
    fn halt_ended(&mut self, took_ns: u64, slept: bool, now_ns: u64, out: &mut Vec<Piece>) {
        let Place::Outside(exit) = &mut self.place else {
            return;
        };
        let began_ns = now_ns.saturating_sub(took_ns);
        let from_ns = began_ns
            .max(exit.free_ns)
            .max(self.since_ns.saturating_add(1));
        exit.free_ns = now_ns;
        let after = self.pauses.iter().filter(|pause| pause.from_ns >= from_ns);
        let slept_at = after.clone().find(|pause| pause.slept);
        let until_ns = match slept_at {
            Some(pause) if slept => pause.from_ns,
            _ => now_ns,
        };
        let to_ns = until_ns.min(from_ns.saturating_add(exit.poll_ns));
        if exit.poll_ns == 0 || to_ns <= from_ns {
            return;
        }
        let paused_ns: u64 = after
            .map(|pause| {
                let end_ns = pause.to_ns.unwrap_or(now_ns).min(to_ns);
                end_ns.saturating_sub(pause.from_ns)
            })
            .sum();
        exit.polled_ns += (to_ns - from_ns).saturating_sub(paused_ns);
        out.push(Piece::Slice(Slice {
            track: Track::Guest(self.tid),
            from_ns,
            to_ns,
            what: Doing::Polling,
            peer: None,
        }));
    }

    fn change_state(&mut self, to: Place, now_ns: u64, ran_ns: u64, out: &mut Vec<Piece>) {
        // The clocks of two CPUs can differ slightly.
        let now_ns = now_ns.max(self.since_ns);
        let from_ns = std::mem::replace(&mut self.since_ns, now_ns);
        let ran_here_ns = ran_ns.saturating_sub(std::mem::replace(&mut self.ran_ns, ran_ns));
        let former = std::mem::replace(&mut self.place, to);
        let took_ns = now_ns.saturating_sub(from_ns);
        self.pauses.clear();
        let what = match former {
            Place::Unseen => return,
            Place::Inside => {
                self.split.guest_ns += ran_here_ns;
                Doing::Guest
            }
            Place::Outside(exit) => {
                // Different clocks of two CPUs can make the interval shorter than the
                // polling.
                let polled_ns = exit.polled_ns.min(ran_here_ns);
                self.split.polled_ns += polled_ns;
                let used = self.exits.entry(exit.reason).or_default();
                used.add(took_ns, ran_here_ns - polled_ns, exit.to_vmm);
                Doing::Exit(exit.reason)
            }
            Place::Unknown => {
                self.split.unknown_ns += ran_here_ns;
                Doing::Unknown
            }
        };
        if took_ns > 0 {
            out.push(Piece::Slice(Slice {
                track: Track::Guest(self.tid),
                from_ns,
                to_ns: now_ns,
                what,
                peer: None,
            }));
        }
    }
}
