//! Memory of VMs: what they hold, what they gave back and took again.
//!
//! ```text
//! memslots ──► pieces of RAM ──► (kernel) discards by kind ──┐
//! resident memory, page faults, cgroups ─────────────────────┴─► Memory
//! ```

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::facts::{CgroupMemory, VmKey};
use crate::features::{Features, Thresholds};
use crate::fleet::{Fleet, Member};
use crate::ledger::{Known, Meter};
use crate::place::Cgroups;
use crate::snapshot::Vcpu;

/// What was done with a guest's RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Discard {
    /// The balloon took it from the guest.
    Inflate,
    /// The balloon gave it back.
    Deflate,
    /// The guest told that it is free.
    Report,
    /// Unplugged, migrated away, reset.
    Other,
}

impl Discard {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Inflate, Self::Deflate, Self::Report, Self::Other];

    /// The name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inflate => "inflate",
            Self::Deflate => "deflate",
            Self::Report => "report",
            Self::Other => "other",
        }
    }
}

/// What was done so far, of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiscardSum {
    /// How often.
    pub events: u64,
    /// How much, bytes.
    pub bytes: u64,
    /// Time that the VMM spent for it, ns: in the kernel, and of single pages also
    /// from one to the next.
    pub ns: u64,
}

/// What the programs counted of one VM since it was first seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiscardsFact {
    /// In the order of [`Discard::ALL`].
    pub sums: [DiscardSum; Discard::ALL.len()],
}

/// What a reading says of a VM's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFact {
    /// RAM that its guest was given, bytes.
    pub guest_bytes: Option<u64>,
    /// Memory of its VMM's process that is there, without huge pages, bytes.
    pub resident_bytes: Option<u64>,
    /// The highest of that so far, as the kernel has it, bytes.
    pub peak_bytes: Option<u64>,
    /// Huge pages of hugetlbfs that the process has, bytes.
    pub huge_bytes: u64,
    /// Reported memory that the guest has taken again, bytes; `None` where RAM is
    /// not followed.
    pub refault_bytes: Option<u64>,
    /// What was discarded; `None` where that is not followed.
    pub discards: Option<DiscardsFact>,
}

/// A memslot of KVM: host memory that the guest sees somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memslot {
    /// Its address in the VMM's process.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// The guest cannot write to it: firmware, not RAM.
    pub read_only: bool,
}

/// A piece of a process's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
}

/// The file behind a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// The RAM is the file's own memory: it is a memfd or of tmpfs or hugetlbfs,
    /// and mapped as shared.
    pub in_memory: bool,
    /// The number of its device, 12 bits major and 20 bits minor.
    pub device: u32,
    /// Its inode; never 0.
    pub inode: u64,
    /// Where in it the piece begins.
    pub offset: u64,
}

/// A piece of RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RamPiece {
    /// Where it lies.
    pub piece: Piece,
    /// The file behind it; `None` is anonymous memory.
    pub file: Option<Backing>,
}

/// The RAM among the memslots, in order. Neighbours stay apart: to discard the
/// whole of one is not what a balloon does. What the guest sees at two places
/// is one.
pub fn ram_of(slots: &[Memslot]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = slots
        .iter()
        .filter(|slot| !slot.read_only && slot.start > 0 && slot.bytes > 0)
        .map(|slot| Piece {
            start: slot.start,
            end: slot.start.saturating_add(slot.bytes),
        })
        .collect();
    pieces.sort_unstable_by_key(|piece| (piece.start, Reverse(piece.end)));
    pieces.dedup_by(|next, last| next.end <= last.end);
    pieces
}

/// The bytes in all pieces, which come in order; what is in two counts once.
pub fn bytes_in(pieces: &[Piece]) -> u64 {
    let (bytes, _) = pieces.iter().fold((0, 0), |(bytes, end), piece| {
        let new = piece.end.saturating_sub(piece.start.max(end));
        (bytes + new, piece.end.max(end))
    });
    bytes
}

