//! The model of a host and its kernel's counters. It exists independently of any agent.

mod shown;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use virtlens_model::facts::{RetiredFact, ThreadClass, ThreadKind, WatchedCgroup};
use virtlens_model::vocab::{CgroupId, Comm, Owner, Switches, VmKey};

use crate::Step;

pub(crate) const UIDS: [&str; 2] = [
    "0d2aeb12-7a42-4a2b-9c3e-1f2d3c4b5a69",
    "7b1c0f5e-93d4-4f0c-8a55-2e6f70819abc",
];

/// The pod of each VM.
pub(crate) const VM_PODS: [usize; 3] = [0, 0, 1];

const NAMES: [&str; 5] = ["qemu-system-x86", "IO io0", "IO io1", "worker", "virtiofsd"];

#[derive(Debug)]
struct Cgroup {
    id: u64,
    /// Index into `cgroups`; the root is its own parent.
    parent: usize,
    path: String,
    /// The pod whose threads may be in this cgroup.
    pod: Option<usize>,
    quota_ns: Option<u64>,
    periods: u64,
}

#[derive(Debug, Clone)]
struct Thread {
    tid: u32,
    tgid: u32,
    start_ns: u64,
    comm: &'static str,
    process_comm: &'static str,
    pod: usize,
    /// Index into `cgroups`.
    cgroup: usize,
    /// The VM of the thread's process, if the process is a VMM.
    vm: Option<usize>,
    vcpu_id: Option<u32>,
    /// CPU time since the thread started, ns.
    cpu_ns: u64,
    /// The part of `cpu_ns` that is already charged to former classes.
    held_ns: u64,
    class_changes: u32,
    /// The class of the thread in the last reading.
    shown: Option<ThreadClass>,
}

