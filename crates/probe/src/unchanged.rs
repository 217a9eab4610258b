//! Facts of a map that are read again only if a program changed it: the map `changes`
//! (`enum change` in `bpf/map_abi.h`).

use zerocopy::IntoBytes as _;

use crate::Error;
use crate::maps::Maps;

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
    /// Returns the facts of the last reading if they were recycled and no program has
    /// counted a change under `kind` since. Otherwise calls `read`.
    ///
    /// # Errors
    /// Those of `read`; the maps are then read again.
    pub(crate) fn or_read(
        &mut self,
        maps: &Maps,
        kind: u32,
        read: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Before the maps, so that a change meanwhile is seen by the next reading. `None`
        // if it cannot be read: the maps are then read each time.
        self.as_of(maps.sum("changes", kind.as_bytes()), read)
    }

    fn as_of(
        &mut self,
        changes: Option<u64>,
        read: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let recycled = self.recycled.take();
        if let Some(facts) = recycled.filter(|_| self.as_of.is_some() && self.as_of == changes) {
            return Ok(facts);
        }
        self.as_of = None;
        let facts = read()?;
        self.as_of = changes;
        Ok(facts)
    }

    /// This agent changes the maps, which no program counts.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Stores the facts of the last reading.
    pub(crate) fn recycle(&mut self, facts: T) {
        self.recycled = Some(facts);
    }
}

#[cfg(test)]
mod tests {
    use super::Unchanged;
    use crate::Error;

    /// Whether the recycled facts are returned as of `changes`; false if the maps are read.
    fn taken(facts: &mut Unchanged<bool>, changes: Option<u64>) -> bool {
        facts
            .as_of(changes, || Ok(false))
            .expect("they can be read")
    }

    #[test]
    fn recycled_facts_are_returned_once_and_only_without_changes() {
        let mut facts = Unchanged::default();
        assert!(!taken(&mut facts, Some(0)), "nothing was read");
        assert!(!taken(&mut facts, Some(0)), "nothing was recycled");
        facts.recycle(true);
        assert!(taken(&mut facts, Some(0)));
        assert!(!taken(&mut facts, Some(0)), "they are in use");
        facts.recycle(true);
        assert!(!taken(&mut facts, Some(1)), "a program changed the map");
    }

    #[test]
    fn facts_are_read_again_if_changes_are_unknown() {
        let mut facts = Unchanged::default();
        assert!(!taken(&mut facts, None));
        facts.recycle(true);
        assert!(!taken(&mut facts, None));
    }

    #[test]
    fn facts_from_before_a_change_by_the_agent_are_not_returned() {
        let mut facts = Unchanged::default();
        assert!(!taken(&mut facts, Some(0)));
        facts.forget();
        facts.recycle(true);
        assert!(!taken(&mut facts, Some(0)));
    }

    #[test]
    fn facts_are_read_again_after_a_failure() {
        let mut facts = Unchanged::default();
        assert!(!taken(&mut facts, Some(0)));
        let fails = || Err(Error::Stream(std::io::Error::other("test")));
        assert!(facts.as_of(Some(1), fails).is_err());
        facts.recycle(true);
        assert!(!taken(&mut facts, Some(0)));
    }
}
