//! Caches in which namespaces the owners of tokens may get pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::http::verdict_cache::Tag;

/// Limit on the cached tokens: enough for a few tenants with changing tokens.
const MAX_TOKENS: usize = 64;
/// Limit on the cached namespaces of a token: more than a node has pods.
const MAX_NAMESPACES: usize = 512;

/// Names of namespaces.
pub(super) type Namespaces = BTreeSet<Arc<str>>;

/// The cache, with the latest token first.
#[derive(Default)]
pub(super) struct NamespaceCache(Mutex<VecDeque<Owner>>);

struct Owner {
    tag: Tag,
    verdicts: BTreeMap<Arc<str>, (bool, Instant)>,
}

impl NamespaceCache {
    /// The `wanted` namespaces in which the owner of a token may get pods, and those whose
    /// verdict is older than `lifetime` or unknown.
    pub(super) fn recall(
        &self,
        tag: &Tag,
        wanted: &Namespaces,
        lifetime: Duration,
    ) -> (Namespaces, Namespaces) {
        let owners = self.lock();
        let owner = owners.iter().find(|owner| owner.tag == *tag);
        let verdict = |name: &Arc<str>| {
            let (may, at) = owner?.verdicts.get(name)?;
            (at.elapsed() < lifetime).then_some(*may)
        };
        let (mut visible, mut unknown) = (Namespaces::new(), Namespaces::new());
        for name in wanted {
            match verdict(name) {
                Some(true) => drop(visible.insert(Arc::clone(name))),
                Some(false) => {}
                None => drop(unknown.insert(Arc::clone(name))),
            }
        }
        (visible, unknown)
    }

    /// Caches verdicts on a token.
    pub(super) fn remember(&self, tag: Tag, verdicts: impl IntoIterator<Item = (Arc<str>, bool)>) {
        let mut owners = self.lock();
        let known = owners.iter().position(|owner| owner.tag == tag);
        let mut owner = known
            .and_then(|index| owners.remove(index))
            .unwrap_or(Owner {
                tag,
                verdicts: BTreeMap::new(),
            });
        for (name, may) in verdicts {
            if owner.verdicts.len() >= MAX_NAMESPACES {
                owner.verdicts.clear();
            }
            owner.verdicts.insert(name, (may, Instant::now()));
        }
        owners.truncate(MAX_TOKENS - 1);
        owners.push_front(owner);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Duration, MAX_NAMESPACES, MAX_TOKENS, NamespaceCache, Namespaces};

    const LONG: Duration = Duration::from_hours(1);

    fn names(names: &[&str]) -> Namespaces {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn verdicts_are_recalled_for_their_token_and_lifetime() {
        let cache = NamespaceCache::default();
        let wanted = names(&["bank", "other", "shop"]);
        let verdicts = [("shop".into(), true), ("bank".into(), false)];
        cache.remember([1; 32], verdicts);
        let recalled = |tag, lifetime| cache.recall(&[tag; 32], &wanted, lifetime);
        assert_eq!(recalled(1, LONG), (names(&["shop"]), names(&["other"])));
        assert_eq!(recalled(2, LONG), (names(&[]), wanted.clone()));
        assert_eq!(recalled(1, Duration::ZERO), (names(&[]), wanted.clone()));
        cache.remember([1; 32], [("shop".into(), false)]);
        assert_eq!(recalled(1, LONG), (names(&[]), names(&["other"])));
    }

    #[test]
    fn cache_has_bounds() {
        let cache = NamespaceCache::default();
        for tag in 0..=MAX_TOKENS {
            let tag = u8::try_from(tag).expect("it is small");
            cache.remember([tag; 32], [("shop".into(), true)]);
        }
        let shop = names(&["shop"]);
        let is_known = |tag| cache.recall(&[tag; 32], &shop, LONG).0 == shop;
        assert!(!is_known(0) && is_known(1));
        let many = (0..2 * MAX_NAMESPACES).map(|number| (number.to_string().into(), true));
        cache.remember([1; 32], many);
        let owners = cache.lock();
        assert_eq!(owners.len(), MAX_TOKENS);
        assert!(owners[0].verdicts.len() <= MAX_NAMESPACES);
    }
}
