//! Checks passwords against bcrypt hashes.
//!
//! A check is slow by design, some 50 ms and more. So only one runs at a time, on a
//! separate thread; its result is cached; and the number of waiting checks is limited,
//! with a lower limit for each client address. A password in the cache bypasses the
//! queue.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::queue::Queue;
use crate::http::verdict_cache::{Tag, VerdictCache};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The user's password.
    Right,
    /// A wrong password or an unknown user.
    Wrong,
    /// Too many checks are waiting.
    Busy,
}

/// Checks passwords and caches the results.
pub(super) struct Passwords {
    cache: VerdictCache<Verdict>,
    queue: Queue,
}

impl Passwords {
    pub(super) fn new() -> Self {
        Self {
            cache: VerdictCache::new(),
            queue: Queue::new(1),
        }
    }

    /// Checks a user's password for a client at `peer`.
    pub(super) async fn check(
        &self,
        users: &BTreeMap<String, String>,
        peer: IpAddr,
        user: &str,
        password: &[u8],
    ) -> Verdict {
        // For an unknown user another user's hash is checked, so that the response time
        // does not reveal which users exist.
        let known = users.get(user);
        let Some(hash) = known.or_else(|| users.values().next()).cloned() else {
            return Verdict::Wrong;
        };
        let tag = self.tag(known.is_some(), user, &hash, password);
        if let Some(verdict) = self.recall(&tag) {
            return verdict;
        }
        let Some(waiting) = self.queue.wait(peer) else {
            return Verdict::Busy;
        };
        let Some(permit) = waiting.permit().await else {
            return Verdict::Busy;
        };
        // Another request with the same credentials may have been checked meanwhile.
        if let Some(verdict) = self.recall(&tag) {
            return verdict;
        }
        let password = password.to_owned();
        let check = tokio::task::spawn_blocking(move || {
            let matches = bcrypt::verify(password, &hash).unwrap_or(false);
            // Held until the check ends, even if the client has disconnected.
            drop(permit);
            matches
        });
        let right = check.await.unwrap_or(false) && known.is_some();
        let verdict = if right {
            Verdict::Right
        } else {
            Verdict::Wrong
        };
        self.cache.remember(tag, verdict);
        verdict
    }

    /// Cache key of a user, a hash and a password.
    fn tag(&self, known: bool, user: &str, hash: &str, password: &[u8]) -> Tag {
        let parts = [
            &[u8::from(known)],
            user.as_bytes(),
            hash.as_bytes(),
            password,
        ];
        self.cache.tag(&parts)
    }

    /// Results do not expire, because the hash is part of the tag.
    fn recall(&self, tag: &Tag) -> Option<Verdict> {
        self.cache.recall(tag, |_| Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::queue::MAX_WAITING_OF_ONE;
    use super::{BTreeMap, IpAddr, Passwords, Verdict};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn users() -> BTreeMap<String, String> {
        let hash = bcrypt::hash("secret", 4).expect("a hash");
        [("prom".to_owned(), hash)].into()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn only_own_password_of_user_is_accepted() {
        block_on(async {
            let (passwords, users) = (Passwords::new(), users());
            for (user, password, verdict) in [
                ("prom", "secret", Verdict::Right),
                ("prom", "Secret", Verdict::Wrong),
                ("prom", "", Verdict::Wrong),
                ("", "secret", Verdict::Wrong),
                // An unknown user is checked against prom's hash.
                ("nobody", "secret", Verdict::Wrong),
            ] {
                for time in ["first", "second"] {
                    let said = passwords
                        .check(&users, HERE, user, password.as_bytes())
                        .await;
                    assert_eq!(said, verdict, "{user}:{password}, {time} time");
                }
            }
        });
    }

    #[test]
    fn changed_hash_invalidates_old_password() {
        block_on(async {
            let (passwords, mut users) = (Passwords::new(), users());
            let ask = async |users: &_| passwords.check(users, HERE, "prom", b"secret").await;
            assert_eq!(ask(&users).await, Verdict::Right);
            users.insert("prom".to_owned(), bcrypt::hash("other", 4).expect("a hash"));
            assert_eq!(ask(&users).await, Verdict::Wrong);
        });
    }

    #[test]
    fn password_flood_of_one_client_does_not_block_another() {
        block_on(async {
            let (passwords, users) = (Passwords::new(), users());
            assert_eq!(
                passwords.check(&users, HERE, "prom", b"secret").await,
                Verdict::Right
            );
            let permit = passwords.queue.permits.acquire().await.expect("free");
            let guesses: Vec<_> = (0..MAX_WAITING_OF_ONE)
                .map(|_| passwords.queue.wait(HERE).expect("a place"))
                .collect();
            let guess = passwords.check(&users, HERE, "prom", b"guess").await;
            assert_eq!(guess, Verdict::Busy);
            // A cached password bypasses the queue, whatever its client address.
            let known = passwords.check(&users, HERE, "prom", b"secret").await;
            assert_eq!(known, Verdict::Right);
            assert!(passwords.queue.wait(THERE).is_some(), "another may wait");
            drop(guesses);
            drop(permit);
            let guess = passwords.check(&users, HERE, "prom", b"guess").await;
            assert_eq!(guess, Verdict::Wrong);
        });
    }
}
