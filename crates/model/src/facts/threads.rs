//! The living threads of a reading, in runs of one owner.

use std::iter::Peekable;
use std::ops::{Deref, Range};
use std::vec::IntoIter;

use crate::facts::thread::ThreadFact;
use crate::vocab::{CgroupId, Owner};

/// Living threads in the order of the source.
///
/// The threads of a process are usually adjacent, and each step of a reading works on
/// processes. The threads of a large node exceed the CPU caches, so the runs of threads are
/// found once, when the threads are added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    all: Vec<ThreadFact>,
    runs: Runs,
}

/// The runs of the threads: of all, or of those that are renewed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Runs(Vec<RunEnd>);

/// A run that begins at the end of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunEnd {
    owner: Owner,
    cgroup: CgroupId,
    end: usize,
    /// Position of the first thread that runs a vCPU.
    first_vcpu: Option<usize>,
}

/// Adjacent threads of one owner in one cgroup.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The owner of the threads.
    pub owner: Owner,
    /// Their innermost cgroup.
    pub cgroup: CgroupId,
    /// The threads; at least one.
    pub threads: &'a [ThreadFact],
    /// The first of them that runs a vCPU.
    pub first_vcpu: Option<&'a ThreadFact>,
}

impl Threads {
    /// Adds a thread.
    pub fn push(&mut self, thread: ThreadFact) {
        self.runs.add(self.all.len(), &thread);
        self.all.push(thread);
    }

    /// Removes all threads and keeps the memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.runs.0.clear();
    }

    /// Begins to renew all threads in order: see [`Renewal`](super::Renewal). Returns the runs of
    /// the former ones.
    pub(super) fn begin_renewal(&mut self) -> FormerRuns {
        let runs = Runs(Vec::with_capacity(self.runs.0.len()));
        let former = std::mem::replace(&mut self.runs, runs);
        FormerRuns {
            runs: former.0.into_iter().peekable(),
        }
    }

    /// Number of renewed threads. The former threads follow them.
    pub(super) fn renewed(&self) -> usize {
        self.runs.0.last().map_or(0, |run| run.end)
    }

    /// Whether the next former thread is `thread` as it was, or there is none.
    pub(super) fn fits(&self, thread: &ThreadFact) -> bool {
        let former = self.all.get(self.renewed());
        former.is_none_or(|one| (one.tid, one.start_ns) == (thread.tid, thread.start_ns))
    }

    /// Replaces the next former thread, or adds one behind the last.
    pub(super) fn put(&mut self, thread: ThreadFact) {
        let at = self.renewed();
        self.runs.add(at, &thread);
        match self.all.get_mut(at) {
            Some(former) => *former = thread,
            None => self.all.push(thread),
        }
    }

    /// Renews the next `count` former threads without a change; `false` if there are fewer. Reads
    /// the runs of the former threads instead of these, which are in no cache.
    pub(super) fn keep(&mut self, count: usize, former: &mut FormerRuns) -> bool {
        let begin = self.renewed();
        let end = begin
            .checked_add(count)
            .filter(|end| *end <= self.all.len());
        let Some(end) = end else {
            return false;
        };
        let mut at = begin;
        while at < end {
            let Some(run) = former.at(at) else {
                return false;
            };
            let part = at..run.end.min(end);
            at = part.end;
            self.runs.extend(run, part, &self.all);
        }
        true
    }

    /// Removes the former threads that are not renewed.
    pub(super) fn split_rest(&mut self) -> Vec<ThreadFact> {
        self.all.split_off(self.renewed())
    }

    /// Changes the threads.
    #[cfg(test)]
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<ThreadFact>)) {
        let mut all = std::mem::take(&mut self.all);
        change(&mut all);
        *self = all.into();
    }

    /// The runs in order.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> + Clone {
        let mut rest = self.all.as_slice();
        let mut begin = 0;
        self.runs.0.iter().map(move |run| {
            let threads;
            (threads, rest) = rest.split_at(run.end - begin);
            begin = run.end;
            Run {
                owner: run.owner,
                cgroup: run.cgroup,
                threads,
                first_vcpu: run.first_vcpu.and_then(|at| self.all.get(at)),
            }
        })
    }
}

/// The runs of threads that are renewed.
#[derive(Debug)]
pub(super) struct FormerRuns {
    runs: Peekable<IntoIter<RunEnd>>,
}

impl FormerRuns {
    /// The run of the former thread at position `at`, which rises from call to call.
    fn at(&mut self, at: usize) -> Option<RunEnd> {
        while self.runs.next_if(|run| run.end <= at).is_some() {}
        self.runs.peek().copied()
    }
}

