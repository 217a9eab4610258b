//! One VM event by event: the state of each thread, the guest mode of each vCPU, and the
//! times in which quotas were exhausted.
//!
//! ```text
//! Event ─► Timeline ─┬─► Line   one thread: running, runnable, throttled, sleeping
//!                    │    └─► Guest  one vCPU: guest, exits by reason, polling
//!                    ├─► exhausted quotas
//!                    └─► Piece, Piece, Piece …          finally a Summary
//! ```
//!
//! A thread is in exactly one state at any time, so the times of its states sum to the
//! traced time. If events were lost or an event does not follow from the previous one,
//! the time between them is [`Doing::Unknown`].

mod co_stop;
mod event;
mod exits;
mod guest;
mod line;
mod piece;
mod summary;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::co_stop::CoStop;
pub use self::event::{Event, Lost, Off, Peer, What};
pub use self::exits::ExitReason;
pub use self::piece::{Actor, Counter, Doing, Piece, Slice, Track};
pub use self::summary::{ExitUse, GuestSplit, Split, Summary, ThreadUse};
use crate::timeline::line::Line;
use crate::timeline::summary::Longest;
use crate::vocab::{CgroupId, Comm};

/// Maximum number of kept threads whose ids were reused.
const ENDED_MAX: usize = 4096;

/// A VM while it is traced.
#[derive(Debug)]
pub struct Timeline {
    began_ns: u64,
    lines: FxHashMap<u32, Line>,
    /// Threads whose ids were reused.
    ended: Vec<ThreadUse>,
    more_threads: u64,
    throttled: Throttled,
    quotas: FxHashMap<CgroupId, Quota>,
    waits: Longest,
    throttles: Longest,
    co_stop: co_stop::Meter,
    events: u64,
}

/// Throttled run queues: (cgroup, CPU).
#[derive(Debug, Default)]
struct Throttled(FxHashSet<(CgroupId, u32)>);

impl Throttled {
    /// Whether the run queue of one of the thread's cgroups on `pcpu` is throttled.
    fn hold(&self, actor: &Actor, pcpu: u32) -> bool {
        let mut groups = actor.groups.iter();
        groups.any(|group| self.0.contains(&(*group, pcpu)))
    }
}

/// A quota that is exhausted on some CPUs.
#[derive(Debug, Default)]
struct Quota {
    cpus: u32,
    since_ns: u64,
}

impl Timeline {
    /// Starts at `began_ns` with the existing threads.
    pub fn new(began_ns: u64, actors: Vec<Actor>, out: &mut Vec<Piece>) -> Self {
        out.extend(actors.iter().cloned().map(Piece::Actor));
        let vcpus = actors.iter().filter(|actor| actor.vcpu.is_some());
        let co_stop = co_stop::Meter::new(began_ns, vcpus.map(|actor| actor.tid));
        let line = |actor: Actor| (actor.tid, Line::new(actor, began_ns));
        Self {
            began_ns,
            lines: actors.into_iter().map(line).collect(),
            ended: Vec::new(),
            more_threads: 0,
            throttled: Throttled::default(),
            quotas: FxHashMap::default(),
            waits: Longest::default(),
            throttles: Longest::default(),
            co_stop,
            events: 0,
        }
    }

    /// Adds the next event. Finished pieces are appended to `out`.
    pub fn feed(&mut self, event: &Event, out: &mut Vec<Piece>) {
        if event.time_ns < self.began_ns {
            self.came_before(event, out);
            return;
        }
        self.events += 1;
        let first = out.len();
        match event.what {
            What::Born { process, name } => self.born(event, process, name, out),
            What::Throttled(group) => self.quota_ran_out(group, event.pcpu, event.time_ns, out),
            What::Unthrottled(group) => self.quota_is_back(group, event.pcpu, event.time_ns, out),
            _ => {
                if let Some(line) = self.lines.get_mut(&event.tid) {
                    line.feed(event, |actor, pcpu| self.throttled.hold(actor, pcpu), out);
                }
            }
        }
        self.sum_up(out.get(first..).unwrap_or_default());
        if let What::Born { .. } = event.what {
            self.co_stop.forget(event.tid);
        }
        if self.co_stop.is_full() {
            let lines = &self.lines;
            self.co_stop.sum_up(|tid| lines.get(&tid)?.present());
        }
    }

