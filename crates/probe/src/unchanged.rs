//! Facts of a map that are read again only if a program changed it: the map `changes`
//! (`enum change` in `bpf/map_abi.h`).

use zerocopy::IntoBytes as _;

use crate::maps::Maps;

/// Number of changes of the maps counted under `kind`; `None` if it cannot be read, and the
/// maps are then read each time. Read it before the maps: a change meanwhile is then read
/// again by the next reading.
pub(crate) fn changes(maps: &Maps, kind: u32) -> Option<u64> {
    maps.sum("changes", kind.as_bytes())
}

/// The facts of the last reading, once they are recycled.
#[derive(Debug)]
pub(crate) struct Unchanged<T> {
    /// Number of changes when the facts were read. `None`: the maps changed since.
    as_of: Option<u64>,
    recycled: Option<T>,
}

impl<T> Default for Unchanged<T> {
    fn default() -> Self {
        Self {
            as_of: None,
            recycled: None,
        }
    }
}

impl<T> Unchanged<T> {
    /// Returns the facts of the last reading if they were recycled and are those of
    /// `changes`.
    pub(crate) fn take(&mut self, changes: Option<u64>) -> Option<T> {
        let recycled = self.recycled.take();
        recycled.filter(|_| self.as_of.is_some() && self.as_of == changes)
    }

    /// The maps were read after `changes`.
    pub(crate) fn set_as_of(&mut self, changes: Option<u64>) {
        self.recycled = None;
        self.as_of = changes;
    }

    /// This agent changes the maps, which no program counts.
    pub(crate) fn forget(&mut self) {
        self.set_as_of(None);
    }

    /// Stores the facts of the last reading.
    pub(crate) fn recycle(&mut self, facts: T) {
        self.recycled = Some(facts);
    }
}

#[cfg(test)]
mod tests {
    use super::Unchanged;

    #[test]
    fn recycled_facts_are_returned_once_and_only_without_changes() {
        let mut facts = Unchanged::default();
        assert_eq!(facts.take(Some(0)), None, "nothing was read");
        facts.set_as_of(Some(0));
        assert_eq!(facts.take(Some(0)), None, "nothing was recycled");
        facts.recycle("facts");
        assert_eq!(facts.take(Some(0)), Some("facts"));
        assert_eq!(facts.take(Some(0)), None, "they are in use");
        facts.recycle("facts");
        assert_eq!(facts.take(Some(1)), None, "a program changed the map");
    }

    #[test]
    fn facts_are_read_again_if_changes_are_unknown() {
        let mut facts = Unchanged::default();
        facts.set_as_of(None);
        facts.recycle("facts");
        assert_eq!(facts.take(None), None);
    }

    #[test]
    fn facts_from_before_a_change_by_the_agent_are_not_returned() {
        let mut facts = Unchanged::default();
        facts.set_as_of(Some(0));
        facts.forget();
        facts.recycle("facts");
        assert_eq!(facts.take(Some(0)), None);
    }
}
