//! CPUID as VMMs fill it, from their sources: QEMU 7.2 (target/i386/cpu.c), Cloud
//! Hypervisor v53 (`arch/src/x86_64/mod.rs`), Firecracker (cpuid/normalize.rs),
//! Dragonball (`dbs_arch`, cpuid/transformer).

use crate::vocab::topology::guest::{CpuidEntry, bits};

pub(super) const INTEL: &[u8; 12] = b"GenuineIntel";
pub(super) const AMD: &[u8; 12] = b"AuthenticAMD";
pub(super) const HTT: u32 = 1 << 28;
pub(super) const TOPOEXT: u32 = 1 << 22;
/// The APIC id in EDX and similar registers: that of the queried vCPU. It must have no
/// effect.
pub(super) const ASKED: u32 = 3;

pub(super) fn leaf(function: u32, index: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> CpuidEntry {
    CpuidEntry {
        function,
        index,
        eax,
        ebx,
        ecx,
        edx,
    }
}

pub(super) fn vendor(name: &[u8; 12], highest: u32) -> CpuidEntry {
    let word = |at: usize| u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]);
    leaf(0, 0, [highest, word(0), word(8), word(4)])
}

/// A leaf like 0xB: (type, shift, processors) of each level, then the terminator.
pub(super) fn levels(function: u32, levels: &[(u32, u32, u32)]) -> Vec<CpuidEntry> {
    (0..)
        .zip(levels.iter().chain([&(0, 0, 0)]))
        .map(|(index, (kind, shift, count))| {
            leaf(function, index, [*shift, *count, kind << 8 | index, ASKED])
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Smp {
    pub(super) sockets: u32,
    pub(super) dies: u32,
    pub(super) cores: u32,
    pub(super) threads: u32,
}

impl Smp {
    pub(super) fn new(sockets: u32, dies: u32, cores: u32, threads: u32) -> Self {
        Self {
            sockets,
            dies,
            cores,
            threads,
        }
    }

    pub(super) fn per_socket(self) -> u32 {
        self.dies * self.cores * self.threads
    }

    pub(super) fn die_shift(self) -> u32 {
        bits(self.threads) + bits(self.cores)
    }

    pub(super) fn socket_shift(self) -> u32 {
        self.die_shift() + bits(self.dies)
    }

    /// Command-line index to APIC id (`x86_apicid_from_cpu_idx`).
    pub(super) fn apic_id(self, index: u32) -> u32 {
        let socket = index / self.per_socket();
        let die = index / (self.cores * self.threads) % self.dies;
        let core = index / self.threads % self.cores;
        let core = core << bits(self.threads) | (index % self.threads);
        socket << self.socket_shift() | die << self.die_shift() | core
    }

    pub(super) fn apic_ids(self) -> Vec<u32> {
        (0..self.sockets * self.per_socket())
            .map(|index| self.apic_id(index))
            .collect()
    }
}

/// QEMU 7.2, as an Intel or an AMD CPU.
pub(super) fn qemu(smp: Smp, name: &[u8; 12]) -> Vec<CpuidEntry> {
    let logical = smp.per_socket();
    let (count, htt) = if logical > 1 {
        (logical << 16, HTT)
    } else {
        (0, 0)
    };
    let mut entries = vec![
        vendor(name, 0x1f),
        leaf(1, 0, [0x906ea, ASKED << 24 | count | 8 << 8, 0, htt]),
        leaf(4, 0, [(smp.cores - 1) << 26 | 1 << 5 | 1, 0, 0, 0]),
        leaf(4, 1, [(smp.cores - 1) << 26 | 3 << 5 | 3, 0, 0, 0]),
        leaf(4, 2, [0; 4]),
    ];
    let (smt, core) = (bits(smp.threads), smp.socket_shift());
    entries.extend(levels(0xb, &[(1, smt, smp.threads), (2, core, logical)]));
    if smp.dies > 1 {
        let die = (2, smp.die_shift(), smp.cores * smp.threads);
        let v2 = [(1, smt, smp.threads), die, (5, core, logical)];
        entries.extend(levels(0x1f, &v2));
    }
    if name == AMD {
        let sizes = if logical > 1 {
            core << 12 | (logical - 1)
        } else {
            0
        };
        entries.extend([
            leaf(0x8000_0000, 0, [0x8000_001e, 0, 0, 0]),
            leaf(0x8000_0001, 0, [0, 0, TOPOEXT | 2, 0]),
            leaf(0x8000_0008, 0, [0x3028, 0, sizes, 0]),
            leaf(
                0x8000_001e,
                0,
                [ASKED, (smp.threads - 1) << 8 | ASKED >> smt, 0, 0],
            ),
        ]);
    }
    entries
}

/// Cloud Hypervisor: 0xB and 0x1F for all vendors, with a die level in 0x1F; on AMD the
/// APIC id in place of the core number.
pub(super) fn cloud_hypervisor(name: &[u8; 12], smp: Smp) -> Vec<CpuidEntry> {
    let (smt, die, socket) = (bits(smp.threads), smp.die_shift(), smp.socket_shift());
    let logical = smp.per_socket();
    let in_die = smp.cores * smp.threads;
    let mut entries = vec![
        vendor(name, 0x1f),
        leaf(1, 0, [0, ASKED << 24 | logical << 16, 0, HTT]),
    ];
    entries.extend(levels(0xb, &[(1, smt, smp.threads), (2, socket, logical)]));
    let v2 = [
        (1, smt, smp.threads),
        (2, die, in_die),
        (5, socket, logical),
    ];
    entries.extend(levels(0x1f, &v2));
    if name == AMD {
        entries.extend([
            leaf(0x8000_0001, 0, [0, 0, TOPOEXT, 0]),
            leaf(0x8000_0008, 0, [0, 0, socket << 12 | (logical - 1), 0]),
            leaf(
                0x8000_001e,
                0,
                [ASKED, (smp.threads - 1) << 8 | ASKED, 0, 0],
            ),
        ]);
    }
    entries
}

/// Firecracker: one package with an APIC id range of 32 vCPUs, regardless of their
/// number.
pub(super) fn firecracker(vcpus: u32, smt: bool) -> Vec<CpuidEntry> {
    let threads = 1 + u32::from(smt);
    let mut entries = vec![
        vendor(INTEL, 0x16),
        leaf(1, 0, [0, vcpus << 16, 0, HTT]),
        leaf(4, 0, [(vcpus - 1) << 26 | 1, 0, 0, 0]),
    ];
    entries.extend(levels(0xb, &[(1, bits(threads), threads), (2, 5, vcpus)]));
    entries
}
