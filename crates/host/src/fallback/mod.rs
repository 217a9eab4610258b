//! Reads the host from /proc alone, for hosts without BPF.
//!
//! It fills the same [`Facts`] with less information:
//!
//! - VMs are found by their file descriptors: a known VM at once, a new one within
//!   [`SCAN_EVERY`].
//! - vCPU threads are identified by name only, and only in a process that holds vCPUs.
//!   Unnamed threads (QEMU with `debug-threads=off`) do not count as vCPUs.
//! - The CPU time that a thread used between the last reading and its end is lost, and
//!   all the time of a thread that lived only between two readings: sums of ended threads
//!   are a lower bound.
//! - Each thread costs four file reads, some tens of µs, against less than one µs in the
//!   BPF pass.

mod children;
mod retired;
mod threads;
mod vcpus;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use virtlens_model::facts::{Facts, ThreadFact, ThreadKind, VmFact, WatchedCgroup};
use virtlens_model::vocab::{CgroupId, Comm, Owner, VmKey};

use self::children::Children;
pub use self::children::parse_children;
use self::retired::Retired;
use self::threads::ThreadReader;
pub use self::vcpus::vcpu_number;
use crate::cgroupfs::Cgroups;
use crate::error::{Error, Losses};
use crate::fds::{VmFds, vm_fds, vm_processes};
use crate::node::ticks_per_s;
use crate::process;
use crate::root::{HostRoot, numbered};

/// Interval between scans of all file descriptors of the host, and so the maximum delay
/// until a new VM is seen.
const SCAN_EVERY: Duration = Duration::from_secs(30);

/// Limit on the threads in one reading: 1000 VMs of 64 threads, more than 1 s of work.
const MAX_THREADS: usize = 65_536;

/// The /proc source.
#[derive(Debug)]
pub struct ProcSource {
    root: HostRoot,
    cgroups: Cgroups,
    ticks_per_s: u64,
    /// Time of the last scan of the whole host; `None` = scan at the next reading.
    scanned: Option<Instant>,
    /// Processes that hold KVM descriptors, by pid.
    vmms: BTreeMap<u32, Vmm>,
    kthreads: Vec<u32>,
    watched: HashMap<WatchedCgroup, Watched>,
    children: Children,
    retired: Retired,
    losses: Losses,
}

impl ProcSource {
    /// Returns a source that has read nothing yet.
    pub fn new(root: HostRoot, cgroups: Cgroups) -> Self {
        Self {
            ticks_per_s: ticks_per_s(&root),
            root,
            cgroups,
            scanned: None,
            vmms: BTreeMap::new(),
            kthreads: Vec::new(),
            watched: HashMap::new(),
            children: Children::default(),
            retired: Retired::default(),
            losses: Losses::default(),
        }
    }

    /// Sets the cgroups whose threads all appear in the next readings, in addition to
    /// those of VMs. Replaces the earlier set; returns whether it changed.
    pub fn watch(&mut self, watched: &[WatchedCgroup]) -> bool {
        let mut known = std::mem::take(&mut self.watched);
        let mut is_new = false;
        for one in watched {
            if self.watched.contains_key(one) {
                continue;
            }
            let place = known.remove(one).unwrap_or_else(|| {
                is_new = true;
                let path = self.cgroups.path_of(one.cgroup);
                self.losses.races += u64::from(path.is_none());
                Watched {
                    is_missing: path.is_none(),
                    path,
                }
            });
            self.watched.insert(*one, place);
        }
        is_new || !known.is_empty()
    }

    /// Drops the sums of the ended threads of these owners. Until then every reading
    /// contains them.
    pub fn forget(&mut self, gone: &HashSet<Owner, impl BuildHasher>) {
        self.retired.forget(gone);
    }

    /// Makes the next reading scan for new VMs, without waiting for the 30 s interval.
    pub fn rescan(&mut self) {
        self.scanned = None;
    }

    /// Number of threads, processes and cgroups that vanished while they were read.
    pub fn races(&self) -> u64 {
        self.losses.races
    }

