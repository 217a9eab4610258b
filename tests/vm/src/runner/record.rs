//! Statistics of boots that broke, with and without the agent, and the resulting verdict.

use std::fmt;

use crate::boot::Ran;
use crate::verdict::{Break, Verdict, has_passed_rig};

/// Number of boots, and how many of them broke.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    boots: usize,
    breaks: usize,
}

impl Tally {
    fn add(&mut self, broke: bool) {
        self.boots += 1;
        self.breaks += usize::from(broke);
    }

    fn plus(self, more: Self) -> Self {
        Self {
            boots: self.boots + more.boots,
            breaks: self.breaks + more.breaks,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.breaks, self.boots)
    }
}

/// Boots of one machine that broke, with and without the agent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Record {
    /// Until the end of the rig's self-tests, which run without the agent, or by a defect of
    /// the emulator.
    before: Tally,
    /// During the suites, with the agent.
    beside: Tally,
    /// With the same load and without an agent.
    control: Tally,
}

impl Record {
    /// Counts a boot for suites.
    pub(crate) fn add(&mut self, ran: &Ran, broken: Option<&Break>) {
        let before = broken.is_some_and(Break::is_without_agent);
        self.before.add(before);
        if !before && has_passed_rig(ran) {
            self.beside.add(broken.is_some());
        }
    }

    /// Counts a boot without the agent. A boot that broke before its loads began does not
    /// count.
    pub(crate) fn add_control(&mut self, broken: Option<&Break>) {
        let before = broken.is_some_and(Break::is_without_agent);
        self.before.add(before);
        if !before {
            self.control.add(broken.is_some());
        }
    }

    /// Whether any boot broke.
    pub(crate) fn broke(&self) -> bool {
        self.before.plus(self.beside).plus(self.control).breaks > 0
    }

    /// Whether a boot broke while the agent ran.
    pub(crate) fn broke_beside(&self) -> bool {
        self.beside.breaks > 0
    }

    /// Whether a further boot without the agent could still change the verdict.
    pub(crate) fn needs_control(&self) -> bool {
        self.control.boots < self.beside.boots && self.control.breaks < self.beside.breaks
    }

    /// Whether the machine breaks as often without the agent, in at most as many boots.
    fn is_excused(&self) -> bool {
        self.control.breaks >= self.beside.breaks && self.control.boots <= self.beside.boots
    }

    /// Sum of the boots of two machines.
    #[must_use]
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            before: self.before.plus(more.before),
            beside: self.beside.plus(more.beside),
            control: self.control.plus(more.control),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            beside,
            control,
        } = self;
        write!(
            out,
            "{before} boots before any suite or by the emulator, {beside} under the suites with \
             the agent, {control} controls without it"
        )
    }
}

