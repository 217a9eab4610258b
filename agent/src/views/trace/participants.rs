//! Participants of a trace: the VM's threads, and the cgroups whose quotas limit them.

use std::fs;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_host::{HostRoot, parse_schedstat, parse_status};
use virtlens_model::snapshot::Vm;
use virtlens_model::timeline::Actor;
use virtlens_model::vocab::{CgroupId, Comm};

use crate::collect::Collector;

/// Participants of a trace.
pub(super) struct Participants {
    pub(super) actors: Vec<Actor>,
    /// Names of processes, by id.
    pub(super) processes: FxHashMap<u32, String>,
    /// Display names of the cgroups: their relation to the VM, and their paths.
    pub(super) quotas: FxHashMap<CgroupId, String>,
    /// Ids of the cgroups, by path.
    pub(super) paths: FxHashMap<String, CgroupId>,
    seen: FxHashSet<u32>,
}

impl Participants {
    /// The VM's threads as of the last reading.
    pub(super) fn of(vm: &Vm, collector: &Collector) -> Self {
        let mut participants = Self {
            actors: Vec::new(),
            processes: FxHashMap::default(),
            quotas: FxHashMap::default(),
            paths: FxHashMap::default(),
            seen: FxHashSet::default(),
        };
        for quota in &vm.quota {
            let cgroup = &quota.cgroup;
            if let Some(id) = collector.cgroups().and_then(|all| all.id_of(cgroup)) {
                let name = format!("{} {cgroup}", quota.scope.name());
                participants.quotas.insert(id, name);
                participants.paths.insert(cgroup.to_string(), id);
            }
        }
        for thread in &vm.threads {
            let Some(process) = process_of(collector.root(), thread.tid) else {
                continue;
            };
            let mut vcpus = vm.vcpus.iter();
            let vcpu = vcpus.find(|vcpu| vcpu.tid == Some(thread.tid));
            participants.add(
                Actor {
                    tid: thread.tid,
                    process,
                    name: thread.name,
                    role: thread.role,
                    vcpu: vcpu.map(|vcpu| vcpu.id),
                    device: thread.device,
                    groups: participants.groups_of(collector, thread.tid),
                },
                collector.root(),
            );
        }
        participants
    }

    /// Adds threads that the same processes have started since; returns whether there are
    /// any.
    pub(super) fn grow(&mut self, collector: &Collector) -> bool {
        let before = self.actors.len();
        let root = collector.root();
        let processes: Vec<u32> = self.processes.keys().copied().collect();
        for process in processes {
            for tid in threads_of(root, process) {
                if !self.seen.contains(&tid)
                    && let Some(name) = comm(root, tid)
                {
                    let actor = Actor {
                        tid,
                        process,
                        name,
                        role: None,
                        vcpu: None,
                        device: None,
                        groups: self.groups_of(collector, tid),
                    };
                    self.add(actor, root);
                }
            }
        }
        self.actors.len() > before
    }

    pub(super) fn tids(&self) -> Vec<u32> {
        self.actors.iter().map(|actor| actor.tid).collect()
    }

    pub(super) fn groups(&self) -> Vec<CgroupId> {
        self.quotas.keys().copied().collect()
    }

    /// CPU time of each thread so far, ns, as counted by the kernel.
    pub(super) fn cpu_ns(&self, collector: &Collector) -> FxHashMap<u32, u64> {
        let of = |actor: &Actor| {
            let file = collector.root().proc_of(actor.tid, "schedstat");
            let times = parse_schedstat(&fs::read(file).ok()?)?;
            Some((actor.tid, times.run_ns))
        };
        self.actors.iter().filter_map(of).collect()
    }

    fn add(&mut self, actor: Actor, root: &HostRoot) {
        self.seen.insert(actor.tid);
        self.processes.entry(actor.process).or_insert_with(|| {
            comm(root, actor.process).map_or_else(String::new, |name| name.to_string())
        });
        self.actors.push(actor);
    }

    /// The cgroups with a quota on the path of a thread.
    fn groups_of(&self, collector: &Collector, tid: u32) -> Arc<[CgroupId]> {
        let cgroups = collector.cgroups();
        let path = cgroups.and_then(|all| all.process_path(tid).ok());
        let Some(path) = path else {
            return Arc::default();
        };
        let holds = |of: &str| {
            path.strip_prefix(of.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let groups = self.paths.iter().filter(|(of, _)| holds(of));
        groups.map(|(_, id)| *id).collect()
    }
}

/// Whether a thread without events is running, as opposed to sleeping.
pub(super) fn is_running(root: &HostRoot, tid: u32) -> bool {
    let stat = fs::read(root.proc_of(tid, "stat")).unwrap_or_default();
    let name_ends = stat.iter().rposition(|byte| *byte == b')');
    name_ends.is_some_and(|at| stat.get(at + 2) == Some(&b'R'))
}

fn process_of(root: &HostRoot, tid: u32) -> Option<u32> {
    let status = fs::read(root.proc_of(tid, "status")).ok()?;
    Some(parse_status(&status)?.tgid)
}

fn comm(root: &HostRoot, tid: u32) -> Option<Comm> {
    let name = fs::read(root.proc_of(tid, "comm")).ok()?;
    Some(Comm::new(name.strip_suffix(b"\n").unwrap_or(&name)))
}

fn threads_of(root: &HostRoot, process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(root.proc_of(process, "task"));
    let names = tasks.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