    /// Count of everything that readings omitted, including the races.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Reads the host once.
    ///
    /// # Errors
    /// If /proc itself cannot be listed. Failures of one process or cgroup are counted in
    /// [`ProcSource::losses`] instead.
    pub fn read(&mut self) -> Result<Facts, Error> {
        self.find_vmms()?;
        let mut reader = ThreadReader::new(&self.root, &self.cgroups, self.ticks_per_s);
        let mut reading = PartialFacts::default();
        self.vmms.retain(|pid, vmm| {
            let lives = vmm.look(&self.root, &mut reader, *pid);
            if lives {
                reading.read_vmm(&self.root, &mut reader, *pid, vmm);
            }
            lives
        });
        for tid in &self.kthreads {
            reading.read_kthread(&self.root, &mut reader, *tid);
        }
        let mut parents = Vec::new();
        for (watched, place) in &mut self.watched {
            let Some(path) = &place.path else { continue };
            let was_missing = place.is_missing;
            place.is_missing = self.cgroups.id_of(path) != Some(watched.cgroup);
            if !place.is_missing {
                let read = reading.read_members(&self.cgroups, &mut reader, *watched, path);
                parents.extend(read);
            }
            // Counted once: a cgroup that is gone for good stays in the set as long as
            // its VM is shown.
            reader.losses.races += u64::from(place.is_missing && !was_missing);
        }
        let pods: HashSet<CgroupId> = self.watched.keys().map(|one| one.pod).collect();
        let is_watched = |pod| pods.contains(&pod);
        self.children
            .read(&self.root, &mut reader, &mut reading, parents, is_watched);
        let paths = self.watched.values().filter_map(|one| one.path.as_ref());
        let cgroups = reader.cgroup_facts(paths);
        self.losses.add(reader.losses);
        self.retire(&mut reading);
        Ok(Facts {
            vms: reading.vms,
            threads: reading.threads.into(),
            cgroups,
            retired: self.retired.facts(),
            ..Facts::default()
        })
    }

    /// Retires the threads that are missing from this reading, and the former classes of
    /// the others.
    fn retire(&mut self, reading: &mut PartialFacts) {
        let vms = reading.vms.iter().map(|vm| Owner::Vm(vm.vm));
        let pods = self.watched.keys().map(|one| Owner::Pod(one.pod));
        let present: HashSet<Owner> = vms.chain(pods).collect();
        let has_ended =
            |tid, start_ns| threads::has_ended(&self.root, self.ticks_per_s, tid, start_ns);
        let dropped = self
            .retired
            .settle(&mut reading.threads, &present, has_ended);
        self.losses.over_limit += dropped;
    }

    /// Refreshes the lists of VMMs and kernel threads if they are old.
    fn find_vmms(&mut self) -> Result<(), Error> {
        if self.scanned.is_some_and(|at| at.elapsed() < SCAN_EVERY) {
            return Ok(());
        }
        let scan = vm_processes(&self.root)?;
        self.losses.add(scan.losses);
        let mut known = std::mem::take(&mut self.vmms);
        known.retain(|pid, _| scan.unread.contains(pid));
        let found = scan.vms.into_iter();
        self.vmms = known;
        self.vmms
            .extend(found.map(|(pid, fds)| (pid, Vmm::new(fds))));
        self.kthreads = scan.kthreads;
        self.scanned = Some(Instant::now());
        Ok(())
    }
}

/// Location of a watched cgroup.
#[derive(Debug)]
struct Watched {
    /// `None` if the cgroup was gone before it was found.
    path: Option<String>,
    /// Whether the cgroup was missing at the last reading.
    is_missing: bool,
}

/// A process that held KVM descriptors at the last inspection.
#[derive(Debug)]
struct Vmm {
    fds: VmFds,
    /// Start time, ns since boot; `None` before the first inspection.
    start_ns: Option<u64>,
}

impl Vmm {
    fn new(fds: VmFds) -> Self {
        Self {
            fds,
            start_ns: None,
        }
    }

    /// Updates the VMM's descriptors; returns false if the process has ended. On an error
    /// the old values stay: a descriptor that is closed for a moment does not end the VM.
    fn look(&mut self, root: &HostRoot, reader: &mut ThreadReader, pid: u32) -> bool {
        let (fds, started) = (vm_fds(root, pid), reader.started(pid));
        let is_gone = |error: Option<&Error>| error.is_some_and(Error::is_gone);
        let has_ended = is_gone(fds.as_ref().err()) && is_gone(started.as_ref().err());
        let started = reader.losses.keep(started);
        if has_ended || started.is_some_and(|started| started.is_none()) {
            return false;
        }
        self.start_ns = started.flatten().or(self.start_ns);
        if let Some(fds) = reader.losses.keep(fds) {
            self.fds = fds;
        }
        true
    }
}

/// The partial result of a reading.
#[derive(Default)]
struct PartialFacts {
    vms: Vec<VmFact>,
    threads: Vec<ThreadFact>,
    /// Owners of the threads read so far, by tid.
    owners: HashMap<u32, Owner>,
    /// The VMs, each with the process id in its own pid namespace.
    own_pids: Vec<(u32, VmKey)>,
}

