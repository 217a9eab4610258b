//! Converts records of the stream to facts. Pure.
//!
//! The decoder lives as long as its source: cgroup names are emitted once per session,
//! and affinity masks are few and shared.

mod cgroups;
mod files;
mod kvm;
mod levels;
mod memory;
mod stream;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::facts::{
    Facts, Renewal, ResidencyFact, RetiredFact, ThreadClass, ThreadFact, ThreadKind, VmFact,
};
use virtlens_model::vocab::topology::guest::{CpuidEntry, GuestTopology};
use virtlens_model::vocab::topology::host::Distance;
use virtlens_model::vocab::{
    CgroupId, Comm, CpuSet, Durations, Moves, Owner, SchedClass, Switches, Throttle, VmKey,
};
use zerocopy::FromBytes;

use self::cgroups::Names;
pub use self::files::{OpenFiles, OpenedByVm};
pub(crate) use self::kvm::ended_vcpu;
pub use self::memory::discards;
use self::memory::{Memories, SlotsOf};
pub use self::stream::Buffer;
use self::stream::{Record, Records};
use crate::Error;

/// Maximum number of distinct affinity masks kept: enough for a large node with each vCPU
/// pinned separately.
const MASKS_KEPT: usize = 4096;

/// Converts the bytes of a pass to facts.
#[derive(Debug, Default)]
pub struct Decoder {
    names: Names,
    masks: FxHashMap<Box<[u64]>, Arc<CpuSet>>,
    /// The CPU topology that guests see: emitted once per session.
    guests: FxHashMap<VmKey, GuestTopology>,
    /// The pass in progress, or the facts of the former one once they are recycled.
    facts: Facts,
    /// The threads of the pass in progress.
    threads: Renewal,
    /// Where the threads of the last whole pass are in memory, which shows whether these are
    /// recycled.
    last_threads: usize,
    /// Number of threads of the last pass that have slept since the one before.
    slept_threads: usize,
    cgroups: Vec<abi::record::CgroupRecord>,
    /// Migrations of the vCPUs of each VM of the last pass.
    moves: Vec<(VmKey, Moves)>,
    /// The location of the RAM of VMs: emitted when it has changed.
    memories: Memories,
    /// A thread changed its class during a pass.
    has_changed: bool,
}

impl Decoder {
    /// Decodes one whole pass: see [`Decoder::feed`] and [`Decoder::end`].
    ///
    /// # Errors
    /// [`Error::Record`].
    pub fn pass(&mut self, stream: &[u8], mask_words: usize) -> Result<(Facts, usize), Error> {
        self.begin(false);
        self.feed(stream, mask_words)?;
        Ok(self.end())
    }

    /// Number of threads of the last whole pass, to which the next pass may refer; 0 if their
    /// facts are not recycled.
    pub fn former_threads(&self) -> usize {
        self.facts.threads.len()
    }

    /// Begins a pass, also after an incomplete one. `refers`: it may refer to the
    /// [`Decoder::former_threads`].
    pub fn begin(&mut self, refers: bool) {
        let mut threads = std::mem::take(&mut self.facts.threads);
        if !refers {
            threads.clear();
        }
        self.threads = Renewal::of(threads);
        self.slept_threads = 0;
        self.facts.memory.clear();
        self.facts.levels.clear();
        self.facts.vms.clear();
        self.facts.halts.clear();
        self.facts.placements.clear();
        self.moves.clear();
        self.cgroups.clear();
    }

    /// Decodes a part of a pass, which consists of whole records. `mask_words` is
    /// `config.mask_words` of the programs.
    ///
    /// # Errors
    /// [`Error::Record`] if the stream is invalid, which no kernel causes.
    pub fn feed(&mut self, stream: &[u8], mask_words: usize) -> Result<(), Error> {
        for record in Records::new(stream) {
            let record = record?;
            match record.kind {
                abi::record::RECORD_THREAD => {
                    let fact = self.thread(&record, mask_words)?;
                    self.threads.push(fact);
                }
                abi::record::RECORD_SLEPT => self.slept(&record)?,
                abi::record::RECORD_VM => self.vm(record.of()?.0),
                abi::record::RECORD_HALTS => self.facts.halts.extend(kvm::halts(record.of()?.0)),
                abi::record::RECORD_CGROUP => self.cgroups.push(*record.of()?.0),
                abi::record::RECORD_LEVEL => {
                    let (cgroup, fact) = levels::level(record.of()?.0);
                    self.facts.levels.insert(cgroup, fact);
                }
                abi::record::RECORD_CGROUP_NAME => self.names.learn(record.of()?.0),
                abi::record::RECORD_CPUID => self.cpuid(&record)?,
                abi::record::RECORD_MEMORY => {
                    let (vm, fact) = memory::memory(record.of()?.0);
                    self.facts.memory.insert(vm, fact);
                }
                abi::record::RECORD_MEMSLOTS => self.memories.learn(&record)?,
                _ => return Err(record.broken("unknown kind")),
            }
        }
        Ok(())
    }

