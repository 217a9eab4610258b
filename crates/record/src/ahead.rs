//! Prefetches the memory of the next VM while one is recorded.

use std::slice::Iter;

use virtlens_model::prefetch::{prefetch, prefetch_slice};
use virtlens_model::snapshot::{Thread, Vcpu, Vm};

use crate::flat::Flat;

/// The memory of the next VM that is not prefetched yet. It is prefetched in portions, because the
/// CPU waits if too many prefetches follow each other.
#[derive(Debug, Default)]
pub(crate) struct NextVm<'a> {
    vcpus: Iter<'a, Vcpu>,
    threads: Iter<'a, Thread>,
}

impl<'a> NextVm<'a> {
    /// The VM at a place, which was prefetched. Prefetches the two behind it.
    pub(crate) fn of(vms: &'a [Vm], at: usize) -> Self {
        prefetch(vms.get(at + 2));
        let topology = vms.get(at + 1).and_then(|vm| vm.topology.as_deref());
        prefetch(topology);
        let Some(vm) = vms.get(at) else {
            return Self::default();
        };
        prefetch_slice(&vm.roles);
        prefetch_slice(&vm.quota);
        prefetch_slice(&vm.limits);
        if let Some(topology) = &vm.topology {
            prefetch_slice(&topology.interrupts);
        }
        Self {
            vcpus: vm.vcpus.iter(),
            threads: vm.threads.iter(),
        }
    }

    /// Prefetches the next vCPU.
    #[inline]
    pub(crate) fn vcpu(&mut self) {
        prefetch(self.vcpus.next());
    }

    /// Prefetches the next thread.
    #[inline]
    pub(crate) fn thread(&mut self) {
        prefetch(self.threads.next());
    }
}

/// The next VM's value, as far as it is not prefetched yet.
#[derive(Debug, Default)]
pub(crate) struct NextFlat<'a> {
    cells: &'a [u64],
    watched: &'a [u8],
    means: &'a [i64],
}

/// Means for each chunk of cells that are prefetched with it. Fewer cells are watched.
const MEANS: usize = 16;

impl<'a> NextFlat<'a> {
    pub(crate) fn of(flat: Option<&'a Flat>) -> Self {
        flat.map_or_else(Self::default, |flat| Self {
            cells: &flat.cells,
            watched: &flat.watched,
            means: &flat.means,
        })
    }

    /// Prefetches the next cells, and what belongs to them.
    #[inline]
    pub(crate) fn chunk(&mut self, cells: usize) {
        prefetch_slice(take(&mut self.cells, cells));
        prefetch_slice(take(&mut self.watched, cells));
        prefetch_slice(take(&mut self.means, MEANS));
    }
}

/// Takes at most this many values from the start.
#[inline]
fn take<'a, T>(values: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, rest) = values.split_at_checked(count).unwrap_or((values, &[]));
    *values = rest;
    taken
}