/// A VM's memory as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// RAM that the guest was given, bytes.
    pub guest_bytes: Option<u64>,
    /// Memory of the VMM's process that is there, huge pages too, bytes.
    pub resident_bytes: Option<u64>,
    /// Of that, huge pages of hugetlbfs.
    pub resident_huge_bytes: Option<u64>,
    /// The highest of that so far.
    pub resident_peak_bytes: Option<u64>,
    /// What the cgroup with the tightest limit uses, or else the pod's.
    pub cgroup_bytes: Option<u64>,
    /// What that cgroup may use; `None` where it has no limit.
    pub cgroup_limit_bytes: Option<u64>,
    /// Page faults of the guest that KVM fixed.
    pub faults: Option<u64>,
    /// What was done with its RAM; `None` where that is not followed.
    pub discards: Option<Discards>,
    /// Reported memory that the guest took again, bytes.
    pub refault_bytes: Option<u64>,
    /// What it has to give memory back.
    pub features: Features,
}

/// What was done with a VM's RAM, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Discards {
    /// The balloon took it.
    pub inflate: DiscardSum,
    /// The balloon gave it back.
    pub deflate: DiscardSum,
    /// The guest reported it free.
    pub report: DiscardSum,
    /// Unplugged, migrated away, reset.
    pub other: DiscardSum,
}

impl Discards {
    /// What a balloon does: taking, giving back, and what is neither.
    pub fn balloon(&self) -> [(Discard, DiscardSum); 3] {
        [
            (Discard::Inflate, self.inflate),
            (Discard::Deflate, self.deflate),
            (Discard::Other, self.other),
        ]
    }

    /// Time spent on giving memory back to the host, ns.
    pub fn release_ns(&self) -> u64 {
        [self.inflate, self.report, self.other]
            .iter()
            .fold(0, |sum, one| one.ns.saturating_add(sum))
    }

    /// How often something was done with it.
    pub fn events(&self) -> u64 {
        let all = [self.inflate, self.deflate, self.report, self.other];
        all.iter()
            .fold(0, |sum, one| one.events.saturating_add(sum))
    }
}

/// The counters of one VM's memory.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryMeter {
    /// By kind: events, bytes, ns.
    sums: Known<[[Meter; 3]; Discard::ALL.len()]>,
    refault: Meter,
    #[serde(skip)]
    peak_bytes: u64,
}

impl MemoryMeter {
    /// The VM was started again by another VMM process.
    pub fn renew(&mut self) {
        let renew = |one: &mut [Meter; 3]| one.iter_mut().for_each(Meter::renew);
        self.sums.change(|sums| sums.iter_mut().for_each(renew));
        self.refault.renew();
        self.peak_bytes = 0;
    }

    /// The VM has ended while nobody looked: what it took again last is not known.
    pub fn end_unseen(&mut self) {
        self.refault = Meter::default();
    }

    fn read(&mut self, fact: &DiscardsFact) {
        for ([events, bytes, ns], sum) in self.sums.now().iter_mut().zip(fact.sums) {
            events.read(sum.events);
            bytes.read(sum.bytes);
            ns.read(sum.ns);
        }
    }

    fn discards(&self) -> Option<Discards> {
        let [inflate, deflate, report, other] =
            self.sums.get()?.map(|[events, bytes, ns]| DiscardSum {
                events: events.total(),
                bytes: bytes.total(),
                ns: ns.total(),
            });
        Some(Discards {
            inflate,
            deflate,
            report,
            other,
        })
    }
}