    /// Ends a pass. Returns its facts, and the number of its cgroups without a known
    /// name. If there are any, the session must be renewed and the pass repeated.
    pub fn end(&mut self) -> (Facts, usize) {
        let mut facts = std::mem::take(&mut self.facts);
        facts.threads = std::mem::take(&mut self.threads).end();
        self.last_threads = facts.threads.as_ptr().addr();
        self.memories.add_to(&mut facts.memory);
        let nameless;
        // A process whose threads do not follow each other is visited more than once.
        facts.vms.sort_unstable_by_key(|one| one.vm);
        facts.vms.dedup_by_key(|one| one.vm);
        (facts.cgroups, nameless) = self.names.facts(&mut self.cgroups);
        (facts, nameless)
    }

    /// Number of threads of the last pass that have slept since the pass before it.
    pub fn slept_threads(&self) -> usize {
        self.slept_threads
    }

    /// Whether a thread changed its class during a pass since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Recycles facts that are no longer needed: the next pass reuses their memory.
    pub fn recycle(&mut self, mut facts: Facts) {
        if facts.threads.as_ptr().addr() != self.last_threads {
            facts.threads.clear();
        }
        self.facts.threads = facts.threads;
        self.facts.memory = facts.memory;
        self.facts.levels = facts.levels;
        self.facts.vms = facts.vms;
        self.facts.halts = facts.halts;
        self.facts.placements = facts.placements;
    }

    fn vm(&mut self, record: &abi::record::VmRecord) {
        if let Owner::Vm(vm) = owner(record.owner) {
            let vcpus = record.vcpus;
            let mmu = Some(kvm::mmu(&record.mmu));
            self.facts.vms.push(VmFact { vm, vcpus, mmu });
            if !record.moves.contains(&abi::UNKNOWN) {
                self.moves.push((vm, moves(&record.moves)));
            }
        }
    }

    fn thread(&mut self, record: &Record<'_>, mask_words: usize) -> Result<ThreadFact, Error> {
        let (thread, mut rest) = record.of::<abi::record::ThreadRecord>()?;
        let owner = owner(thread.owner);
        self.has_changed |= thread.flags & abi::record::THREAD_CHANGED != 0;
        let mut vcpu = None;
        if thread.flags & abi::record::THREAD_VCPU != 0 {
            let (found, tail) = abi::record::VcpuRecord::ref_from_prefix(rest)
                .map_err(|_| record.broken("truncated vCPU"))?;
            rest = tail;
            vcpu = Some(kvm::vcpu(found));
        }
        let words = <[u64]>::ref_from_bytes(rest)
            .ok()
            .filter(|words| words.len() == mask_words)
            .ok_or_else(|| record.broken("truncated affinity mask"))?;
        Ok(ThreadFact {
            owner,
            tid: thread.tid,
            tgid: thread.tgid,
            start_ns: thread.start_ns,
            kind: kind(thread.flags),
            comm: Comm(thread.comm),
            process_comm: Comm(thread.leader_comm),
            cpu_ns: thread.run_ns,
            wait_ns: Some(thread.wait_ns),
            guest_ns: Some(thread.guest_ns),
            switches: Some(Switches {
                timeslices: thread.timeslices,
                involuntary: thread.involuntary_switches,
            }),
            cgroup: CgroupId(thread.cgroup),
            pcpu: Some(thread.pcpu),
            affinity: (mask_words > 0).then(|| self.mask(words)),
            sched_class: SchedClass::of_policy(thread.policy),
            vcpu,
            class_changes: thread.class_changes,
        })
    }

    /// Adds threads that have slept since the former pass.
    fn slept(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let slept = record.of::<abi::record::SleptRecord>()?.0;
        if slept.at as usize != self.threads.len() {
            return Err(record.broken("misplaced reference to threads"));
        }
        if !self.threads.keep(slept.from as usize, slept.count as usize) {
            return Err(record.broken("reference to unknown threads"));
        }
        self.slept_threads += slept.count as usize;
        Ok(())
    }

    fn cpuid(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let (cpuid, rest) = record.of::<abi::record::CpuidRecord>()?;
        let leaves = <[abi::record::CpuidLeaf]>::ref_from_bytes(rest)
            .map_err(|_| record.broken("truncated CPUID leaf"))?;
        let entries: Vec<CpuidEntry> = leaves.iter().map(cpuid_entry).collect();
        if let Owner::Vm(vm) = owner(cpuid.owner) {
            match GuestTopology::decode(&entries) {
                Some(guest) => self.guests.insert(vm, guest),
                None => self.guests.remove(&vm),
            };
        }
        Ok(())
    }

