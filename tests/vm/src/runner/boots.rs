//! Boots a machine until it holds. If it broke while the agent ran, boots it as often
//! again without the agent.
//!
//! ```text
//! boot ── holds ──────────────────────────────────────────► verdict
//!   └─ breaks ─► boot again, three times at most ─┐            ▲
//!                                                 ▼            │
//!                    under a suite? ─► boots with the same load and no agent
//! ```

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use virtlens_vmtest::report::CONTROL;

use crate::boot::{Machine, Ran};
use crate::kernel::{Entry, RIG};
use crate::oops;
use crate::record::{Record, weigh};
use crate::verdict::{Break, Verdict, judge};

/// Maximum number of boots of a machine that breaks.
const BOOTS: usize = 3;

/// Maximum length of a control run, the time that the suites of one machine take; it is
/// otherwise as long as the suites were.
const CONTROL_LENGTH: Duration = Duration::from_mins(5);

/// Additional time for a load to stop and a guest to boot.
const CONTROL_SLACK: Duration = Duration::from_secs(90);

/// No further control run begins after this time.
const CONTROL_PATIENCE: Duration = Duration::from_mins(10);

/// Result of one kernel.
pub(crate) struct Booted {
    pub(crate) verdict: Verdict,
    /// Duration of the suites in the last boot.
    pub(crate) took: Duration,
    /// Number of boots for the suites.
    pub(crate) boots: usize,
    pub(crate) record: Record,
}

/// One kernel, ready to be booted.
pub(crate) struct Boots<'a> {
    pub(crate) machine: Machine<'a>,
    pub(crate) entry: &'a Entry,
    /// The suites that have to report.
    pub(crate) suites: &'a [&'a str],
    /// After this time a machine that broke is not booted again.
    pub(crate) patience: Instant,
}

impl Boots<'_> {
    /// Boots until the machine holds, at most [`BOOTS`] times. Under software emulation a
    /// host of nested guests crashes or stops now and then, with and without the suites
    /// (a fault at a guest exit, a lost interrupt). The result of a suite in a machine
    /// that held is final. `control` creates the initramfs and names the log of a boot
    /// without an agent; it is called only if a machine broke while the agent ran.
    pub(crate) fn run(
        &self,
        control: impl FnOnce(Duration) -> anyhow::Result<(PathBuf, PathBuf)>,
    ) -> anyhow::Result<Booted> {
        let mut breaks = Vec::new();
        let mut record = Record::default();
        let mut beside = Duration::ZERO;
        loop {
            let ran = self.machine.run()?;
            let verdict = judge(self.entry, self.suites, &ran.lines);
            let broken = Break::of(&ran, &verdict);
            record.add(&ran, broken.as_ref());
            beside = beside.max(ran.suites_took);
            let boots = breaks.len() + 1;
            let held = broken.is_none().then_some(verdict);
            if let Some(broken) = broken {
                let again = boots < BOOTS && Instant::now() < self.patience;
                self.report(&broken, again)?;
                breaks.push(broken);
                if again {
                    keep_log(&self.machine, boots)?;
                    continue;
                }
            }
            if record.broke_beside() {
                let length = beside.min(CONTROL_LENGTH);
                let (initrd, log) = control(length)?;
                let machine = Machine {
                    initrd: &initrd,
                    log: &log,
                    suites_deadline: length + CONTROL_SLACK,
                    ..self.machine
                };
                self.control(&machine, &mut record)?;
            }
            return Ok(Booted {
                verdict: weigh(held, &breaks, &record),
                took: ran.took,
                boots,
                record,
            });
        }
    }

    fn report(&self, broken: &Break, again: bool) -> anyhow::Result<()> {
        let next = if again { "; it is booted again" } else { "" };
        println!("{}: {broken}{next}", self.entry.name);
        oops::keep(self.machine.log)?;
        Ok(())
    }

    /// Boots without the agent as often as with it, or until it has broken as often.
    fn control(&self, machine: &Machine<'_>, record: &mut Record) -> anyhow::Result<()> {
        let patience = Instant::now() + CONTROL_PATIENCE;
        let mut boots = 0;
        while record.needs_control() && Instant::now() < patience {
            boots += 1;
            println!("{}: control {boots}, without the agent", self.entry.name);
            if boots > 1 {
                keep_log(machine, boots - 1)?;
            }
            let ran = machine.run()?;
            let broken = self.break_of_control(&ran);
            record.add_control(broken.as_ref());
            if let Some(broken) = broken {
                println!("{}: control {boots}: {broken}", self.entry.name);
                oops::keep(machine.log)?;
            }
        }
        Ok(())
    }

    fn break_of_control(&self, ran: &Ran) -> Option<Break> {
        let rig = self.suites.iter().copied().filter(|suite| *suite == RIG);
        let suites: Vec<&str> = rig.chain([CONTROL]).collect();
        Break::of(ran, &judge(self.entry, &suites, &ran.lines))
    }
}

/// Keeps the console log of a boot next to that of the next boot.
fn keep_log(machine: &Machine<'_>, boot: usize) -> anyhow::Result<()> {
    let kept = machine.log.with_extension(format!("{boot}.log"));
    Ok(fs::rename(machine.log, kept)?)
}
