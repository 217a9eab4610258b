//! A value that is being made flat.

use crate::flat::Token;

/// The tokens and cells of a value.
#[derive(Debug, Default)]
pub(crate) struct Flattened {
    pub(crate) tokens: Vec<Token>,
    pub(crate) cells: Vec<u64>,
    /// The vCPUs so far that have a thread, by its id.
    pub(crate) vcpus: Vec<VcpuCells>,
}

/// The place of a vCPU, some of whose numbers its thread mostly has too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VcpuCells {
    pub(crate) tid: u32,
    /// The number of its first cell.
    pub(crate) first: usize,
}

impl Flattened {
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.cells.clear();
        self.vcpus.clear();
    }

    /// Prepares to find vCPUs.
    pub(crate) fn sort_vcpus(&mut self) {
        if !self.vcpus.is_sorted_by_key(|vcpu| vcpu.tid) {
            self.vcpus.sort_unstable_by_key(|vcpu| vcpu.tid);
        }
    }

    /// The vCPU of a thread, which is probably the expected one.
    #[inline]
    pub(crate) fn vcpu_of(&self, tid: u32, expected: &mut usize) -> Option<VcpuCells> {
        let mut found = self.vcpus.get(*expected).filter(|vcpu| vcpu.tid == tid);
        if found.is_none() {
            let at = self.vcpus.binary_search_by_key(&tid, |vcpu| vcpu.tid);
            *expected = at.ok()?;
            found = self.vcpus.get(*expected);
        }
        *expected += 1;
        found.copied()
    }
}
