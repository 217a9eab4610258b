//! CPUID tables with the guest's topology.
//!
//! The base is KVM's supported CPUID on this host, as in every VMM; the leaves with
//! topology are replaced. Layouts: Intel SDM vol. 2A, "CPUID"; AMD APM vol. 3, appendix
//! E.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use kvm_bindings::{KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::args::parse_number;

/// Vendor whose leaves describe the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Vendor {
    /// Intel's.
    #[value(help = "leaves 1, 4, 0xB, and 0x1F with more than one die")]
    Intel,
    /// AMD's.
    #[value(help = "leaves 1, 0xB, 0x80000008 and 0x8000001E")]
    Amd,
}

/// A guest's topology: number of units of each level per unit of the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) sockets: u32,
    pub(crate) dies: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

impl FromStr for Topology {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut shape = Self {
            sockets: 1,
            dies: 1,
            cores: 1,
            threads: 1,
        };
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=').context("use KEY=COUNT,… or none")?;
            let count = parse_number(value)?;
            ensure!((1..=256).contains(&count), "{pair}: use 1 to 256");
            match key {
                "sockets" => shape.sockets = count,
                "dies" => shape.dies = count,
                "cores" => shape.cores = count,
                "threads" => shape.threads = count,
                _ => bail!("unknown key {key:?}: use sockets, dies, cores, threads"),
            }
        }
        ensure!(
            shape.capacity() <= 4096,
            "more than 4096 vCPUs, the maximum of KVM"
        );
        Ok(shape)
    }
}

impl Topology {
    /// Number of vCPUs in the topology.
    pub(crate) fn capacity(self) -> u32 {
        self.sockets * self.per_socket()
    }

    /// APIC id of the vCPU with this index, with threads counted fastest. Each level has
    /// a whole number of bits, so ids have gaps if a count is not a power of two.
    pub(crate) fn apic_id(self, index: u32) -> u32 {
        let thread = index % self.threads;
        let core = index / self.threads % self.cores;
        let die = index / (self.threads * self.cores) % self.dies;
        let socket = index / self.per_socket();
        socket << self.socket_shift() | die << self.die_shift() | core << self.core_shift() | thread
    }

    fn per_socket(self) -> u32 {
        self.dies * self.cores * self.threads
    }

    fn core_shift(self) -> u32 {
        bits(self.threads)
    }

    fn die_shift(self) -> u32 {
        self.core_shift() + bits(self.cores)
    }

    fn socket_shift(self) -> u32 {
        self.die_shift() + bits(self.dies)
    }
}

/// Number of bits to number `count` units.
fn bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// CPUID table of the vCPU with this APIC id.
pub(crate) fn table(
    supported: &[kvm_cpuid_entry2],
    shape: Topology,
    vendor: Vendor,
    apic_id: u32,
) -> Vec<kvm_cpuid_entry2> {
    let replaced = [0x4, 0xb, 0x1f, 0x8000_001e, 0x8000_0026];
    let mut table: Vec<_> = supported
        .iter()
        .filter(|entry| !replaced.contains(&entry.function))
        .map(|entry| adapted(*entry, shape, vendor, apic_id))
        .collect();
    let core_end = (shape.core_shift(), shape.threads);
    let socket_end = (shape.socket_shift(), shape.per_socket());
    table.extend(extended(
        0xb,
        apic_id,
        &[(SMT, core_end), (CORE, socket_end)],
    ));
    match vendor {
        Vendor::Intel => {
            table.extend(caches(shape));
            if shape.dies > 1 {
                let die_end = (shape.die_shift(), shape.cores * shape.threads);
                let levels = [(SMT, core_end), (CORE, die_end), (DIE, socket_end)];
                table.extend(extended(0x1f, apic_id, &levels));
            }
        }
        Vendor::Amd => table.push(kvm_cpuid_entry2 {
            function: 0x8000_001e,
            eax: apic_id,
            ebx: (shape.threads - 1) << 8 | apic_id >> shape.core_shift(),
            ecx: apic_id >> shape.socket_shift(),
            ..Default::default()
        }),
    }
    table
}

/// Level types of leaves 0xB and 0x1F.
const SMT: u32 = 1;
const CORE: u32 = 2;
const DIE: u32 = 5;

/// A leaf with one sub-leaf per level, each (shift to the next level, logical processors
/// below it), and a final invalid one.
fn extended(
    function: u32,
    apic_id: u32,
    levels: &[(u32, (u32, u32))],
) -> impl Iterator<Item = kvm_cpuid_entry2> {
    (0..).zip(levels.iter().copied().chain([(0, (0, 0))])).map(
        move |(index, (kind, (shift, processors)))| kvm_cpuid_entry2 {
            function,
            index,
            flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax: shift,
            ebx: processors,
            ecx: kind << 8 | index,
            edx: apic_id,
            ..Default::default()
        },
    )
}

