//! State of one thread over time: exactly one state at any time.
//!
//! ```text
//!   sleeping ──woken──► runnable ──on──► running ──off──► runnable, sleeping
//!                          ▲  │
//!               unthrottled│  │throttled by its quota
//!                        throttled
//! ```

use crate::timeline::event::{Event, Off, Peer, What};
use crate::timeline::guest::Guest;
use crate::timeline::piece::{Actor, Doing, Piece, Slice, Track};
use crate::timeline::summary::{Split, ThreadUse};

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// From the start of the trace to the first event.
    Unseen,
    Is(Doing),
    Ended,
}

/// One thread, from the start of the trace or its creation.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) actor: Actor,
    state: State,
    since_ns: u64,
    /// Time of its last event.
    heard_ns: u64,
    pcpu: u32,
    lost_states: u32,
    /// Whether the thread is throttled by its own quota, if the kernel tracks that per
    /// thread.
    stands: Option<bool>,
    /// End of the throttling that was in effect at the start of the trace.
    throttled_at_first_until_ns: Option<u64>,
    pub(super) split: Split,
    pub(super) guest: Guest,
}

impl Line {
    pub(super) fn new(actor: Actor, began_ns: u64) -> Self {
        Self {
            guest: Guest::new(actor.tid, began_ns),
            actor,
            state: State::Unseen,
            since_ns: began_ns,
            heard_ns: began_ns,
            pcpu: 0,
            lost_states: 0,
            stands: None,
            throttled_at_first_until_ns: None,
            split: Split::default(),
        }
    }

    /// A thread that was just created.
    pub(super) fn born(actor: Actor, now_ns: u64) -> Self {
        Self {
            state: State::Is(Doing::Sleeping),
            ..Self::new(actor, now_ns)
        }
    }

    /// Adds an event. `is_throttled`: whether a run queue of the thread's cgroups on a
    /// CPU is throttled now.
    pub(super) fn feed(
        &mut self,
        event: &Event,
        is_throttled: impl Fn(&Actor, u32) -> bool,
        out: &mut Vec<Piece>,
    ) {
        // The clocks of two CPUs can differ slightly: the time of a thread never goes
        // back.
        let now_ns = event.time_ns.max(self.heard_ns).max(self.since_ns);
        let event = &Event {
            time_ns: now_ns,
            ..*event
        };
        if event.lost.states != self.lost_states {
            self.lost_states = event.lost.states;
            self.doubt(out);
        }
        if self.state == State::Unseen {
            self.resolve(&event.what, now_ns, out);
        }
        // An event that does not fit shows that events in between are missing.
        let runs = matches!(self.state, State::Is(Doing::Running(_)));
        let fits = match event.what {
            What::On { .. } => !runs,
            What::Off { .. } => runs,
            what if what.is_of_guest() => runs,
            _ => true,
        };
        if !fits {
            self.doubt(out);
        }
        self.heard_ns = now_ns;
        match event.what {
            What::On { after } => {
                self.change_state(
                    State::Is(Doing::Running(event.pcpu)),
                    now_ns,
                    Some(after),
                    out,
                );
                self.pcpu = event.pcpu;
                self.guest.on(now_ns);
            }
            What::Off { into, stands, .. } => {
                self.pcpu = event.pcpu;
                self.stands = stands;
                let state = match into {
                    Off::Runnable => self.waits(is_throttled(&self.actor, self.pcpu)),
                    Off::Sleeping => State::Is(Doing::Sleeping),
                    Off::Uninterruptible => State::Is(Doing::Uninterruptible),
                    Off::Ended => State::Ended,
                };
                self.change_state(state, now_ns, None, out);
                self.guest.off(now_ns, into != Off::Runnable);
            }
            What::Woken { stands } if !self.is_on_queue() => {
                self.pcpu = event.pcpu;
                self.stands = stands;
                let state = self.waits(is_throttled(&self.actor, self.pcpu));
                self.change_state(state, now_ns, None, out);
            }
            What::Moved => {
                self.pcpu = event.pcpu;
                self.quota_changed(event.pcpu, now_ns, is_throttled, out);
            }
            ref what if what.is_of_guest() => {
                if matches!(self.state, State::Is(Doing::Unknown)) {
                    self.change_state(State::Is(Doing::Running(event.pcpu)), now_ns, None, out);
                }
                let ran_ns = self.ran_ns(now_ns);
                self.guest.feed(event, ran_ns, out);
            }
            _ => {}
        }
    }

    /// Marks the time since the last event as unknown.
    fn doubt(&mut self, out: &mut Vec<Piece>) {
        match self.state {
            State::Unseen => self.state = State::Is(Doing::Unknown),
            State::Is(Doing::Unknown) | State::Ended => {}
            State::Is(_) => {
                let heard_ns = self.heard_ns.max(self.since_ns);
                self.change_state(State::Is(Doing::Unknown), heard_ns, None, out);
            }
        }
    }