/// Reads a VM's memory. Of a VM that has ended what was counted stays.
pub fn read(
    member: &mut Member,
    fact: Option<&MemoryFact>,
    cgroups: &Cgroups<'_>,
    vcpus: &[Vcpu],
) -> Memory {
    let fact = fact.copied().unwrap_or_default();
    let resident = fact
        .resident_bytes
        .map(|bytes| bytes.saturating_add(fact.huge_bytes));
    let meter = &mut member.ledger.memory;
    let peak = resident.max(fact.peak_bytes).map(|bytes| {
        meter.peak_bytes = meter.peak_bytes.max(bytes);
        meter.peak_bytes
    });
    if let Some(discards) = &fact.discards {
        meter.read(discards);
    }
    if let Some(bytes) = fact.refault_bytes {
        meter.refault.read(bytes);
    }
    let discards = meter.discards();
    let refault = discards.map(|_| meter.refault.total());
    let (events, reports) = discards.map_or((0, 0), |one| {
        let balloon = one.inflate.events.saturating_add(one.deflate.events);
        (balloon, one.report.events)
    });
    let cgroup = cgroup_of(member, cgroups);
    Memory {
        guest_bytes: fact.guest_bytes,
        resident_bytes: resident,
        resident_huge_bytes: resident.map(|_| fact.huge_bytes),
        resident_peak_bytes: peak,
        cgroup_bytes: cgroup.map(|memory| memory.usage_bytes),
        cgroup_limit_bytes: cgroup.and_then(|memory| memory.limit_bytes),
        faults: vcpus
            .iter()
            .filter_map(|vcpu| vcpu.pf_fixed)
            .reduce(u64::saturating_add),
        discards,
        refault_bytes: refault,
        features: member.features.seen(member.identity.vmm, events, reports),
    }
}

/// The level of the VM's path with the lowest limit; where none has one, the
/// outermost: the pod's.
fn cgroup_of(member: &Member, cgroups: &Cgroups<'_>) -> Option<CgroupMemory> {
    if member.ended_ns.is_some() {
        return None;
    }
    let levels = &member.place.as_ref()?.levels;
    levels
        .iter()
        .filter_map(|(id, _)| cgroups.get(id)?.memory)
        .reduce(|tightest, level| {
            let limit = |memory: CgroupMemory| memory.limit_bytes.unwrap_or(u64::MAX);
            if limit(level) < limit(tightest) {
                level
            } else {
                tightest
            }
        })
}

impl Fleet {
    /// How discards of a VM's RAM are told apart; `None` of a VM that is not
    /// known.
    pub fn thresholds(&self, vm: VmKey, huge_pages: bool) -> Option<Thresholds> {
        let member = self.member(vm)?;
        Some(Thresholds::of(&member.features, huge_pages))
    }
}

#[cfg(test)]
mod tests {
    use super::{DiscardSum, DiscardsFact, MemoryMeter, Memslot, Piece, bytes_in, ram_of};

    fn slot(start: u64, bytes: u64, read_only: bool) -> Memslot {
        Memslot {
            start,
            bytes,
            read_only,
        }
    }

    #[test]
    fn what_the_guest_sees_twice_is_one_piece_and_firmware_is_none() {
        let slots = [
            slot(0x110_0000, 0x10_0000, false),
            slot(0x100_0000, 0xa_0000, false),
            slot(0x10a_0000, 0x6_0000, true),
            slot(0x120_0000, 0x1000, false),
            // The guest sees a part of it a second time.
            slot(0x100_1000, 0x1000, false),
            slot(0, 0x1000, false),
        ];
        let pieces = ram_of(&slots);
        let piece = |start, end| Piece { start, end };
        assert_eq!(
            pieces,
            [
                piece(0x100_0000, 0x10a_0000),
                piece(0x110_0000, 0x120_0000),
                piece(0x120_0000, 0x120_1000),
            ]
        );
        assert_eq!(bytes_in(&pieces), 0x1a_1000);
        assert_eq!(ram_of(&[]), []);
    }

    #[test]
    fn a_vm_started_again_counts_on() {
        let mut meter = MemoryMeter::default();
        assert_eq!(meter.discards(), None, "what is not followed is absent");
        let fact = |bytes| {
            let mut fact = DiscardsFact::default();
            fact.sums[2] = DiscardSum {
                events: 1,
                bytes,
                ns: 7,
            };
            fact
        };
        meter.read(&fact(100));
        meter.renew();
        meter.read(&fact(30));
        let report = meter.discards().expect("it was read").report;
        assert_eq!((report.events, report.bytes, report.ns), (2, 130, 14));
    }
}