    /// Ends all states at `now_ns`; `lost` is the number of lost events. `runs`: whether
    /// a thread without any event is running.
    pub fn end(
        mut self,
        now_ns: u64,
        lost: u64,
        runs: impl Fn(u32) -> bool,
        out: &mut Vec<Piece>,
    ) -> Summary {
        let first = out.len();
        let mut lines: Vec<Line> = std::mem::take(&mut self.lines).into_values().collect();
        lines.sort_unstable_by_key(|line| line.actor.tid);
        for line in lines.iter_mut().filter(|line| !line.has_ended()) {
            line.end(now_ns, runs(line.actor.tid), out);
        }
        let mut quotas: Vec<(CgroupId, Quota)> =
            std::mem::take(&mut self.quotas).into_iter().collect();
        quotas.sort_unstable_by_key(|(group, _)| *group);
        for (group, quota) in quotas.into_iter().filter(|(_, quota)| quota.cpus > 0) {
            out.push(quota.slice(group, now_ns));
        }
        self.sum_up(out.get(first..).unwrap_or_default());
        let ended = std::mem::take(&mut self.ended).into_iter();
        Summary {
            began_ns: self.began_ns,
            took_ns: now_ns.saturating_sub(self.began_ns),
            events: self.events,
            lost,
            threads: ended.chain(lines.into_iter().map(Line::into_use)).collect(),
            more_threads: self.more_threads,
            waits: self.waits.into_slices(),
            throttles: self.throttles.into_slices(),
            co_stop: self.co_stop.end(),
        }
    }

    /// Handles threads that started or ended between the listing of threads and the start
    /// of the trace.
    fn came_before(&mut self, event: &Event, out: &mut Vec<Piece>) {
        match event.what {
            What::Born { process, name } if !self.lines.contains_key(&event.tid) => {
                let actor = self.newcomer(event.tid, process, name);
                out.push(Piece::Actor(actor.clone()));
                self.lines
                    .insert(event.tid, Line::new(actor, self.began_ns));
            }
            What::Off {
                into: Off::Ended, ..
            } => drop(self.lines.remove(&event.tid)),
            _ => {}
        }
    }

    fn newcomer(&self, tid: u32, process: u32, name: Comm) -> Actor {
        let leader = self.lines.get(&process);
        let groups = leader.map(|leader| Arc::clone(&leader.actor.groups));
        Actor {
            tid,
            process,
            name,
            role: None,
            vcpu: None,
            device: None,
            groups: groups.unwrap_or_default(),
        }
    }

    fn born(&mut self, event: &Event, process: u32, name: Comm, out: &mut Vec<Piece>) {
        let actor = self.newcomer(event.tid, process, name);
        if let Some(mut former) = self.lines.remove(&event.tid) {
            former.replaced(event.time_ns, out);
            if self.ended.len() < ENDED_MAX {
                self.ended.push(former.into_use());
            } else {
                self.more_threads += 1;
            }
        }
        out.push(Piece::Actor(actor.clone()));
        let line = Line::born(actor, event.time_ns);
        self.lines.insert(event.tid, line);
    }

    fn quota_ran_out(&mut self, group: CgroupId, pcpu: u32, now_ns: u64, out: &mut Vec<Piece>) {
        if !self.throttled.0.insert((group, pcpu)) {
            return;
        }
        let quota = self.quotas.entry(group).or_default();
        if quota.cpus == 0 {
            quota.since_ns = now_ns;
        }
        quota.cpus += 1;
        self.quota_changed(group, pcpu, now_ns, out);
    }

    fn quota_is_back(&mut self, group: CgroupId, pcpu: u32, now_ns: u64, out: &mut Vec<Piece>) {
        if !self.throttled.0.remove(&(group, pcpu)) {
            // The quota was exhausted before the trace began.
            let held = |line: &&mut Line| line.actor.groups.contains(&group);
            let lines = self.lines.values_mut().filter(held);
            lines.for_each(|line| line.quota_was_out(now_ns));
            return;
        }
        let quota = self.quotas.entry(group).or_default();
        quota.cpus -= 1;
        if quota.cpus == 0 {
            out.push(quota.slice(group, now_ns));
        }
        self.quota_changed(group, pcpu, now_ns, out);
    }

    fn quota_changed(&mut self, group: CgroupId, pcpu: u32, now_ns: u64, out: &mut Vec<Piece>) {
        for line in self.lines.values_mut() {
            if line.actor.groups.contains(&group) {
                let held = |actor: &Actor, pcpu| self.throttled.hold(actor, pcpu);
                line.quota_changed(pcpu, now_ns, held, out);
            }
        }
    }

    /// Adds finished states to the longest waits and to the co-stop.
    fn sum_up(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Slice(slice) if matches!(slice.track, Track::Thread(_)) => {
                    self.co_stop.add(slice);
                    match slice.what {
                        Doing::Runnable => self.waits.add(slice),
                        Doing::Throttled => self.throttles.add(slice),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
}

impl Quota {
    fn slice(&self, group: CgroupId, now_ns: u64) -> Piece {
        Piece::Slice(Slice {
            track: Track::Quota(group),
            from_ns: self.since_ns,
            to_ns: now_ns,
            what: Doing::Throttled,
            peer: None,
        })
    }
}

#[cfg(test)]
mod tests;