/// Judges all boots of a machine; `held` is the verdict of the boot that held, if any. A
/// machine that broke while the agent ran has failed, even if it held later, unless it
/// breaks as often without the agent. A machine that never held for other reasons is not
/// judged.
pub(crate) fn weigh(held: Option<Verdict>, breaks: &[Break], record: &Record) -> Verdict {
    let has_held = held.is_some();
    let mut verdict = held.unwrap_or_default();
    if record.broke_beside() && !record.is_excused() {
        let beside = breaks.iter().filter(|one| !one.is_without_agent());
        let without = record.control;
        let failures = beside.map(|one| format!("{one}; without the agent {without} broke"));
        verdict.failures.extend(failures);
    } else if !has_held {
        verdict.skipped = 1;
        let last = breaks.last().map_or_else(String::new, ToString::to_string);
        verdict.not_run = Some(format!("{last}: {record}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::judge;
    use crate::verdict::tests::{complete, entry, ran};

    const ALONE: &str = "before any suite";
    const BESIDE: &str = "under a suite";
    const HELD: &str = "held";

    /// A boot that broke in this way.
    fn went(how: &str) -> (Ran, Option<Break>) {
        let lines = if how == ALONE {
            Vec::new()
        } else {
            complete(&[])
        };
        let ran = ran(lines, (how != HELD).then_some("Oops: 0002"));
        let broken = Break::of(&ran, &judge(&entry(), &["rig"], &ran.lines));
        (ran, broken)
    }

    /// The verdict on these boots after these control runs.
    fn weighed(boots: &[&str], controls: &[&str]) -> Verdict {
        let mut record = Record::default();
        let mut breaks = Vec::new();
        let mut held = None;
        for boot in boots {
            let (ran, broken) = went(boot);
            record.add(&ran, broken.as_ref());
            let judged = judge(&entry(), &["rig"], &ran.lines);
            held = broken.is_none().then_some(judged);
            breaks.extend(broken);
        }
        for control in controls {
            assert!(record.needs_control(), "no further one is booted");
            record.add_control(went(control).1.as_ref());
        }
        assert!(!record.needs_control(), "another one is booted");
        weigh(held, &breaks, &record)
    }

    #[test]
    fn stable_machine_needs_no_control() {
        let verdict = weighed(&[HELD], &[]);
        assert!(verdict.failures.is_empty() && verdict.not_run.is_none());
    }

    #[test]
    fn machine_broken_only_with_agent_fails() {
        let verdict = weighed(&[BESIDE, BESIDE, BESIDE], &[HELD, HELD, HELD]);
        assert_eq!((verdict.skipped, verdict.failures.len()), (0, 3));
        let said = &verdict.failures[0];
        assert!(said.contains("Oops: 0002"), "{said}");
        assert!(said.ends_with("without the agent 0 of 3 broke"), "{said}");
    }

    #[test]
    fn machine_stable_after_breaking_with_agent_fails() {
        let verdict = weighed(&[BESIDE, HELD], &[HELD, HELD]);
        assert_eq!(verdict.failures.len(), 1);
        assert!(verdict.not_run.is_none(), "its suites were judged");
    }

    #[test]
    fn one_break_before_suites_does_not_excuse_breaks_with_agent() {
        // One of three boots broke before a suite began: everything was skipped once.
        let verdict = weighed(&[BESIDE, ALONE, BESIDE], &[HELD, HELD]);
        assert_eq!((verdict.skipped, verdict.failures.len()), (0, 2));
        let verdict = weighed(&[ALONE, BESIDE, HELD], &[HELD, HELD]);
        assert_eq!(verdict.failures.len(), 1);
    }

    #[test]
    fn machine_breaking_equally_without_agent_is_judged_by_stable_boot() {
        let verdict = weighed(&[BESIDE, HELD], &[HELD, BESIDE]);
        assert!(verdict.failures.is_empty() && verdict.not_run.is_none());
    }

    #[test]
    fn machine_breaking_equally_without_stable_boot_is_not_run() {
        let verdict = weighed(&[BESIDE, BESIDE, BESIDE], &[BESIDE, BESIDE, BESIDE]);
        assert_eq!((verdict.skipped, verdict.failures.len()), (1, 0));
        assert!(
            verdict
                .not_run
                .is_some_and(|why| why.contains("3 of 3 controls"))
        );
    }

    #[test]
    fn control_broken_before_its_loads_does_not_excuse_failure() {
        let verdict = weighed(&[BESIDE, HELD], &[ALONE, HELD, HELD]);
        assert_eq!(verdict.failures.len(), 1);
    }

    #[test]
    fn machine_breaking_less_without_agent_fails() {
        let verdict = weighed(&[BESIDE, BESIDE, BESIDE], &[BESIDE, HELD, BESIDE]);
        assert_eq!(verdict.failures.len(), 3);
    }

    #[test]
    fn machine_that_never_reaches_a_suite_is_not_run() {
        let verdict = weighed(&[ALONE, ALONE, ALONE], &[]);
        assert_eq!((verdict.skipped, verdict.failures.len()), (1, 0));
        assert!(
            verdict
                .not_run
                .is_some_and(|why| why.contains("3 of 3 boots before"))
        );
    }

    #[test]
    fn machine_without_time_for_control_fails() {
        let died = ran(complete(&[]), Some("Oops"));
        let broken = Break::of(&died, &judge(&entry(), &["rig"], &died.lines));
        let breaks = [broken.expect("it died")];
        let mut record = Record::default();
        record.add(&died, breaks.first());
        assert_eq!(weigh(None, &breaks, &record).failures.len(), 1);
    }
}
