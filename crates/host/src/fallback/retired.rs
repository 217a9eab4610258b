//! Remembers, across readings, the times of threads that ended or changed their class.
//!
//! Without BPF the last moments of a thread are not counted. The values of the last
//! reading stand in for them: a lower bound. CPU time used between two readings counts in
//! the class at the second reading.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use virtlens_model::facts::{RetiredFact, ThreadClass, ThreadFact, VcpuFact};
use virtlens_model::vocab::{Comm, Owner, Switches};

/// Limit on the named rows of one owner. Further threads of one kind and vCPU share a row
/// without a name. A VM stays below the limit, unless a program numbers its thread names.
const MAX_NAMES: usize = 64;

/// Limit on the owners whose sums are kept until they are forgotten: ten times the VMs
/// and pods of a full node.
const MAX_OWNERS: usize = 4096;

/// Identifies a thread despite tid reuse: tid and start time.
type ThreadKey = (u32, u64);

/// Sums of ended threads and former classes, and the living threads as of the last
/// reading.
#[derive(Debug, Default)]
pub(super) struct Retired {
    last: HashMap<ThreadKey, Seen>,
    owners: HashMap<Owner, Rows>,
}

/// A living thread.
#[derive(Debug)]
struct Seen {
    /// The row to retire if the thread is missing from the next reading.
    row: RetiredFact,
    /// Times that the thread used in former classes.
    held: Held,
    class_changes: u32,
}

/// Times that are already in retired rows.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    cpu_ns: u64,
    wait_ns: u64,
    guest_ns: u64,
    switches: Switches,
}

impl Held {
    fn add(&mut self, row: &RetiredFact) {
        self.cpu_ns = self.cpu_ns.saturating_add(row.cpu_ns);
        self.wait_ns = self.wait_ns.saturating_add(row.wait_ns);
        self.guest_ns = self.guest_ns.saturating_add(row.guest_ns);
        self.switches.add(Some(row.switches));
    }

    fn take_off(&self, thread: &mut ThreadFact) {
        let less = |time: &mut u64, held: u64| *time = time.saturating_sub(held);
        less(&mut thread.cpu_ns, self.cpu_ns);
        thread
            .wait_ns
            .iter_mut()
            .for_each(|ns| less(ns, self.wait_ns));
        thread
            .guest_ns
            .iter_mut()
            .for_each(|ns| less(ns, self.guest_ns));
        thread.switches = thread.switches.map(|now| now.since(self.switches));
    }
}

#[derive(Debug, Default)]
struct Rows {
    rows: HashMap<ThreadClass, RetiredFact>,
    /// Number of readings since the owner was last present.
    gone_for: u64,
}

impl Retired {
    /// Processes a reading, whose threads have all times since they started. Times used
    /// in former classes are retired and subtracted. Threads of the last reading that are
    /// missing now and `has_ended(tid, start_ns)` retire. `present` owners are never
    /// dropped; if there are too many others, those absent longest are dropped. Returns
    /// the number of dropped owners.
    pub(super) fn settle(
        &mut self,
        threads: &mut [ThreadFact],
        present: &HashSet<Owner>,
        has_ended: impl Fn(u32, u64) -> bool,
    ) -> u64 {
        let mut now = HashMap::with_capacity(threads.len());
        for thread in threads {
            let key = (thread.tid, thread.start_ns);
            now.insert(key, self.follow(key, thread));
        }
        for (key, seen) in std::mem::replace(&mut self.last, now) {
            if self.last.contains_key(&key) {
                continue;
            }
            if has_ended(key.0, key.1) {
                self.add(seen.row);
            } else if seen.class_changes > 0 || seen.row.class.vcpu_id.is_some() {
                // The thread could not be read. Its held times stay in the rows of its
                // former classes, and it stays a vCPU.
                self.last.insert(key, seen);
            }
        }
        for (owner, rows) in &mut self.owners {
            let is_present = present.contains(owner);
            rows.gone_for = if is_present { 0 } else { rows.gone_for + 1 };
        }
        self.drop_longest_gone()
    }

    /// Updates a thread. Times used in another class that it had at the last reading are
    /// retired.
    fn follow(&mut self, key: ThreadKey, thread: &mut ThreadFact) -> Seen {
        let before = self.last.get(&key);
        // A thread that ran a vCPU stays one for its lifetime, regardless of its present
        // name.
        if let (Some(before), None) = (before, thread.vcpu)
            && let Some(id) = before.row.class.vcpu_id
        {
            thread.owner = before.row.class.owner;
            thread.vcpu = Some(VcpuFact {
                id,
                index: None,
                stats: None,
                charged_ns: None,
            });
        }
        let mut held = before.map_or_else(Held::default, |before| before.held);
        let mut class_changes = before.map_or(0, |before| before.class_changes);
        let is_other = |before: &&Seen| !has_class(&before.row.class, thread);
        if let Some(former) = before.filter(is_other).map(|before| before.row) {
            held.add(&former);
            class_changes += 1;
            self.add(RetiredFact {
                threads: 0,
                ..former
            });
        }
        held.take_off(thread);
        thread.class_changes = class_changes;
        Seen {
            row: as_if_ended(thread),
            held,
            class_changes,
        }
    }