impl Runs {
    /// Adds the threads of `all` at the positions `part`, which are in the former run `of`.
    fn extend(&mut self, of: RunEnd, part: Range<usize>, all: &[ThreadFact]) {
        let last = self.0.last_mut();
        let last = last.filter(|run| run.owner == of.owner && run.cgroup == of.cgroup);
        let is_found = last.as_ref().is_some_and(|run| run.first_vcpu.is_some());
        let first_vcpu = match of.first_vcpu {
            Some(first) if first < part.start && !is_found => {
                let mut part = part.clone();
                part.find(|at| all.get(*at).is_some_and(|one| one.vcpu.is_some()))
            }
            first => first.filter(|first| part.contains(first)),
        };
        match last {
            Some(run) => {
                run.end = part.end;
                run.first_vcpu = run.first_vcpu.or(first_vcpu);
            }
            None => self.0.push(RunEnd {
                end: part.end,
                first_vcpu,
                ..of
            }),
        }
    }

    /// Adds the thread at position `at`, which is the next one.
    fn add(&mut self, at: usize, thread: &ThreadFact) {
        let (owner, cgroup) = (thread.owner, thread.cgroup);
        let vcpu = thread.vcpu.is_some().then_some(at);
        match self.0.last_mut() {
            Some(run) if run.owner == owner && run.cgroup == cgroup => {
                run.end = at + 1;
                run.first_vcpu = run.first_vcpu.or(vcpu);
            }
            _ => self.0.push(RunEnd {
                owner,
                cgroup,
                end: at + 1,
                first_vcpu: vcpu,
            }),
        }
    }
}

impl Deref for Threads {
    type Target = [ThreadFact];

    fn deref(&self) -> &[ThreadFact] {
        &self.all
    }
}

impl FromIterator<ThreadFact> for Threads {
    fn from_iter<I: IntoIterator<Item = ThreadFact>>(threads: I) -> Self {
        let mut all = Self::default();
        threads.into_iter().for_each(|thread| all.push(thread));
        all
    }
}

impl From<Vec<ThreadFact>> for Threads {
    fn from(threads: Vec<ThreadFact>) -> Self {
        threads.into_iter().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::Threads;
    use crate::facts::thread::{ThreadFact, ThreadKind};
    use crate::facts::vcpu::VcpuFact;
    use crate::vocab::{CgroupId, Comm, Owner};

    pub(in crate::facts) fn thread(tid: u32, owner: u64, cgroup: u64, is_vcpu: bool) -> ThreadFact {
        ThreadFact {
            owner: Owner::Pod(CgroupId(owner)),
            tid,
            tgid: 1,
            start_ns: 0,
            kind: ThreadKind::User,
            comm: Comm::default(),
            process_comm: Comm::default(),
            cpu_ns: 0,
            wait_ns: None,
            guest_ns: None,
            switches: None,
            cgroup: CgroupId(cgroup),
            pcpu: None,
            affinity: None,
            sched_class: None,
            vcpu: is_vcpu.then_some(VcpuFact {
                id: tid,
                index: None,
                stats: None,
                charged_ns: None,
            }),
            class_changes: 0,
        }
    }

    #[test]
    fn runs_are_adjacent_threads_of_one_owner_in_one_cgroup() {
        let mut threads: Threads = [
            thread(1, 7, 70, false),
            thread(2, 7, 70, true),
            thread(3, 7, 70, true),
            thread(4, 7, 71, false),
            thread(5, 8, 71, true),
            thread(6, 7, 70, false),
        ]
        .into_iter()
        .collect();
        let found: Vec<_> = threads
            .runs()
            .map(|run| {
                let tids: Vec<u32> = run.threads.iter().map(|thread| thread.tid).collect();
                let vcpu = run.first_vcpu.map(|thread| thread.tid);
                (run.owner, run.cgroup.0, tids, vcpu)
            })
            .collect();
        let owner = |id| Owner::Pod(CgroupId(id));
        let expected = [
            (owner(7), 70, vec![1, 2, 3], Some(2)),
            (owner(7), 71, vec![4], None),
            (owner(8), 71, vec![5], Some(5)),
            (owner(7), 70, vec![6], None),
        ];
        assert_eq!(found, expected);
        threads.clear();
        threads.push(thread(9, 7, 70, true));
        assert_eq!(threads.runs().count(), 1);
        assert_eq!(
            threads.runs().map(|run| run.threads.len()).sum::<usize>(),
            1
        );
    }
}
