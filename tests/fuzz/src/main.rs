//! The program that `scripts/fuzz` runs: libFuzzer with the target that the environment
//! variable `FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use virtlens_fuzz::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

/// The selected target.
fn target() -> Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(one, _)| *one == name);
    let (_, target) = found.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is no target"));
    *target
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(target)(data));
