//! The handover: state of each VM that the agent leaves for the next agent, opaque bytes on
//! pages of the pinned map `book`.
//!
//! An agent may be killed between any two pages. So a new edition is written next to the
//! old one, its first page last, and only then is the old one deleted. A reader uses the
//! newest complete edition.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_abi as abi;
use virtlens_model::vocab::VmKey;
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::Error;
use crate::maps::Maps;
use crate::sys::map::Batch;

/// Maximum number of pages per VM, about 250 KiB: the CPU time of 64 vCPUs on each of 128
/// pCPUs.
const MAX_PAGES: usize = 256;

/// The map. An agent finds the handover of a former agent by this name.
const MAP: &str = "book";

/// The editions that this agent has written or found.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Editions of each VM that may have pages in the map, the newest last. An edition is
    /// removed only after its pages are deleted.
    editions: FxHashMap<VmKey, Vec<Edition>>,
    /// Number of VMs that did not fit.
    lost: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edition {
    number: u32,
    pages: u32,
}

impl Handover {
    /// Reads the state of each VM that a former agent left. Deletes incomplete editions.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<Vec<(VmKey, Vec<u8>)>, Error> {
        let mut pages = Pages::new();
        let mut batch = Batch::<abi::map::HandoverKey, abi::map::HandoverPage>::default();
        maps.each(MAP, &mut batch, |key, page| {
            pages
                .entry(vm_of(key))
                .or_default()
                .entry(key.edition)
                .or_default()
                .insert(key.page, *page);
        })?;
        let mut kept = Vec::with_capacity(pages.len());
        for (vm, editions) in pages {
            let newest = editions.iter().rev().find_map(|(number, pages)| {
                let edition = Edition {
                    number: *number,
                    pages: count(pages.len()),
                };
                Some((edition, whole(pages)?))
            });
            for (number, pages) in &editions {
                if newest
                    .as_ref()
                    .is_none_or(|(newest, _)| newest.number != *number)
                {
                    for page in pages.keys() {
                        maps.delete(MAP, key(vm, *number, *page).as_bytes())?;
                    }
                }
            }
            if let Some((edition, bytes)) = newest {
                self.editions.insert(vm, vec![edition]);
                kept.push((vm, bytes));
            }
        }
        Ok(kept)
    }

    /// Stores `bytes` of `vm` in place of its former state. If the map is full, the state
    /// is deleted and the loss counted, because outdated state would be wrong.
    ///
    /// [`Error::Map`]: to be retried. Until then no state is stored, or the former state.
    pub(crate) fn write(&mut self, maps: &Maps, vm: VmKey, bytes: &[u8]) -> Result<(), Error> {
        let chunks: Vec<&[u8]> = bytes.chunks(abi::map::HANDOVER_PAGE_LEN).collect();
        let editions = self.editions.entry(vm).or_default();
        let edition = Edition {
            number: editions.last().map_or(0, |one| one.number.wrapping_add(1)),
            pages: count(chunks.len()),
        };
        let written = if chunks.len() > MAX_PAGES {
            Err(Maps::is_full(MAP))
        } else {
            editions.push(edition);
            let mut pages = (0u32..).zip(chunks).collect::<Vec<_>>().into_iter().rev();
            pages.try_for_each(|(at, chunk)| {
                let key = key(vm, edition.number, at);
                maps.update(MAP, key.as_bytes(), page(edition, chunk).as_bytes())
            })
        };
        let Err(error) = written else {
            return self.keep_only(maps, vm, Some(edition));
        };
        tracing::debug!(pid = vm.tgid, %error, "cannot write a VM to the handover map");
        if error.is_full() {
            self.lost += 1;
            return self.keep_only(maps, vm, None);
        }
        self.keep_only(maps, vm, None).and(Err(error))
    }

    /// Deletes all editions of a VM but one.
    fn keep_only(&mut self, maps: &Maps, vm: VmKey, kept: Option<Edition>) -> Result<(), Error> {
        let Some(editions) = self.editions.get_mut(&vm) else {
            return Ok(());
        };
        let is_kept = |one: &Edition| Some(*one) == kept;
        while let Some(old) = editions.iter().copied().find(|one| !is_kept(one)) {
            delete(maps, vm, old)?;
            editions.retain(|one| *one != old);
        }
        if editions.is_empty() {
            self.editions.remove(&vm);
        }
        Ok(())
    }

    /// Removes the state of former VMs.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        gone.iter()
            .try_for_each(|vm| self.keep_only(maps, *vm, None))
    }

    /// Returns the VMs that have stored state.
    pub(crate) fn vms(&self) -> impl Iterator<Item = VmKey> {
        self.editions.keys().copied()
    }

    /// Number of pages in use.
    pub(crate) fn pages(&self) -> u64 {
        let editions = self.editions.values().flatten();
        editions.map(|one| u64::from(one.pages)).sum()
    }

    /// Number of times that a VM did not fit.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

/// Pages by VM, edition and number.
type Pages = BTreeMap<VmKey, BTreeMap<u32, BTreeMap<u32, abi::map::HandoverPage>>>;

/// Returns the bytes of an edition if it is complete.
fn whole(pages: &BTreeMap<u32, abi::map::HandoverPage>) -> Option<Vec<u8>> {
    let first = pages.get(&0)?;
    if pages.len() != first.pages as usize {
        return None;
    }
    let mut bytes = Vec::new();
    for (expected, (number, page)) in (0u32..).zip(pages) {
        if *number != expected {
            return None;
        }
        bytes.extend_from_slice(page.bytes.get(..page.len as usize)?);
    }
    Some(bytes)
}

fn page(edition: Edition, chunk: &[u8]) -> abi::map::HandoverPage {
    let mut page = abi::map::HandoverPage::new_zeroed();
    page.pages = edition.pages;
    page.len = count(chunk.len());
    for (to, from) in page.bytes.iter_mut().zip(chunk) {
        *to = *from;
    }
    page
}

/// Deletes the first page first: without it the edition is incomplete.
fn delete(maps: &Maps, vm: VmKey, edition: Edition) -> Result<(), Error> {
    (0..edition.pages)
        .map(|page| key(vm, edition.number, page))
        .try_for_each(|key| maps.delete(MAP, key.as_bytes()))
}

fn key(vm: VmKey, edition: u32, page: u32) -> abi::map::HandoverKey {
    abi::map::HandoverKey {
        start_ns: vm.start_ns,
        tgid: vm.tgid,
        edition,
        page,
        pad: 0,
    }
}

fn vm_of(key: &abi::map::HandoverKey) -> VmKey {
    VmKey {
        start_ns: key.start_ns,
        tgid: key.tgid,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use virtlens_abi as abi;

    use super::{Edition, page, whole};

    #[test]
    fn only_an_edition_with_all_its_pages_is_read() {
        let text: Vec<u8> = (0..=255u8).cycle().take(2500).collect();
        let edition = Edition {
            number: 3,
            pages: 3,
        };
        let chunks = text.chunks(abi::map::HANDOVER_PAGE_LEN);
        let pages: BTreeMap<u32, _> = (0u32..)
            .zip(chunks.map(|chunk| page(edition, chunk)))
            .collect();
        assert_eq!(whole(&pages), Some(text));
        for missing in 0..3 {
            let mut torn = pages.clone();
            torn.remove(&missing);
            assert_eq!(whole(&torn), None, "without page {missing}");
        }
        let mut odd = pages.clone();
        odd.get_mut(&1).expect("there are three").len = u32::MAX;
        assert_eq!(whole(&odd), None, "a length beyond the page");
    }
}
