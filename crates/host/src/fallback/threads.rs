//! Reads one thread and one cgroup.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use virtlens_model::facts::{CgroupFact, ThreadFact};
use virtlens_model::vocab::{CgroupId, Comm, CpuSet, Owner, SchedClass, Switches};

use crate::cgroupfs::Cgroups;
use crate::error::{Error, Losses};
use crate::process;
use crate::root::{HostRoot, SMALL_FILE, read, read_as};
use crate::task::{Schedstat, TaskStat, parse_schedstat, parse_stat, parse_status, thread_kind};

/// The lines of a `status` file that [`parse_status`] reads.
const STATUS_LINES: &str = "Tgid:, Cpus_allowed_list: and nonvoluntary_ctxt_switches:";

/// The cgroup id of threads outside the mounted hierarchy: kernfs numbers from 1.
const NO_CGROUP: CgroupId = CgroupId(0);

/// Reads threads, and caches shared data for the duration of one reading.
pub(super) struct ThreadReader<'a> {
    root: &'a HostRoot,
    cgroups: &'a Cgroups,
    ticks_per_s: u64,
    pub(super) losses: Losses,
    cgroup_ids: HashMap<String, Option<CgroupId>>,
    process_comms: HashMap<u32, Comm>,
    affinities: HashMap<CpuSet, Arc<CpuSet>>,
}

impl<'a> ThreadReader<'a> {
    pub(super) fn new(root: &'a HostRoot, cgroups: &'a Cgroups, ticks_per_s: u64) -> Self {
        Self {
            root,
            cgroups,
            ticks_per_s,
            losses: Losses::default(),
            cgroup_ids: HashMap::new(),
            process_comms: HashMap::new(),
            affinities: HashMap::new(),
        }
    }

    /// Reads a thread; `None`, and counted, if it has vanished.
    pub(super) fn read(&mut self, owner: Owner, tid: u32) -> Option<ThreadFact> {
        let thread = self.try_read(owner, tid);
        self.losses.keep(thread)
    }

    fn try_read(&mut self, owner: Owner, tid: u32) -> Result<ThreadFact, Error> {
        let status = self.root.proc_of(tid, "status");
        let status = read_as(&status, STATUS_LINES, parse_status)?;
        let tgid = status.tgid;
        let file = |name| self.root.thread_of(tgid, tid, name);
        let stat = read_as(&file("stat"), "the fields of proc(5)", parse_stat)?;
        let sched = self
            .losses
            .keep(read_schedstat(&file("schedstat")))
            .flatten();
        let cgroup = file("cgroup");
        let cgroup = self.cgroup(&cgroup)?;
        let process_comm = self.process_comm(tgid)?;
        let absent = [
            status.affinity.is_none(),
            status.involuntary_switches.is_none(),
            stat.pcpu.is_none(),
            stat.guest_ticks.is_none(),
        ];
        self.losses.unparsed += absent.iter().filter(|is_absent| **is_absent).count() as u64;
        Ok(ThreadFact {
            owner,
            tid,
            tgid,
            start_ns: ns(stat.start_ticks, self.ticks_per_s),
            kind: thread_kind(stat.flags),
            comm: stat.comm,
            process_comm,
            cpu_ns: sched.map_or(ns(stat.cpu_ticks, self.ticks_per_s), |sched| sched.run_ns),
            wait_ns: sched.map(|sched| sched.wait_ns),
            guest_ns: stat.guest_ticks.map(|ticks| ns(ticks, self.ticks_per_s)),
            switches: sched
                .zip(status.involuntary_switches)
                .map(|(sched, involuntary)| Switches {
                    timeslices: sched.timeslices,
                    involuntary,
                }),
            cgroup,
            pcpu: stat.pcpu,
            affinity: status.affinity.map(|cpus| self.shared(cpus)),
            sched_class: stat.policy.and_then(SchedClass::of_policy),
            vcpu: None,
            class_changes: 0,
        })
    }

    /// Start time of a process, ns since boot; `None` for a zombie.
    pub(super) fn started(&self, pid: u32) -> Result<Option<u64>, Error> {
        let stat = read_stat(self.root, pid)?;
        Ok((!stat.has_ended).then(|| ns(stat.start_ticks, self.ticks_per_s)))
    }

    /// A process's id in its own pid namespace.
    pub(super) fn own_pid(&self, pid: u32) -> Result<u32, Error> {
        let status = self.root.proc_of(pid, "status");
        let status = read_as(&status, STATUS_LINES, parse_status)?;
        Ok(status.own_tgid.unwrap_or(pid))
    }

