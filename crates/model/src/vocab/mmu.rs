//! KVM's page tables of a VM.

use serde::{Deserialize, Serialize};

/// Guest memory that KVM's page tables map, by the size of the page, bytes. Memory that the
/// guest never touched is not mapped. With nested virtualization KVM also counts the page
/// tables of nested guests, so the sum can exceed the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Mapped {
    /// In pages of 4 KiB (`pages_4k`).
    #[serde(rename = "4k")]
    pub by_4k: u64,
    /// In pages of 2 MiB (`pages_2m`).
    #[serde(rename = "2m")]
    pub by_2m: u64,
    /// In pages of 1 GiB (`pages_1g`).
    #[serde(rename = "1g")]
    pub by_1g: u64,
}

impl Mapped {
    /// From KVM's numbers of entries for 4 KiB, 2 MiB and 1 GiB.
    pub fn of_pages([small, large, huge]: [u64; 3]) -> Self {
        Self {
            by_4k: small.saturating_mul(4 << 10),
            by_2m: large.saturating_mul(2 << 20),
            by_1g: huge.saturating_mul(1 << 30),
        }
    }

    /// Size of a page and the bytes that are mapped by it.
    pub fn by_size(&self) -> [(&'static str, u64); 3] {
        [("4k", self.by_4k), ("2m", self.by_2m), ("1g", self.by_1g)]
    }
}

/// KVM's counts of the page tables of a VM (`struct kvm_vm_stat`,
/// `arch/x86/include/asm/kvm_host.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Mmu {
    /// Mapped guest memory; `None` before v5.15.
    pub mapped_bytes: Option<Mapped>,
    /// Huge pages that are split into small ones now, because the guest executes code in
    /// them and the CPU has the bug "iTLB multihit" (`nx_lpage_splits`).
    pub nx_splits: u64,
    /// How often KVM interrupted running vCPUs to flush the TLBs of all vCPUs
    /// (`remote_tlb_flush`).
    pub tlb_flushes: u64,
}