impl Thread {
    fn key(&self) -> VmKey {
        VmKey {
            start_ns: u64::from(self.tgid),
            tgid: self.tgid,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    cgroups: Vec<Cgroup>,
    threads: Vec<Thread>,
    retired: BTreeMap<String, RetiredFact>,
    /// Rows of threads that have left the living but are not yet in the retired rows.
    ending: Vec<RetiredFact>,
    /// VMs that a reading has contained.
    known: BTreeSet<(u32, u64)>,
    watched: FxHashSet<WatchedCgroup>,
    /// The process of each VM.
    vms: [Option<u32>; 3],
    next: u32,
    /// The pod of each VM that an agent has admitted.
    admitted: BTreeMap<VmKey, usize>,
    /// CPU time of VMs whose counters later VMs carry on, by pod.
    carried_ns: [u64; 2],
    /// Cgroups to which the CPU time of retired threads is charged.
    levels: FxHashSet<CgroupId>,
    /// Whether a cgroup was removed since the last reading, and its counters with it.
    pub(crate) cgroup_removed: bool,
}

impl Host {
    pub(crate) fn new() -> Self {
        let mut host = Self {
            cgroups: Vec::new(),
            threads: Vec::new(),
            retired: BTreeMap::new(),
            ending: Vec::new(),
            known: BTreeSet::new(),
            watched: FxHashSet::default(),
            vms: [None; 3],
            next: 100,
            admitted: BTreeMap::new(),
            carried_ns: [0; 2],
            levels: FxHashSet::default(),
            cgroup_removed: false,
        };
        let slice = "/kubepods.slice".to_owned();
        host.make(0, "/".to_owned(), None);
        host.make(0, slice.clone(), None);
        for (pod, uid) in UIDS.iter().enumerate() {
            let path = format!("{slice}/kubepods-pod{}.slice", uid.replace('-', "_"));
            let root = host.make(1, path.clone(), Some(pod));
            for container in ["ab", "cd"] {
                let path = format!("{path}/cri-containerd-{}.scope", container.repeat(32));
                host.make(root, path, Some(pod));
            }
        }
        host
    }

    fn make(&mut self, parent: usize, path: String, pod: Option<usize>) -> usize {
        self.cgroups.push(Cgroup {
            id: 1 + self.cgroups.len() as u64,
            parent,
            path,
            pod,
            quota_ns: None,
            periods: 0,
        });
        self.cgroups.len() - 1
    }

    pub(crate) fn obey(&mut self, step: &Step) {
        match *step {
            Step::Run(who, ns) => self.change(who, |thread| thread.cpu_ns += ns),
            Step::Born(vm) => self.born(vm % 3),
            Step::Helper(pod) => self.helper(pod % 2),
            Step::Ends(who, late) if !self.threads.is_empty() => {
                let who = who % self.threads.len();
                // The leader of a VMM ends only with its VM.
                if self.threads[who].vm.is_none() || self.threads[who].tid != self.threads[who].tgid
                {
                    self.end(who, late);
                }
            }
            Step::Renamed(who, name) => self.rename(who, NAMES[name % NAMES.len()]),
            Step::BecomesVcpu(who) => self.become_vcpu(who),
            Step::Moves(who, to) => self.change_where(who, to, false),
            Step::ProcessMoves(who, to) => self.change_where(who, to, true),
            Step::VmEnds(vm) => self.vm_ends(vm % 3),
            Step::VmStarts(vm) => self.vm_starts(vm % 3, Some(0)),
            Step::ProcessStarts(vm) => self.vm_starts(vm % 3, None),
            Step::Replaced(which) => self.replace(which),
            Step::Limited(which, quota_ns) => {
                let which = which % self.cgroups.len();
                self.cgroups[which].quota_ns = quota_ns.filter(|_| which > 0);
            }
            Step::Periods(which, count) => {
                let which = which % self.cgroups.len();
                self.cgroups[which].periods += count;
            }
            _ => {}
        }
    }

    fn change(&mut self, who: usize, change: impl FnOnce(&mut Thread)) {
        let count = self.threads.len().max(1);
        if let Some(thread) = self.threads.get_mut(who % count) {
            change(thread);
        }
    }

    /// Chooses a cgroup of a pod.
    fn place(&self, pod: usize, choice: usize) -> usize {
        let of_pod = |index: &usize| self.cgroups[*index].pod == Some(pod);
        let places: Vec<usize> = (0..self.cgroups.len()).filter(of_pod).collect();
        places[choice % places.len()]
    }

    fn new_thread(&mut self, pod: usize, comm: &'static str) -> &mut Thread {
        let tid = self.next;
        self.next += 1;
        let cgroup = self.place(pod, tid as usize);
        self.threads.push(Thread {
            tid,
            tgid: tid,
            start_ns: u64::from(tid),
            comm,
            process_comm: comm,
            pod,
            cgroup,
            vm: None,
            vcpu_id: None,
            cpu_ns: 0,
            held_ns: 0,
            class_changes: 0,
            shown: None,
        });
        self.threads.last_mut().expect("it was just pushed")
    }

    fn born(&mut self, vm: usize) {
        let Some(tgid) = self.vms[vm] else { return };
        let leader = self.threads.iter().find(|one| one.tid == tgid);
        let cgroup = leader.expect("the leader ends last").cgroup;
        let thread = self.new_thread(VM_PODS[vm], "qemu-system-x86");
        (thread.tgid, thread.vm, thread.cgroup) = (tgid, Some(vm), cgroup);
    }

    fn helper(&mut self, pod: usize) {
        let name = if self.next.is_multiple_of(2) {
            "sh"
        } else {
            "virtiofsd"
        };
        self.new_thread(pod, name);
    }

    fn vm_starts(&mut self, vm: usize, vcpu_id: Option<u32>) {
        if self.vms[vm].is_some() {
            return;
        }
        let thread = self.new_thread(VM_PODS[vm], "qemu-system-x86");
        (thread.vm, thread.vcpu_id) = (Some(vm), vcpu_id);
        self.vms[vm] = Some(thread.tid);
    }

    fn vm_ends(&mut self, vm: usize) {
        while let Some(who) = self.threads.iter().position(|one| one.vm == Some(vm)) {
            self.end(who, false);
        }
        self.vms[vm] = None;
    }

    /// The owner of a thread according to past readings; `None` for a thread without an
    /// owner.
    fn owner(&self, thread: &Thread) -> Option<Owner> {
        let vm = thread.key();
        if thread.vm.is_some() && self.known.contains(&(vm.tgid, vm.start_ns)) {
            return Some(Owner::Vm(vm));
        }
        let mut ids = self.above(thread.cgroup);
        let watched = ids.find_map(|id| self.watched.iter().find(|one| one.cgroup == id));
        watched.map(|one| Owner::Pod(one.pod))
    }

    /// Ids of a cgroup and its ancestors.
    fn above(&self, cgroup: usize) -> impl Iterator<Item = CgroupId> + '_ {
        let above = std::iter::successors(Some(cgroup), |at| {
            (*at > 0).then(|| self.cgroups[*at].parent)
        });
        above.map(|at| CgroupId(self.cgroups[at].id))
    }

    /// The cgroup to which a thread that retires in `cgroup` is charged.
    fn level(&self, cgroup: usize) -> Option<CgroupId> {
        self.above(cgroup).find(|id| self.levels.contains(id))
    }

    fn class(&self, thread: &Thread, owner: Owner) -> ThreadClass {
        ThreadClass {
            owner,
            cgroup: Some(CgroupId(self.cgroups[thread.cgroup].id)),
            kind: ThreadKind::User,
            vcpu_id: thread.vcpu_id.filter(|_| matches!(owner, Owner::Vm(_))),
            comm: Comm::new(thread.comm),
            process_comm: Comm::new(thread.process_comm),
        }
    }

    fn retire(&mut self, fact: RetiredFact) {
        let sum = self.retired.entry(format!("{:?}", fact.class));
        sum.and_modify(|sum| {
            sum.threads += fact.threads;
            sum.cpu_ns += fact.cpu_ns;
        })
        .or_insert(fact);
    }

    /// Retires the CPU time that a thread used in the class of the last reading.
    fn leave_class(&mut self, who: usize) {
        let thread = &mut self.threads[who];
        let Some(class) = thread.shown.take() else {
            return;
        };
        let used_ns = thread.cpu_ns - thread.held_ns;
        thread.held_ns = thread.cpu_ns;
        thread.class_changes += 1;
        let cgroup = thread.cgroup;
        let class = ThreadClass {
            cgroup: self.level(cgroup),
            ..class
        };
        self.retire(RetiredFact {
            class,
            threads: 0,
            cpu_ns: used_ns,
            wait_ns: 0,
            guest_ns: 0,
            switches: Switches::default(),
        });
    }

    fn end(&mut self, who: usize, late: bool) {
        let thread = self.threads.remove(who);
        let Some(owner) = self.owner(&thread) else {
            return;
        };
        // A thread that no reading contained may not have been known as a vCPU or as a
        // VM's.
        let class = thread.shown.unwrap_or_else(|| self.class(&thread, owner));
        let fact = RetiredFact {
            class: ThreadClass {
                cgroup: self.level(thread.cgroup),
                ..class
            },
            threads: 1,
            cpu_ns: thread.cpu_ns - thread.held_ns,
            wait_ns: 0,
            guest_ns: 0,
            switches: Switches::default(),
        };
        // The rows of threads that end while their VM is replaced are lost for that
        // moment.
        if late && thread.vm.is_none() {
            self.ending.push(fact);
        } else {
            self.retire(fact);
        }
    }

    fn rename(&mut self, who: usize, name: &'static str) {
        if self.threads.is_empty() {
            return;
        }
        let who = who % self.threads.len();
        self.leave_class(who);
        let thread = &mut self.threads[who];
        thread.comm = name;
        if thread.vm.is_none() {
            thread.process_comm = name;
        }
    }

    fn become_vcpu(&mut self, who: usize) {
        let count = self.threads.len().max(1);
        let used: BTreeSet<_> = self
            .threads
            .iter()
            .map(|one| (one.vm, one.vcpu_id))
            .collect();
        let Some(thread) = self.threads.get_mut(who % count) else {
            return;
        };
        let free = (0..8).find(|id| !used.contains(&(thread.vm, Some(*id))));
        if thread.vm.is_some() && thread.vcpu_id.is_none() {
            thread.vcpu_id = free;
        }
    }

    fn change_where(&mut self, who: usize, to: usize, all: bool) {
        if self.threads.is_empty() {
            return;
        }
        let thread = &self.threads[who % self.threads.len()];
        let (tid, tgid) = (thread.tid, thread.tgid);
        let to = self.place(thread.pod, to);
        let is_meant = |one: &&mut Thread| one.tid == tid || all && one.tgid == tgid;
        let threads = self.threads.iter_mut().filter(is_meant);
        threads.for_each(|one| one.cgroup = to);
    }

    fn replace(&mut self, which: usize) {
        let which = which % self.cgroups.len();
        let is_used = self.threads.iter().any(|one| one.cgroup == which);
        let is_above = self.cgroups.iter().any(|one| one.parent == which);
        if !is_used && !is_above {
            self.cgroups[which].id = 1000 + u64::from(self.next);
            self.cgroups[which].periods = 0;
            self.cgroup_removed = true;
            self.next += 1;
        }
    }

    /// Records that an agent admits a VM, and returns the VM's index.
    pub(crate) fn admit(&mut self, vm: VmKey) -> usize {
        let mut threads = self.threads.iter();
        let thread = threads.find(|one| one.key() == vm && one.vm.is_some());
        let thread = thread.expect("it was shown");
        self.admitted.insert(vm, thread.pod);
        thread.vm.expect("it is a VM's")
    }

    /// Sets the watched cgroups and the levels; returns whether they changed.
    pub(crate) fn watch(
        &mut self,
        watched: FxHashSet<WatchedCgroup>,
        levels: FxHashSet<CgroupId>,
    ) -> bool {
        let is_new = watched != self.watched || levels != self.levels;
        self.watched = watched;
        self.levels = levels;
        is_new
    }

    pub(crate) fn forget(&mut self, gone: &FxHashSet<Owner>) {
        for fact in self.retired.values() {
            if let Owner::Vm(vm) = fact.class.owner
                && let Some(pod) = self.admitted.get(&vm)
                && gone.contains(&fact.class.owner)
            {
                self.carried_ns[*pod] += fact.cpu_ns;
            }
        }
        self.retired
            .retain(|_, fact| !gone.contains(&fact.class.owner));
    }
}