    /// A run queue of the thread's cgroups on `pcpu` was throttled or unthrottled.
    pub(super) fn quota_changed(
        &mut self,
        pcpu: u32,
        now_ns: u64,
        is_throttled: impl Fn(&Actor, u32) -> bool,
        out: &mut Vec<Piece>,
    ) {
        if self.pcpu != pcpu {
            return;
        }
        if let State::Is(Doing::Runnable | Doing::Throttled) = self.state {
            let state = self.waits(is_throttled(&self.actor, pcpu));
            if state != self.state {
                self.change_state(state, now_ns, None, out);
            }
        }
    }

    /// A run queue was unthrottled whose throttling was not seen.
    pub(super) fn quota_was_out(&mut self, now_ns: u64) {
        if self.state == State::Unseen {
            self.throttled_at_first_until_ns.get_or_insert(now_ns);
        }
    }

    /// Ends the line. `runs`: whether a thread without any event is running.
    pub(super) fn end(&mut self, now_ns: u64, runs: bool, out: &mut Vec<Piece>) {
        if self.state == State::Unseen {
            self.state = State::Is(if runs {
                Doing::Running(self.pcpu)
            } else {
                Doing::Sleeping
            });
        }
        let now_ns = now_ns.max(self.heard_ns);
        let ran_ns = self.ran_ns(now_ns);
        self.guest.end(now_ns, ran_ns, out);
        self.change_state(State::Ended, now_ns, None, out);
    }

    /// The thread's id was reused. If its end was not seen, the time of the end is
    /// unknown.
    pub(super) fn replaced(&mut self, now_ns: u64, out: &mut Vec<Piece>) {
        if !self.has_ended() {
            self.doubt(out);
            self.end(now_ns, false, out);
        }
    }

    /// The totals of the thread.
    pub(super) fn into_use(self) -> ThreadUse {
        let guest = self.guest.split();
        ThreadUse {
            actor: self.actor,
            split: Split {
                guest,
                ..self.split
            },
            exits: self.guest.exits.into_iter().collect(),
        }
    }

    /// Total run time, ns.
    pub(super) fn ran_ns(&self, now_ns: u64) -> u64 {
        let running = match self.state {
            State::Is(Doing::Running(_)) => now_ns.saturating_sub(self.since_ns),
            _ => 0,
        };
        self.split.running_ns + running
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The present state and its start; `None` before the first event and after the end.
    pub(super) fn present(&self) -> Option<(Doing, u64)> {
        match self.state {
            State::Is(what) => Some((what, self.since_ns)),
            State::Unseen | State::Ended => None,
        }
    }

    fn is_on_queue(&self) -> bool {
        let on_queue = [Doing::Runnable, Doing::Throttled].map(State::Is);
        on_queue.contains(&self.state) || matches!(self.state, State::Is(Doing::Running(_)))
    }

    /// State of a waiting thread: before v6.18 all threads of a throttled run queue are
    /// throttled, since v6.18 only those that the kernel reports as throttled.
    fn waits(&self, is_throttled: bool) -> State {
        let held = is_throttled && self.stands.unwrap_or(true);
        State::Is(if held {
            Doing::Throttled
        } else {
            Doing::Runnable
        })
    }

    /// Derives the state since the start of the trace from the first event.
    fn resolve(&mut self, first: &What, now_ns: u64, out: &mut Vec<Piece>) {
        let state = match first {
            What::On { .. } => {
                if let Some(until_ns) = self.throttled_at_first_until_ns {
                    self.state = State::Is(Doing::Throttled);
                    self.change_state(State::Is(Doing::Runnable), until_ns.min(now_ns), None, out);
                }
                Doing::Runnable
            }
            What::Off { .. } => Doing::Running(self.pcpu),
            What::Woken { .. } => Doing::Sleeping,
            what if what.is_of_guest() => Doing::Running(self.pcpu),
            _ => return,
        };
        self.state = State::Is(state);
    }

    /// Ends the present state and starts another.
    fn change_state(&mut self, to: State, now_ns: u64, peer: Option<Peer>, out: &mut Vec<Piece>) {
        let (from_ns, tid) = (self.since_ns, self.actor.tid);
        // The clocks of two CPUs can differ slightly.
        let now_ns = now_ns.max(from_ns);
        let former = std::mem::replace(&mut self.state, to);
        self.since_ns = now_ns;
        let State::Is(what) = former else {
            return;
        };
        let took_ns = now_ns.saturating_sub(from_ns);
        if took_ns == 0 {
            return;
        }
        self.split.add(what, took_ns);
        let waited = matches!(what, Doing::Runnable | Doing::Throttled);
        let slice = Slice {
            track: Track::Thread(tid),
            from_ns,
            to_ns: now_ns,
            what,
            peer: peer.filter(|_| waited),
        };
        out.push(Piece::Slice(slice));
        if let Doing::Running(pcpu) = what {
            out.push(Piece::Slice(Slice {
                track: Track::Pcpu(pcpu),
                what: Doing::Thread(tid),
                ..slice
            }));
        }
    }
}