    fn cgroup(&mut self, file: &Path) -> Result<CgroupId, Error> {
        let path = match self.cgroups.path_in(file) {
            Err(error) if error.is_gone() => return Err(error),
            path => self.losses.keep(path),
        };
        Ok(path
            .and_then(|path| self.cgroup_id(path))
            .unwrap_or(NO_CGROUP))
    }

    fn cgroup_id(&mut self, path: String) -> Option<CgroupId> {
        if let Some(id) = self.cgroup_ids.get(&path) {
            return *id;
        }
        let id = self.cgroups.id_of(&path);
        self.losses.races += u64::from(id.is_none());
        self.cgroup_ids.insert(path, id);
        id
    }

    fn process_comm(&mut self, tgid: u32) -> Result<Comm, Error> {
        if let Some(comm) = self.process_comms.get(&tgid) {
            return Ok(*comm);
        }
        let comm = process::comm(self.root, tgid)?;
        self.process_comms.insert(tgid, comm);
        Ok(comm)
    }

    fn shared(&mut self, cpus: CpuSet) -> Arc<CpuSet> {
        let shared = self.affinities.entry(cpus.clone());
        Arc::clone(shared.or_insert_with(|| Arc::new(cpus)))
    }

    /// The cgroups of the threads read so far and of `more`, and all their ancestors.
    pub(super) fn cgroup_facts<'p>(
        &mut self,
        more: impl Iterator<Item = &'p String>,
    ) -> Vec<CgroupFact> {
        let mut paths: BTreeSet<String> = more.cloned().collect();
        paths.extend(self.cgroup_ids.keys().cloned());
        let above: Vec<String> = paths.iter().flat_map(|path| ancestors(path)).collect();
        paths.extend(above);
        let mut facts = Vec::with_capacity(paths.len());
        for path in paths {
            let Some(id) = self.cgroups.id_of(&path) else {
                // Above the mounted hierarchy, or just removed.
                continue;
            };
            let bandwidth = self.losses.keep(self.cgroups.bandwidth(&path)).flatten();
            let parent = ancestors(&path).next();
            facts.push(CgroupFact {
                id,
                parent: parent.and_then(|parent| self.cgroups.id_of(&parent)),
                path: path.into(),
                bandwidth,
                memory: None,
            });
        }
        facts
    }
}

/// Whether the thread that started at `start_ns` has ended: its id is free, reused or a
/// zombie's.
pub(super) fn has_ended(root: &HostRoot, ticks_per_s: u64, tid: u32, start_ns: u64) -> bool {
    match read_stat(root, tid) {
        Ok(stat) => stat.has_ended || ns(stat.start_ticks, ticks_per_s) != start_ns,
        Err(error) => error.is_gone(),
    }
}

/// Reads a task's `stat`. For a thread, only the name, the flags and the start time are
/// its own.
fn read_stat(root: &HostRoot, tid: u32) -> Result<TaskStat, Error> {
    read_as(
        &root.proc_of(tid, "stat"),
        "the fields of proc(5)",
        parse_stat,
    )
}

/// Exact times; `None` if the kernel does not keep them (`CONFIG_SCHED_INFO`).
fn read_schedstat(path: &Path) -> Result<Option<Schedstat>, Error> {
    let bytes = match read(path, SMALL_FILE) {
        // Without SCHED_INFO the file does not exist. If the thread itself is gone, the
        // next read fails.
        Err(error) if error.is_gone() => return Ok(None),
        bytes => bytes?,
    };
    match parse_schedstat(&bytes) {
        None if bytes != b"0 0 0\n" => Err(Error::unparsable(path, "RUN WAIT SLICES", &bytes)),
        sched => Ok(sched),
    }
}

/// Ancestors of a cgroup path, nearest first, "/" last.
fn ancestors(path: &str) -> impl Iterator<Item = String> {
    let mut rest = path.trim_end_matches('/').to_owned();
    std::iter::from_fn(move || {
        rest.truncate(rest.rfind('/')?);
        Some(if rest.is_empty() {
            "/".to_owned()
        } else {
            rest.clone()
        })
    })
}

/// Converts clock ticks to ns.
fn ns(ticks: u64, ticks_per_s: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / ticks_per_s)
}

#[cfg(test)]
mod tests {
    use super::ancestors;

    #[test]
    fn ancestors_stop_at_root() {
        let above = |path| ancestors(path).collect::<Vec<_>>();
        assert_eq!(above("/a/b/c"), ["/a/b", "/a", "/"]);
        assert_eq!(above("/a"), ["/"]);
        assert!(above("/").is_empty());
    }
}
