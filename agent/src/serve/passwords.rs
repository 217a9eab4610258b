//! Passwords against bcrypt hashes.
//!
//! A check is slow on purpose, some 50 ms and more. So one is made at a time,
//! on a thread that is there only for that; what came out is remembered; and
//! few may wait, of one address fewer. Whose password was right before passes
//! by them all.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;

/// Checks that may wait: a second's worth.
const MAX_WAITING: usize = 16;
/// Of these from one address, so that a flood of guesses leaves room for others.
const MAX_WAITING_OF_ONE: usize = 4;
/// What is remembered, of what was right and of what was wrong each: enough for
/// a few users whose password changes, and scrapers that have an old one.
const MAX_REMEMBERED: usize = 128;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the user's password.
    Right,
    /// It is not, or there is no such user.
    Wrong,
    /// Too many wait for theirs.
    Busy,
}

/// Stands for a user, a hash and a password. Made with a key that only this
/// process has, so neither it nor the time to compare it tells anything.
type Tag = [u8; 32];

/// Checks passwords and remembers what came of it.
pub(super) struct Passwords {
    key: hmac::Key,
    remembered: Mutex<Remembered>,
    waiting: Mutex<Vec<IpAddr>>,
    turn: Arc<Semaphore>,
}

#[derive(Default)]
struct Remembered {
    right: VecDeque<Tag>,
    wrong: VecDeque<Tag>,
}

impl Passwords {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self {
            key: key.expect("the kernel has random numbers"),
            remembered: Mutex::default(),
            waiting: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Whether this is the password of that user, as a client at `peer` says.
    pub(super) async fn check(
        &self,
        users: &BTreeMap<String, String>,
        peer: IpAddr,
        user: &str,
        password: &[u8],
    ) -> Verdict {
        // For a user that there is not, another's hash is worked on: the time
        // that takes does not tell who there is.
        let known = users.get(user);
        let Some(hash) = known.or_else(|| users.values().next()).cloned() else {
            return Verdict::Wrong;
        };
        let tag = self.tag(known.is_some(), user, &hash, password);
        if let Some(verdict) = self.recall(&tag) {
            return verdict;
        }
        let Some(_waiting) = self.wait(peer) else {
            return Verdict::Busy;
        };
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else {
            return Verdict::Busy;
        };
        // Who came with the same before may have had it checked meanwhile.
        if let Some(verdict) = self.recall(&tag) {
            return verdict;
        }
        let password = password.to_owned();
        let check = tokio::task::spawn_blocking(move || {
            let matches = bcrypt::verify(password, &hash).unwrap_or(false);
            // Kept to the end also when the client has gone away.
            drop(turn);
            matches
        });
        let right = check.await.unwrap_or(false) && known.is_some();
        self.remember(tag, right);
        if right {
            Verdict::Right
        } else {
            Verdict::Wrong
        }
    }

    fn tag(&self, known: bool, user: &str, hash: &str, password: &[u8]) -> Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[u8::from(known)]);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn recall(&self, tag: &Tag) -> Option<Verdict> {
        let remembered = lock(&self.remembered);
        if remembered.right.contains(tag) {
            Some(Verdict::Right)
        } else {
            remembered.wrong.contains(tag).then_some(Verdict::Wrong)
        }
    }

    fn remember(&self, tag: Tag, right: bool) {
        let mut remembered = lock(&self.remembered);
        // Apart, so that no number of wrong ones drives out a right one.
        let tags = if right {
            &mut remembered.right
        } else {
            &mut remembered.wrong
        };
        tags.truncate(MAX_REMEMBERED - 1);
        tags.push_front(tag);
    }

    fn wait(&self, peer: IpAddr) -> Option<Waiting<'_>> {
        let mut waiting = lock(&self.waiting);
        let of_one = waiting.iter().filter(|one| **one == peer).count();
        if waiting.len() >= MAX_WAITING || of_one >= MAX_WAITING_OF_ONE {
            return None;
        }
        waiting.push(peer);
        Some(Waiting(&self.waiting, peer))
    }
}

/// A place among those who wait, given up when dropped.
struct Waiting<'a>(&'a Mutex<Vec<IpAddr>>, IpAddr);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(self.0);
        if let Some(place) = waiting.iter().position(|peer| *peer == self.1) {
            waiting.swap_remove(place);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, IpAddr, MAX_REMEMBERED, MAX_WAITING_OF_ONE, Passwords, Verdict};
    use std::net::Ipv4Addr;

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
    fn only_the_users_own_password_is_right() {
        block_on(async {
            let (passwords, users) = (Passwords::new(), users());
            for (user, password, verdict) in [
                ("prom", "secret", Verdict::Right),
                ("prom", "Secret", Verdict::Wrong),
                ("prom", "", Verdict::Wrong),
                ("", "secret", Verdict::Wrong),
                // The hash that is worked on for who is not there is prom's.
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
    fn a_new_hash_makes_the_old_password_wrong() {
        block_on(async {
            let (passwords, mut users) = (Passwords::new(), users());
            let ask = async |users: &_| passwords.check(users, HERE, "prom", b"secret").await;
            assert_eq!(ask(&users).await, Verdict::Right);
            users.insert("prom".to_owned(), bcrypt::hash("other", 4).expect("a hash"));
            assert_eq!(ask(&users).await, Verdict::Wrong);
        });
    }

    #[test]
    fn a_flood_of_one_leaves_room_for_another() {
        block_on(async {
            let (passwords, users) = (Passwords::new(), users());
            assert_eq!(
                passwords.check(&users, HERE, "prom", b"secret").await,
                Verdict::Right
            );
            let turn = passwords.turn.acquire().await.expect("free");
            let guesses: Vec<_> = (0..MAX_WAITING_OF_ONE)
                .map(|_| passwords.wait(HERE).expect("a place"))
                .collect();
            let guess = passwords.check(&users, HERE, "prom", b"guess").await;
            assert_eq!(guess, Verdict::Busy);
            // Who was right before waits for nobody, wherever it comes from.
            let known = passwords.check(&users, HERE, "prom", b"secret").await;
            assert_eq!(known, Verdict::Right);
            assert!(passwords.wait(THERE).is_some(), "another may wait");
            drop(guesses);
            drop(turn);
            let guess = passwords.check(&users, HERE, "prom", b"guess").await;
            assert_eq!(guess, Verdict::Wrong);
        });
    }

    #[test]
    fn wrong_ones_drive_out_no_right_one() {
        let passwords = Passwords::new();
        let tag = |number: usize| passwords.tag(true, "prom", "", &number.to_le_bytes());
        passwords.remember(tag(0), true);
        (1..=2 * MAX_REMEMBERED).for_each(|number| passwords.remember(tag(number), false));
        assert_eq!(passwords.recall(&tag(0)), Some(Verdict::Right));
        assert_eq!(passwords.recall(&tag(1)), None);
        assert_eq!(
            passwords.recall(&tag(2 * MAX_REMEMBERED)),
            Some(Verdict::Wrong)
        );
    }
}