/// Leaf 4: a data cache per core, a last-level cache per die, and the end.
fn caches(shape: Topology) -> impl Iterator<Item = kvm_cpuid_entry2> {
    let core_ids = 1 << (shape.socket_shift() - shape.core_shift());
    let cache = move |kind: u32, level: u32, shift: u32| {
        (core_ids - 1) << 26 | ((1 << shift) - 1) << 14 | 1 << 8 | level << 5 | kind
    };
    let (data, unified) = (1, 3);
    let first = cache(data, 1, shape.core_shift());
    let last = cache(unified, 3, shape.die_shift());
    (0..)
        .zip([first, last, 0])
        .map(|(index, eax)| kvm_cpuid_entry2 {
            function: 4,
            index,
            flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax,
            // 8 ways, 64-byte lines, 64 sets; ignored if EAX is 0.
            ebx: if eax == 0 { 0 } else { 7 << 22 | 63 },
            ecx: if eax == 0 { 0 } else { 63 },
            ..Default::default()
        })
}

/// One of the host's leaves with its topology fields replaced.
fn adapted(
    mut entry: kvm_cpuid_entry2,
    shape: Topology,
    vendor: Vendor,
    apic_id: u32,
) -> kvm_cpuid_entry2 {
    let logical = shape.per_socket();
    match entry.function {
        0 => {
            entry.eax = entry.eax.max(0x1f);
            let name = match vendor {
                Vendor::Intel => *b"GenuineIntel",
                Vendor::Amd => *b"AuthenticAMD",
            };
            let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| name[at + i]));
            (entry.ebx, entry.edx, entry.ecx) = (word(0), word(4), word(8));
        }
        1 => {
            let count = (1 << shape.socket_shift()).min(255);
            entry.ebx = entry.ebx & 0xffff | (apic_id & 0xff) << 24 | count << 16;
            set_bit(&mut entry.edx, 28, logical > 1);
        }
        0x8000_0000 => entry.eax = entry.eax.max(0x8000_001e),
        0x8000_0001 => {
            set_bit(&mut entry.ecx, 1, vendor == Vendor::Amd && logical > 1);
            set_bit(&mut entry.ecx, 22, vendor == Vendor::Amd);
        }
        0x8000_0008 if vendor == Vendor::Amd => {
            entry.ecx = shape.socket_shift() << 12 | ((logical - 1) & 0xff);
        }
        _ => {}
    }
    entry
}

fn set_bit(register: &mut u32, bit: u32, on: bool) {
    *register = *register & !(1 << bit) | u32::from(on) << bit;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_only_for_powers_of_two() {
        let dense: Topology = "cores=2,threads=2".parse().expect("a shape");
        assert_eq!(
            (0..4).map(|i| dense.apic_id(i)).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        let sparse: Topology = "sockets=2,cores=3".parse().expect("a shape");
        assert_eq!(
            (0..6).map(|i| sparse.apic_id(i)).collect::<Vec<_>>(),
            [0, 1, 2, 4, 5, 6]
        );
        let dies: Topology = "sockets=2,dies=2,cores=3,threads=2"
            .parse()
            .expect("a shape");
        assert_eq!([0, 5, 6, 12].map(|i| dies.apic_id(i)), [0, 5, 8, 16]);
    }

    #[test]
    fn cpuid_leaves_have_processor_counts_and_shifts() {
        let shape: Topology = "sockets=2,dies=2,cores=2,threads=2"
            .parse()
            .expect("a shape");
        let table = table(&[], shape, Vendor::Intel, 5);
        let leaf = |function, index| {
            let found = table
                .iter()
                .find(|e| e.function == function && e.index == index);
            let e = found.expect("the leaf is there");
            (e.eax, e.ebx, e.ecx, e.edx)
        };
        assert_eq!(leaf(0xb, 0), (1, 2, 0x100, 5));
        assert_eq!(leaf(0xb, 1), (3, 8, 0x201, 5));
        assert_eq!(leaf(0xb, 2), (0, 0, 2, 5));
        assert_eq!(leaf(0x1f, 1), (2, 4, 0x201, 5));
        assert_eq!(leaf(0x1f, 2), (3, 8, 0x502, 5));
        assert_eq!(leaf(4, 1).0 >> 26, 3, "core ids in a socket, minus 1");
        assert_eq!(
            leaf(4, 1).0 >> 14 & 0xfff,
            3,
            "a last-level cache for each die"
        );
    }

    #[test]
    fn invalid_topology_shape_is_an_error() {
        for bad in [
            "cores",
            "cores=0",
            "nodes=2",
            "cores=x",
            "sockets=256,cores=256",
        ] {
            assert!(bad.parse::<Topology>().is_err(), "{bad}");
        }
    }
}
