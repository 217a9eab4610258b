//! The program compared with an earlier build of it, in one run.

use std::env;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use virtlens_probe::loader::Loader;

use crate::program::Program;
use crate::stats::Spread;

/// The environment variable with the path of the earlier build.
pub(crate) const VARIABLE: &str = "EARLIER_BUILD";

/// Scrapes of each build.
const ROUNDS: usize = 150;

/// Pause before a scrape, as in `collection`, and after it: work goes on after the answer.
const PAUSE: Duration = Duration::from_millis(20);

/// CPU time of scrapes that alternate between two builds, ms.
#[derive(Debug)]
pub(crate) struct InTurn {
    pub(crate) before_ms: Spread,
    pub(crate) now_ms: Spread,
    /// Of each pair.
    pub(crate) ratio: Spread,
}

/// The earlier build, if one is named.
pub(crate) fn path() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// Scrapes both builds in turn, in an order that changes from pair to pair.
pub(crate) fn scrapes(before: &Path, now: &Path) -> InTurn {
    let before = Program::start(before, Loader::default());
    let now = Program::start(now, Loader::default());
    for program in [&before, &now] {
        program.scrape();
    }
    let pairs: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|round| {
            if round % 2 == 0 {
                let first = scrape_ms(&before);
                (first, scrape_ms(&now))
            } else {
                let first = scrape_ms(&now);
                (scrape_ms(&before), first)
            }
        })
        .collect();
    InTurn {
        before_ms: Spread::of(pairs.iter().map(|pair| pair.0)),
        now_ms: Spread::of(pairs.iter().map(|pair| pair.1)),
        ratio: Spread::of(pairs.iter().map(|(before, now)| now / before)),
    }
}

fn scrape_ms(program: &Program) -> f64 {
    sleep(PAUSE);
    let begun_ms = program.cpu_ms();
    program.scrape();
    sleep(PAUSE);
    program.cpu_ms() - begun_ms
}
