//! Pseudorandom numbers for tests.

use std::time::{SystemTime, UNIX_EPOCH};

/// A linear congruential generator with Knuth's constants.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator with a fixed sequence.
    pub const fn with_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator whose seed differs in each run and is printed.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = since.expect("after 1970").as_nanos();
        println!("dice: {seed}");
        Self(u64::try_from(seed).expect("before 2554"))
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}
