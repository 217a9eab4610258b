//! The last readings: the screens show the difference of two of them.

use std::collections::VecDeque;
use std::sync::Arc;

use virtlens_model::judge::interval::{Interval, is_same};
use virtlens_model::snapshot::{Snapshot, Vm};

/// Limit on the kept readings, as the sum of their VMs; at least two readings are kept.
pub(super) const MAX_VMS: usize = 6000;

/// Limit on the kept readings: two minutes at one reading per second.
const MAX_READINGS: usize = 120;

/// The last readings, oldest first.
#[derive(Debug, Default)]
pub struct History {
    readings: VecDeque<Arc<Snapshot>>,
}

impl History {
    /// Removes all readings.
    pub fn clear(&mut self) {
        self.readings.clear();
    }

    /// Adds a reading. A failed one, which repeats the VMs of the last one, is dropped.
    pub fn add(&mut self, reading: Arc<Snapshot>) {
        let last = self.readings.back();
        if last.is_some_and(|last| last.clock_ns == reading.clock_ns) {
            self.readings.pop_back();
        }
        self.readings.push_back(reading);
        while self.readings.len() > MAX_READINGS || self.readings.len() > 2 && self.vms() > MAX_VMS
        {
            self.readings.pop_front();
        }
    }

    /// Number of intervals between readings.
    pub fn len(&self) -> usize {
        self.readings.len().saturating_sub(1)
    }

    /// Whether there is nothing to show yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The reading `back` readings before the newest.
    pub fn at(&self, back: usize) -> Option<&Arc<Snapshot>> {
        let newest = self.readings.len().checked_sub(1)?;
        self.readings.get(newest.checked_sub(back)?)
    }

    /// A VM's usage in the interval that ends `back` readings before the newest; `None`
    /// if a reading at either end does not contain the VM.
    pub fn over(&self, name: &str, back: usize) -> Option<Interval<'_>> {
        let (before, now) = (self.at(back + 1)?, self.at(back)?);
        let vm = find(now, name)?;
        let then = find(before, name).filter(|then| is_same(then, vm))?;
        let length_ns = now.clock_ns.saturating_sub(before.clock_ns);
        Some(Interval::between(then, vm, length_ns))
    }

    /// A value of a VM in each interval up to the reading `back` readings before the
    /// newest, oldest first; at most `count`.
    pub fn series(
        &self,
        name: &str,
        back: usize,
        count: usize,
        value: impl Fn(&Interval) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let oldest = self.len().min(back + count);
        let times = (back..oldest).rev();
        times
            .map(|back| self.over(name, back).and_then(|over| value(&over)))
            .collect()
    }

    fn vms(&self) -> usize {
        self.readings.iter().map(|reading| reading.vms.len()).sum()
    }
}

/// The VM of this name.
pub fn find<'s>(reading: &'s Snapshot, name: &str) -> Option<&'s Vm> {
    reading.vms.iter().find(|vm| *vm.vm == *name)
}
