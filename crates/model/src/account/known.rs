//! Counters that a host or an agent may not track.

use serde::{Deserialize, Serialize};

/// Counters that are absent until they are first read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<T>", into = "Option<T>")]
#[serde(bound(serialize = "T: Clone + Serialize"))]
pub struct Known<T> {
    counters: Option<T>,
    /// Whether this agent has read them, not only a previous one.
    is_read: bool,
}

impl<T> Known<T> {
    /// The counters, if this agent has read them.
    pub fn get(&self) -> Option<&T> {
        self.counters.as_ref().filter(|_| self.is_read)
    }

    /// The counters, if this or a previous agent has read them.
    pub fn any(&self) -> Option<&T> {
        self.counters.as_ref()
    }

    /// Changes the counters, if this or a previous agent has read them.
    pub fn change(&mut self, change: impl FnOnce(&mut T)) {
        if let Some(counters) = &mut self.counters {
            change(counters);
        }
    }
}

impl<T: Default> Known<T> {
    /// The counters, marked as read by this agent.
    pub fn now(&mut self) -> &mut T {
        self.is_read = true;
        self.counters.get_or_insert_default()
    }
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self::from(None)
    }
}

impl<T> From<Option<T>> for Known<T> {
    fn from(counters: Option<T>) -> Self {
        Self {
            counters,
            is_read: false,
        }
    }
}

impl<T> From<Known<T>> for Option<T> {
    fn from(known: Known<T>) -> Self {
        known.counters
    }
}

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn value_of_previous_agent_is_absent_until_read() {
        let mut counters = Known::from(Some(5));
        counters.change(|count| *count += 1);
        assert_eq!(counters.get(), None);
        *counters.now() += 1;
        assert_eq!(counters.get(), Some(&7));
        assert_eq!(Option::from(counters), Some(7));
    }
}
