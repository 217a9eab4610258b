//! Caches the verdicts on earlier requests for a limited time.
//!
//! The cache holds no secrets. It stores tags, which are keyed with a key that only this
//! process has, so neither the tags nor the time to compare them reveals anything.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::SystemRandom;

/// Limit on the cached tags of each verdict: enough for a few clients with changing
/// secrets.
pub(super) const MAX_REMEMBERED: usize = 128;

/// Tag of a request.
pub(super) type Tag = [u8; 32];

/// Tags and the time of each by verdict, latest first.
type Verdicts<V> = Vec<(V, VecDeque<(Tag, Instant)>)>;

/// A cache with separate space for each verdict, so that wrong requests cannot evict a
/// right one.
pub(super) struct VerdictCache<V> {
    key: hmac::Key,
    verdicts: Mutex<Verdicts<V>>,
}

impl<V: Copy + PartialEq> VerdictCache<V> {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self {
            key: key.expect("the kernel has random numbers"),
            verdicts: Mutex::default(),
        }
    }

    /// Returns the tag of these parts in this order.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Returns the cached verdict, unless it is older than the `lifetime` of its kind.
    pub(super) fn recall(&self, tag: &Tag, lifetime: impl Fn(V) -> Duration) -> Option<V> {
        let verdicts = self.lock();
        verdicts.iter().find_map(|(verdict, tags)| {
            let fresh =
                |(one, at): &&(Tag, Instant)| one == tag && at.elapsed() < lifetime(*verdict);
            tags.iter().find(fresh).map(|_| *verdict)
        })
    }

    /// Caches a verdict.
    #[expect(clippy::indexing_slicing, reason = "the index was just found")]
    pub(super) fn remember(&self, tag: Tag, verdict: V) {
        let mut verdicts = self.lock();
        // An earlier verdict on the same request is replaced.
        for (_, tags) in verdicts.iter_mut() {
            tags.retain(|(one, _)| *one != tag);
        }
        let index = verdicts.iter().position(|(one, _)| *one == verdict);
        let index = index.unwrap_or_else(|| {
            verdicts.push((verdict, VecDeque::new()));
            verdicts.len() - 1
        });
        let tags = &mut verdicts[index].1;
        tags.truncate(MAX_REMEMBERED - 1);
        tags.push_front((tag, Instant::now()));
    }

    fn lock(&self) -> MutexGuard<'_, Verdicts<V>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, MAX_REMEMBERED, VerdictCache};

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn negative_verdicts_do_not_evict_positive_ones() {
        let cache = VerdictCache::new();
        let tag = |number: usize| cache.tag(&[&number.to_le_bytes()]);
        let recall = |number| cache.recall(&tag(number), |_| LONG);
        cache.remember(tag(0), true);
        (1..=2 * MAX_REMEMBERED).for_each(|number| cache.remember(tag(number), false));
        assert_eq!(recall(0), Some(true));
        assert_eq!(recall(1), None);
        assert_eq!(recall(2 * MAX_REMEMBERED), Some(false));
    }

    #[test]
    fn expired_verdict_is_not_returned() {
        let cache = VerdictCache::new();
        let tag = cache.tag(&[b"token"]);
        cache.remember(tag, true);
        let lifetime = |right| if right { Duration::ZERO } else { LONG };
        assert_eq!(cache.recall(&tag, lifetime), None);
        cache.remember(tag, false);
        assert_eq!(cache.recall(&tag, lifetime), Some(false));
    }

    #[test]
    fn tags_of_different_parts_differ() {
        let cache = VerdictCache::<bool>::new();
        assert_ne!(cache.tag(&[b"a", b"bc"]), cache.tag(&[b"ab", b"c"]));
        assert_ne!(cache.tag(&[b"a"]), VerdictCache::<bool>::new().tag(&[b"a"]));
    }
}