    fn add(&mut self, row: RetiredFact) {
        self.owners.entry(row.class.owner).or_default().add(row);
    }

    fn drop_longest_gone(&mut self) -> u64 {
        let excess = self.owners.len().saturating_sub(MAX_OWNERS);
        let gone = self.owners.iter().filter(|(_, rows)| rows.gone_for > 0);
        let mut gone: Vec<(u64, Owner)> =
            gone.map(|(owner, rows)| (rows.gone_for, *owner)).collect();
        gone.sort_unstable_by(|a, b| b.cmp(a));
        gone.truncate(excess);
        for (_, owner) in &gone {
            self.owners.remove(owner);
        }
        gone.len() as u64
    }

    /// Drops the sums of these owners.
    pub(super) fn forget(&mut self, owners: &HashSet<Owner, impl BuildHasher>) {
        self.owners.retain(|owner, _| !owners.contains(owner));
    }

    /// Returns all sums.
    pub(super) fn facts(&self) -> Vec<RetiredFact> {
        let rows = self.owners.values().flat_map(|rows| rows.rows.values());
        rows.copied().collect()
    }
}

impl Rows {
    fn add(&mut self, ended: RetiredFact) {
        let mut ended = ended;
        if self.rows.len() >= MAX_NAMES && !self.rows.contains_key(&ended.class) {
            ended.class.comm = Comm::default();
            ended.class.process_comm = Comm::default();
        }
        self.rows
            .entry(ended.class)
            .and_modify(|row| {
                row.threads += ended.threads;
                row.cpu_ns = row.cpu_ns.saturating_add(ended.cpu_ns);
                row.wait_ns = row.wait_ns.saturating_add(ended.wait_ns);
                row.guest_ns = row.guest_ns.saturating_add(ended.guest_ns);
                row.switches.add(Some(ended.switches));
            })
            .or_insert(ended);
    }
}

/// Whether a thread belongs to a class, regardless of its cgroup.
fn has_class(class: &ThreadClass, thread: &ThreadFact) -> bool {
    let now = as_if_ended(thread).class;
    *class
        == ThreadClass {
            cgroup: class.cgroup,
            ..now
        }
}

