//! A guest's topology as the guest's kernel would read it from CPUID.
//!
//! Leaves are read in Linux's order (`parse_topology`, in `topology_common.c`, `_ext.c`
//! and `_amd.c` of arch/x86/kernel/cpu, v6.18): the first valid one counts. The APIC id
//! is the `vcpu_id`: KVM derives the x2APIC id from it (`kvm_x2apic_id`,
//! arch/x86/kvm/lapic.c), whatever EDX contains.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A CPUID leaf as KVM holds it for a vCPU (`struct kvm_cpuid_entry2`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuidEntry {
    /// The leaf.
    pub function: u32,
    /// The sub-leaf; 0 if the leaf has none.
    pub index: u32,
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// The leaves that [`GuestTopology::decode`] reads.
pub const LEAVES: [u32; 10] = [
    VENDOR,
    FEATURES,
    CACHES,
    EXTENDED,
    EXTENDED_V2,
    MAX_EXTENDED,
    AMD_FEATURES,
    AMD_SIZES,
    AMD_TOPOLOGY,
    AMD_EXTENDED,
];

const VENDOR: u32 = 0;
const FEATURES: u32 = 1;
const CACHES: u32 = 4;
const EXTENDED: u32 = 0xb;
const EXTENDED_V2: u32 = 0x1f;
const MAX_EXTENDED: u32 = 0x8000_0000;
const AMD_FEATURES: u32 = 0x8000_0001;
const AMD_SIZES: u32 = 0x8000_0008;
const AMD_TOPOLOGY: u32 = 0x8000_001e;
const AMD_EXTENDED: u32 = 0x8000_0026;

/// How a guest splits an APIC id into thread, core, die and package: the shift of each
/// level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GuestTopology {
    core: u32,
    die: u32,
    package: u32,
}

/// Position of a vCPU in the guest's topology. Numbers are unique in the VM and have gaps
/// if a count is not a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct GuestPlace {
    /// Its package (socket).
    pub package: u32,
    /// Its die; a package has one die if the leaves report none.
    pub die: u32,
    /// Its core.
    pub core: u32,
    /// Its thread in the core.
    pub thread: u32,
}

/// Packages, cores and threads of a VM's vCPUs, as in QEMU's
/// `-smp sockets=,cores=,threads=`. Only existing vCPUs count; a vCPU that may be plugged
/// later is in no package yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct GuestShape {
    /// Packages.
    pub packages: u32,
    /// Cores in the largest package.
    pub cores: u32,
    /// Threads in the largest core.
    pub threads: u32,
}

impl GuestTopology {
    /// Decodes the leaves that KVM holds for one vCPU. Leaves outside [`LEAVES`] and the
    /// order of the entries have no effect. `None` if no leaf describes the topology, as
    /// before the VMM has set CPUID.
    pub fn decode(entries: &[CpuidEntry]) -> Option<Self> {
        let table = Table::of(entries);
        match table.vendor {
            Vendor::Amd => table.amd(),
            Vendor::Zhaoxin => table.legacy(),
            Vendor::Intel | Vendor::Other => table.extended().or_else(|| table.legacy()),
        }
    }

    /// Position in the guest's topology of the vCPU with this APIC id (its `vcpu_id`).
    pub fn place(self, apic_id: u32) -> GuestPlace {
        GuestPlace {
            package: apic_id >> self.package,
            die: apic_id >> self.die,
            core: apic_id >> self.core,
            thread: apic_id & ((1 << self.core) - 1),
        }
    }

    /// `None` if a level would be larger than the one above it.
    fn new(core: u32, die: u32, package: u32) -> Option<Self> {
        let rises = core <= die && die <= package && package < 32;
        rises.then_some(Self { core, die, package })
    }
}

