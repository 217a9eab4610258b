//! Prefetches the memory of the next VM while one is accounted.

use std::collections::btree_map::Values;
use std::slice::Iter;

use crate::account::level_moves::Charged;
use crate::account::vcpu::VcpuMeter;
use crate::facts::ThreadFact;
use crate::fleet::buffers::Buffers;
use crate::fleet::member::Member;
use crate::prefetch::{prefetch, prefetch_slice};
use crate::snapshot::{Thread, Vcpu};

/// The memory of the next VM that is not prefetched yet. It is prefetched in portions, because the
/// CPU waits if too many prefetches follow each other.
#[derive(Debug, Default)]
pub(super) struct Ahead<'a> {
    facts: Iter<'a, ThreadFact>,
    charged: Iter<'a, Charged>,
    meters: Values<'a, u32, VcpuMeter>,
    shown_threads: Iter<'a, Thread>,
    shown_vcpus: Iter<'a, Vcpu>,
}

impl<'a> Ahead<'a> {
    /// The next VM, whose member was prefetched, with the facts about its threads and the memory
    /// of its former reading.
    pub(super) fn of(
        member: Option<&'a Member>,
        facts: &'a [ThreadFact],
        buffers: Option<&'a Buffers>,
    ) -> Self {
        let Some((member, buffers)) = member.zip(buffers) else {
            return Self::default();
        };
        prefetch_slice(&buffers.roles);
        prefetch_slice(member.levels.all());
        Self {
            facts: facts.iter(),
            charged: member.charged.threads(),
            meters: member.ledger.vcpus.values(),
            shown_threads: buffers.threads.iter(),
            shown_vcpus: buffers.vcpus.iter(),
        }
    }

    /// Prefetches the next thread.
    #[inline]
    pub(super) fn thread(&mut self) {
        prefetch(self.facts.next());
        prefetch(self.charged.next());
        prefetch(self.shown_threads.next());
    }

    /// Prefetches the next vCPU.
    #[inline]
    pub(super) fn vcpu(&mut self) {
        prefetch(self.meters.next());
        prefetch(self.shown_vcpus.next());
    }
}