    /// Returns the migrations of the vCPUs of each VM of the last pass, where known.
    pub fn moves(&self) -> impl Iterator<Item = (VmKey, Moves)> {
        self.moves.iter().copied()
    }

    /// Returns the CPU topology that guests see, by VM.
    pub fn guests(&self) -> impl Iterator<Item = (VmKey, GuestTopology)> {
        self.guests.iter().map(|(vm, guest)| (*vm, *guest))
    }

    /// Returns the location of a VM's RAM, once it was emitted.
    pub fn ram_of(&self, vm: VmKey) -> Option<&SlotsOf> {
        self.memories.of(vm)
    }

    /// Removes the data of a former VM.
    pub fn forget(&mut self, vm: VmKey) {
        self.guests.remove(&vm);
        self.memories.forget(vm);
    }

    fn mask(&mut self, words: &[u64]) -> Arc<CpuSet> {
        if let Some(known) = self.masks.get(words) {
            return Arc::clone(known);
        }
        if self.masks.len() >= MASKS_KEPT {
            self.masks.clear();
        }
        let set = Arc::new(CpuSet::from_words(words));
        self.masks.insert(words.into(), Arc::clone(&set));
        set
    }
}

/// Converts an entry of the map `retired`.
pub fn retired(key: &abi::map::ThreadClass, sum: &abi::map::Retired) -> RetiredFact {
    RetiredFact {
        class: class(key),
        threads: sum.threads,
        cpu_ns: sum.run_ns,
        wait_ns: sum.wait_ns,
        guest_ns: sum.guest_ns,
        switches: Switches {
            timeslices: sum.timeslices,
            involuntary: sum.involuntary_switches,
        },
    }
}

/// Converts a class of threads.
pub fn class(class: &abi::map::ThreadClass) -> ThreadClass {
    ThreadClass {
        owner: owner(class.owner),
        cgroup: (class.level != 0).then_some(CgroupId(class.level)),
        kind: kind(class.flags),
        vcpu_id: (class.vcpu_id != u32::MAX).then_some(class.vcpu_id),
        comm: Comm(class.comm),
        process_comm: Comm(class.leader_comm),
    }
}

/// Converts an entry of the map `levels`.
pub fn throttle(level: &abi::map::Level) -> Throttle {
    Throttle {
        throttles: level.throttles,
        wall_ns: level.wall_ns,
        unthrottles: Durations {
            counts: level.durations,
            sum_ns: level.duration_sum_ns,
        },
    }
}

/// Converts an entry of the map `residency`; `None` if its owner is not a VM.
pub fn residency(key: &abi::map::ResidencyKey, run_ns: u64) -> Option<ResidencyFact> {
    let Owner::Vm(vm) = owner(key.owner) else {
        return None;
    };
    Some(ResidencyFact {
        vm,
        vcpu_id: key.vcpu_id,
        pcpu: key.pcpu,
        run_ns,
    })
}

/// Converts migrations by `enum distance`.
#[expect(clippy::indexing_slicing, reason = "constants below DISTANCES")]
pub fn moves(counts: &[u64; abi::map::DISTANCES as usize]) -> Moves {
    let of = |distance: u32| counts[distance as usize];
    Moves {
        by_distance: Distance::ALL.map(|distance| {
            of(match distance {
                Distance::Smt => abi::map::DISTANCE_SMT,
                Distance::Core => abi::map::DISTANCE_CORE,
                Distance::Llc => abi::map::DISTANCE_LLC,
                Distance::Numa => abi::map::DISTANCE_NUMA,
            })
        }),
        unknown: of(abi::map::DISTANCE_UNKNOWN),
    }
}

/// Converts an owner.
pub fn owner(owner: abi::Owner) -> Owner {
    if owner.tgid == 0 {
        Owner::Pod(CgroupId(owner.id))
    } else {
        Owner::Vm(VmKey {
            start_ns: owner.id,
            tgid: owner.tgid,
        })
    }
}

fn kind(flags: u32) -> ThreadKind {
    if flags & abi::record::THREAD_KTHREAD != 0 {
        ThreadKind::Kthread
    } else if flags & abi::record::THREAD_IO_WORKER != 0 {
        ThreadKind::IoWorker
    } else if flags & abi::record::THREAD_USER_WORKER != 0 {
        ThreadKind::UserWorker
    } else {
        ThreadKind::User
    }
}

fn known(value: u64) -> Option<u64> {
    (value != abi::UNKNOWN).then_some(value)
}

fn cpuid_entry(leaf: &abi::record::CpuidLeaf) -> CpuidEntry {
    CpuidEntry {
        function: leaf.function,
        index: leaf.index,
        eax: leaf.eax,
        ebx: leaf.ebx,
        ecx: leaf.ecx,
        edx: leaf.edx,
    }
}

#[cfg(test)]
mod tests;