impl GuestShape {
    /// The shape of the existing vCPUs; `None` if there are none.
    pub fn of(vcpus: impl IntoIterator<Item = GuestPlace>) -> Option<Self> {
        let mut packages: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
        for vcpu in vcpus {
            let cores = packages.entry(vcpu.package).or_default();
            *cores.entry(vcpu.core).or_default() += 1;
        }
        let cores = packages.values().map(BTreeMap::len).max()?;
        let threads = packages.values().flat_map(BTreeMap::values).max()?;
        Some(Self {
            packages: u32::try_from(packages.len()).ok()?,
            cores: u32::try_from(cores).ok()?,
            threads: *threads,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Intel,
    /// AMD and Hygon.
    Amd,
    /// Centaur and Zhaoxin: Linux reads only the oldest leaves.
    Zhaoxin,
    /// Unknown or new.
    Other,
}

/// The CPUID of one vCPU.
struct Table<'a> {
    entries: &'a [CpuidEntry],
    vendor: Vendor,
}

impl<'a> Table<'a> {
    fn of(entries: &'a [CpuidEntry]) -> Self {
        let mut table = Self {
            entries,
            vendor: Vendor::Other,
        };
        if let Some(leaf) = table.leaf(VENDOR, 0) {
            table.vendor = vendor(leaf);
        }
        table
    }

    /// Returns a leaf that the guest would read. A leaf above the maximum in leaf 0 (or
    /// 0x80000000) does not exist for the guest.
    fn leaf(&self, function: u32, index: u32) -> Option<&'a CpuidEntry> {
        let find = |function, index| {
            let mut entries = self.entries.iter();
            entries.find(move |entry| entry.function == function && entry.index == index)
        };
        let base = function & MAX_EXTENDED;
        let highest = find(base, 0).map_or(u32::MAX, |entry| entry.eax);
        find(function, index).filter(|_| function <= highest)
    }

    /// Intel's 0x1F, AMD's 0x80000026, or 0xB (`cpu_parse_topology_ext`).
    fn extended(&self) -> Option<GuestTopology> {
        [EXTENDED_V2, AMD_EXTENDED, EXTENDED]
            .into_iter()
            .find_map(|function| self.levels(function))
    }

    /// Reads the levels of an extended leaf. A sub-leaf without processors or type ends
    /// the list; if the first sub-leaf is such, the leaf is absent.
    fn levels(&self, function: u32) -> Option<GuestTopology> {
        let mut shifts = [0; LEVELS];
        let mut last = 0;
        let mut sub_leaves = 0;
        // At most one sub-leaf per possible level type.
        for index in 0..256 {
            let Some(leaf) = self.leaf(function, index) else {
                break;
            };
            let (processors, kind) = (leaf.ebx & 0xffff, leaf.ecx >> 8 & 0xff);
            if processors == 0 || kind == 0 {
                break;
            }
            last = level(function, kind).unwrap_or((last + 1).min(LEVELS - 1));
            let mut shift = leaf.eax & 0x1f;
            // Two processors at shift 0 still count as threads (`parse_topology_leaf`).
            if last == 0 && shift == 0 {
                shift = bits(processors);
            }
            shifts.iter_mut().skip(last).for_each(|to| *to = shift);
            sub_leaves += 1;
        }
        let [core_shift, .., package_shift] = shifts;
        (sub_leaves > 0)
            .then(|| GuestTopology::new(core_shift, shifts[DIE - 1], package_shift))
            .flatten()
    }

    /// `parse_topology_amd`. Without TOPOEXT, an AMD guest ignores the leaves that
    /// describe threads, although QEMU fills them.
    fn amd(&self) -> Option<GuestTopology> {
        const TOPOEXT: u32 = 1 << 22;
        let topoext = self
            .leaf(AMD_FEATURES, 0)
            .is_none_or(|leaf| leaf.ecx & TOPOEXT != 0);
        if let Some(leaf) = self.extended().filter(|_| topoext) {
            return Some(leaf);
        }
        let sizes = self.leaf(AMD_SIZES, 0)?;
        let package_shift = match sizes.ecx >> 12 & 0xf {
            0 => bits((sizes.ecx & 0xff) + 1),
            shift => shift,
        };
        // EBX[7:0], the core number, is ignored: Cloud Hypervisor stores the APIC id
        // there (arch/src/x86_64/mod.rs, v53).
        let core_shift = self
            .leaf(AMD_TOPOLOGY, 0)
            .filter(|_| topoext)
            .map_or(0, |leaf| bits((leaf.ebx >> 8 & 0xff) + 1));
        let package_shift = package_shift.max(core_shift);
        GuestTopology::new(core_shift, package_shift, package_shift)
    }

    /// `parse_legacy`: cores from leaf 4, logical processors from leaf 1.
    fn legacy(&self) -> Option<GuestTopology> {
        const HTT: u32 = 1 << 28;
        let features = self.leaf(FEATURES, 0)?;
        let cache = self.leaf(CACHES, 0).filter(|leaf| leaf.eax & 0x1f != 0);
        let core_bits = cache.map_or(0, |leaf| bits((leaf.eax >> 26) + 1));
        let core_shift = if features.edx & HTT == 0 {
            0
        } else {
            bits(features.ebx >> 16 & 0xff).saturating_sub(core_bits)
        };
        let package_shift = core_shift + core_bits;
        GuestTopology::new(core_shift, package_shift, package_shift)
    }
}

/// Domains of an APIC id in Linux: thread, core, module, tile, die, die group. The shift
/// of a level is the bit where the number of the next level begins.
const LEVELS: usize = 6;
const DIE: usize = 4;

/// Domain of a level type; `None` for a type that the leaf does not define yet
/// (`topo_domain_map_0b_1f`, `topo_domain_map_80000026`).
fn level(function: u32, kind: u32) -> Option<usize> {
    match (function, kind) {
        (_, 1) => Some(0),
        (_, 2) => Some(1),
        (EXTENDED_V2, 3..=6) => Some(kind as usize - 1),
        // AMD's core complex maps to a tile, AMD's socket to a die.
        (AMD_EXTENDED, 3 | 4) => Some(kind as usize),
        _ => None,
    }
}

fn vendor(leaf: &CpuidEntry) -> Vendor {
    let mut name = [0; 12];
    for (to, from) in name
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip([leaf.ebx, leaf.edx, leaf.ecx])
    {
        *to = from.to_le_bytes();
    }
    match &name {
        b"GenuineIntel" => Vendor::Intel,
        b"AuthenticAMD" | b"HygonGenuine" => Vendor::Amd,
        b"CentaurHauls" | b"  Shanghai  " => Vendor::Zhaoxin,
        _ => Vendor::Other,
    }
}

/// Bits needed to number `count` items; 0 for no items.
fn bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests;