/// The row to retire if the thread is missing from the next reading.
fn as_if_ended(thread: &ThreadFact) -> RetiredFact {
    RetiredFact {
        class: ThreadClass {
            owner: thread.owner,
            cgroup: Some(thread.cgroup).filter(|_| thread.has_limits()),
            kind: thread.kind,
            vcpu_id: thread.vcpu.map(|vcpu| vcpu.id),
            comm: thread.comm,
            process_comm: thread.process_comm,
        },
        threads: 1,
        cpu_ns: thread.cpu_ns,
        // Sums cover known values; unknown values add nothing.
        wait_ns: thread.wait_ns.unwrap_or(0),
        guest_ns: thread.guest_ns.unwrap_or(0),
        switches: thread.switches.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use virtlens_model::facts::{ThreadFact, ThreadKind, VcpuFact};
    use virtlens_model::vocab::{CgroupId, Comm, Owner};

    use super::{MAX_NAMES, MAX_OWNERS, Retired};

    fn thread(owner: u64, tid: u32, cpu_ns: u64) -> ThreadFact {
        ThreadFact {
            owner: Owner::Pod(CgroupId(owner)),
            tid,
            tgid: 1,
            start_ns: 1,
            kind: ThreadKind::User,
            comm: Comm::new(format!("worker {tid}")),
            process_comm: Comm::new("vmm"),
            cpu_ns,
            wait_ns: None,
            guest_ns: None,
            switches: None,
            cgroup: CgroupId(1),
            pcpu: None,
            affinity: None,
            sched_class: None,
            vcpu: None,
            class_changes: 0,
        }
    }

    #[test]
    fn names_beyond_the_limit_share_a_row() {
        let mut retired = Retired::default();
        let many = u32::try_from(MAX_NAMES).expect("a small number") + 50;
        let mut threads: Vec<ThreadFact> = (0..many).map(|tid| thread(1, tid, 10)).collect();
        retired.settle(&mut threads, &HashSet::new(), |_, _| true);
        retired.settle(&mut [], &HashSet::new(), |_, _| true);
        let rows = retired.facts();
        assert_eq!(rows.len(), MAX_NAMES + 1);
        assert_eq!(
            rows.iter().map(|row| row.cpu_ns).sum::<u64>(),
            u64::from(many) * 10
        );
        let nameless = rows.iter().find(|row| row.class.comm.as_bytes().is_empty());
        assert_eq!(nameless.expect("a shared row").threads, 50);
    }

    #[test]
    fn longest_ended_owners_are_dropped_at_limit() {
        let mut retired = Retired::default();
        let present = HashSet::from([Owner::Pod(CgroupId(0))]);
        let end = |retired: &mut Retired, owner: u64| {
            retired.settle(&mut [thread(owner, 5, 10)], &present, |_, _| true);
            retired.settle(&mut [], &present, |_, _| true)
        };
        for owner in 0..MAX_OWNERS as u64 {
            assert_eq!(end(&mut retired, owner), 0);
        }
        assert_eq!(end(&mut retired, MAX_OWNERS as u64), 1);
        let left: HashSet<Owner> = retired.facts().iter().map(|row| row.class.owner).collect();
        assert_eq!(left.len(), MAX_OWNERS);
        assert!(left.contains(&Owner::Pod(CgroupId(0))));
        assert!(!left.contains(&Owner::Pod(CgroupId(1))));
        retired.forget(&left);
        assert!(retired.facts().is_empty());
    }

    #[test]
    fn renamed_thread_leaves_its_time_to_its_former_name() {
        let mut retired = Retired::default();
        let mut read = |name: &str, cpu_ns| {
            let mut threads = [ThreadFact {
                comm: Comm::new(name),
                ..thread(1, 5, cpu_ns)
            }];
            retired.settle(&mut threads, &HashSet::new(), |_, _| true);
            let mut rows = retired.facts();
            rows.sort_by_key(|row| row.class.comm);
            let rows = rows.iter().map(|row| (row.cpu_ns, row.threads));
            (
                threads[0].cpu_ns,
                threads[0].class_changes,
                rows.collect::<Vec<_>>(),
            )
        };
        assert_eq!(read("a", 100), (100, 0, vec![]));
        assert_eq!(read("b", 130), (30, 1, vec![(100, 0)]));
        assert_eq!(read("b", 150), (50, 1, vec![(100, 0)]));
        assert_eq!(read("a", 155), (5, 2, vec![(100, 0), (50, 0)]));
        assert_eq!(read("c", 160), (5, 3, vec![(105, 0), (50, 0)]));
    }

    #[test]
    fn thread_that_could_not_be_read_counts_once() {
        let mut retired = Retired::default();
        let mut read = |threads: &mut [ThreadFact]| {
            retired.settle(threads, &HashSet::new(), |_, _| false);
            let living: u64 = threads.iter().map(|thread| thread.cpu_ns).sum();
            let rows = retired.facts();
            (living, rows.iter().map(|row| row.cpu_ns).sum::<u64>())
        };
        assert_eq!(read(&mut [thread(1, 5, 100)]), (100, 0));
        assert_eq!(read(&mut [thread(2, 5, 130)]), (30, 100));
        assert_eq!(read(&mut []), (0, 100));
        assert_eq!(read(&mut [thread(2, 5, 150)]), (50, 100));
    }

    #[test]
    fn vcpu_that_could_not_be_read_stays_one() {
        let mut retired = Retired::default();
        let mut read = |threads: &mut [ThreadFact]| {
            retired.settle(threads, &HashSet::new(), |_, _| false);
            threads.iter().find_map(|thread| Some(thread.vcpu?.id))
        };
        let vcpu = VcpuFact {
            charged_ns: None,
            id: 3,
            index: None,
            stats: None,
        };
        let named = ThreadFact {
            vcpu: Some(vcpu),
            ..thread(1, 5, 100)
        };
        assert_eq!(read(&mut [named]), Some(3));
        assert_eq!(read(&mut []), None);
        assert_eq!(read(&mut [thread(1, 5, 130)]), Some(3));
    }

    proptest! {
        /// Threads start, run, change their names and end in any order: the sum of living
        /// and retired threads equals all times ever seen, and never falls.
        #[test]
        fn observed_time_is_never_lost(steps in proptest::collection::vec((0u32..6, 0u64..100), 1..40)) {
            let present = HashSet::from([Owner::Pod(CgroupId(1))]);
            let mut retired = Retired::default();
            let mut living: Vec<ThreadFact> = Vec::new();
            let mut names = 0;
            let mut total = 0;
            for (tid, ran_ns) in steps {
                match living.iter().position(|thread| thread.tid == tid) {
                    // Every third thread ends without a further reading.
                    Some(at) if ran_ns % 3 == 0 => drop(living.remove(at)),
                    Some(at) if ran_ns % 5 == 0 => {
                        names += 1;
                        living[at].comm = Comm::new(format!("{names}"));
                    }
                    Some(at) => {
                        living[at].cpu_ns += ran_ns;
                        total += ran_ns;
                    }
                    None => {
                        let mut new = thread(1, tid, ran_ns);
                        new.start_ns = total + u64::from(tid) + 1;
                        living.push(new);
                        total += ran_ns;
                    }
                }
                let mut seen = living.clone();
                retired.settle(&mut seen, &present, |_, _| true);
                let alive: u64 = seen.iter().map(|thread| thread.cpu_ns).sum();
                let ended: u64 = retired.facts().iter().map(|row| row.cpu_ns).sum();
                prop_assert_eq!(alive + ended, total);
            }
        }
    }
}