impl PartialFacts {
    /// Reads a VMM's threads.
    fn read_vmm(&mut self, root: &HostRoot, reader: &mut ThreadReader, pid: u32, vmm: &Vmm) {
        reader.losses.over_limit += u64::from(vmm.fds.is_cut);
        // A VM without vCPUs runs nothing (libvirt creates one to query KVM's
        // capabilities).
        let Some(start_ns) = vmm.start_ns.filter(|_| !vmm.fds.vcpu_ids.is_empty()) else {
            return;
        };
        let vm = VmKey {
            start_ns,
            tgid: pid,
        };
        self.vms.push(VmFact {
            vm,
            vcpus: vmm.fds.vcpus(),
            mmu: None,
        });
        let own_pid = reader.own_pid(pid);
        let own_pid = reader.losses.keep(own_pid);
        self.own_pids.extend(own_pid.map(|own_pid| (own_pid, vm)));
        let first = self.threads.len();
        let tasks = numbered(&root.proc_of(pid, "task"), MAX_THREADS);
        let Some((tids, is_cut)) = reader.losses.keep(tasks) else {
            return;
        };
        reader.losses.over_limit += u64::from(is_cut);
        for tid in tids {
            self.push(reader, Owner::Vm(vm), tid);
        }
        let new = self.threads.get_mut(first..).unwrap_or_default();
        vcpus::name_vcpus(new, &vmm.fds.vcpu_ids);
    }

    /// Reads a kernel thread whose name belongs to a VM.
    fn read_kthread(&mut self, root: &HostRoot, reader: &mut ThreadReader, tid: u32) {
        let comm = reader.losses.keep(process::comm(root, tid));
        let Some(comm) = comm else { return };
        let owner = self.vhost_owner(comm);
        let timer_of = || Some(Owner::Vm(self.timer_owner(reader, comm, tid)?));
        if let Some(owner) = owner.or_else(timer_of) {
            self.push(reader, owner, tid);
        }
    }

    /// Reads every thread in a watched cgroup that is not yet read; returns all threads
    /// in it, each with its pod.
    fn read_members(
        &mut self,
        cgroups: &Cgroups,
        reader: &mut ThreadReader,
        watched: WatchedCgroup,
        path: &str,
    ) -> Vec<(u32, CgroupId)> {
        let Some(members) = reader.losses.keep(cgroups.members(path, MAX_THREADS)) else {
            return Vec::new();
        };
        reader.losses.add(members.losses);
        for tid in &members.tids {
            self.push(reader, Owner::Pod(watched.pod), *tid);
        }
        let of_pod = |tid| (tid, watched.pod);
        members.tids.into_iter().map(of_pod).collect()
    }

    /// Reads a thread, unless it is already read.
    fn push(&mut self, reader: &mut ThreadReader, owner: Owner, tid: u32) {
        if self.owners.contains_key(&tid) {
            return;
        }
        if self.threads.len() == MAX_THREADS {
            reader.losses.over_limit += 1;
            return;
        }
        let Some(mut thread) = reader.read(owner, tid) else {
            return;
        };
        if thread.kind == ThreadKind::Kthread {
            thread.owner = self.vhost_owner(thread.comm).unwrap_or(owner);
        }
        self.owners.insert(tid, thread.owner);
        self.threads.push(thread);
    }

    /// The VM that owns a kernel PIT timer thread. The thread's name contains the pid of
    /// its creator in the creator's pid namespace (arch/x86/kvm/i8254.c, `"kvm-pit/%d"`
    /// of `pid_vnr`). `None` if several VMs that started before the thread have that pid
    /// in their own namespaces.
    fn timer_owner(&self, reader: &ThreadReader, comm: Comm, tid: u32) -> Option<VmKey> {
        let number: u32 = comm.as_str()?.strip_prefix("kvm-pit/")?.parse().ok()?;
        let start_ns = reader.started(tid).ok()??;
        let its = |(own_pid, vm): &&(u32, VmKey)| *own_pid == number && vm.start_ns <= start_ns;
        let mut vms = self.own_pids.iter().filter(its).map(|(_, vm)| *vm);
        let first = vms.next()?;
        vms.next().is_none().then_some(first)
    }

    /// The VM of a vhost kernel thread, for kernels before v6.4. The thread's name
    /// contains the tid of the thread that set it up (drivers/vhost/vhost.c, `"vhost-%d",
    /// current->pid`). The address space that it borrows would be proof, but /proc does
    /// not show it.
    fn vhost_owner(&self, comm: Comm) -> Option<Owner> {
        let number = comm.as_str()?.strip_prefix("vhost-")?.parse().ok()?;
        let owner = self.owners.get(&number).copied();
        owner.filter(|owner| matches!(owner, Owner::Vm(_)))
    }
}
