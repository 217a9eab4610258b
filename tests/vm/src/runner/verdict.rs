//! Compares one boot with the expectations of `kernels.toml` for its kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use virtlens_vmtest::report::{Line, Outcome};
use virtlens_vmtest::scenario::{DEAD_POD, SILENT_GUEST};

use crate::boot::{Death, Ran};
use crate::kernel::Entry;

/// Result of one boot.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) passed: usize,
    /// Skips that `kernels.toml` allows.
    pub(crate) skipped: usize,
    pub(crate) features: BTreeSet<String>,
    /// All failures of the run; empty means success.
    pub(crate) failures: Vec<String>,
    /// Reason why nothing was judged, if that is not a failure.
    pub(crate) not_run: Option<String>,
}

/// A machine that broke: the programs in it are not known to be the cause.
#[derive(Debug)]
pub(crate) struct Break {
    why: String,
    cause: Cause,
}

/// When or by what a machine broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// By a defect of the emulator.
    Emulator,
    /// Before any suite, and thus the agent, ran in it.
    BeforeSuites,
    Suite,
}

impl Break {
    /// Returns how a boot broke, if it did: the machine died or hung, one of the rig's
    /// self-tests failed, which run without the agent, or a guest stopped answering or
    /// died during a suite.
    pub(crate) fn of(ran: &Ran, verdict: &Verdict) -> Option<Self> {
        let of_rig = |failure: &&String| {
            let of_guest = [SILENT_GUEST, DEAD_POD];
            failure.starts_with("rig::") || of_guest.iter().any(|why| failure.contains(why))
        };
        let of_rig = || verdict.failures.iter().find(of_rig).cloned();
        let death = ran.death.clone().or_else(|| of_rig().map(Death::from))?;
        let cause = if death.is_emulators {
            Cause::Emulator
        } else if death.why.starts_with("rig::") || !has_passed_rig(ran) {
            Cause::BeforeSuites
        } else {
            Cause::Suite
        };
        Some(Self {
            why: death.why,
            cause,
        })
    }

    /// Whether the agent cannot be the cause.
    pub(crate) fn is_without_agent(&self) -> bool {
        self.cause != Cause::Suite
    }
}

impl fmt::Display for Break {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = match self.cause {
            Cause::Emulator => "by a defect of the emulator",
            Cause::BeforeSuites => "before any suite ran",
            Cause::Suite => "under a suite",
        };
        write!(out, "the emulated machine broke {when} ({})", self.why)
    }
}

pub(crate) fn has_passed_rig(ran: &Ran) -> bool {
    ran.lines.contains(&Line::Done("rig".to_owned()))
}

/// Judges the report of a boot for `suites`.
pub(crate) fn judge(entry: &Entry, suites: &[&str], lines: &[Line]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut reported: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut pending = BTreeSet::new();
    for line in lines {
        match line {
            Line::Test { name, outcome } => judge_test(entry, name, outcome, &mut verdict),
            Line::Feature(name) => drop(pending.insert(name.clone())),
            Line::Done(suite) => drop(reported.insert(suite, std::mem::take(&mut pending))),
            Line::Alive(_) | Line::End => {}
        }
    }
    for suite in suites {
        let expected = entry.features.get(*suite).cloned().unwrap_or_default();
        match reported.remove(suite) {
            Some(seen) => judge_features(suite, &expected, &seen, &mut verdict),
            None => verdict
                .failures
                .push(format!("{suite}: did not report to its end")),
        }
    }
    verdict
}

fn judge_test(entry: &Entry, name: &str, outcome: &Outcome, verdict: &mut Verdict) {
    let allowed = entry.skips.get(name);
    match outcome {
        Outcome::Ok if allowed.is_some() => verdict.failures.push(format!(
            "{name}: passed, though kernels.toml lists it as a skip: remove that entry"
        )),
        Outcome::Ok => verdict.passed += 1,
        Outcome::Fail(why) => verdict.failures.push(format!("{name}: {why}")),
        Outcome::Skip(_) if allowed.is_some() => verdict.skipped += 1,
        Outcome::Skip(why) => verdict.failures.push(format!(
            "{name}: skipped ({why}), which kernels.toml does not allow on {}",
            entry.name
        )),
    }
}

fn judge_features(
    suite: &str,
    expected: &BTreeSet<String>,
    seen: &BTreeSet<String>,
    verdict: &mut Verdict,
) {
    let missing = expected.difference(seen).map(|name| {
        format!("{suite}: feature {name} is missing on a kernel that is listed with it")
    });
    let surplus = seen.difference(expected).map(|name| {
        format!("{suite}: feature {name} is there, but kernels.toml does not list it: add it")
    });
    verdict.failures.extend(missing.chain(surplus));
    verdict.features.extend(seen.iter().cloned());
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn entry() -> Entry {
        toml::from_str(
            "name = 'k'\nsuite = 's'\nseries = '6.1'\nnested_kvm = true\n\
             suites = ['rig']\n[features]\nrig = ['btf']\n[skips]\n'a::old' = 'the reason'\n",
        )
        .expect("an entry")
    }

    fn test(name: &str, outcome: Outcome) -> Line {
        Line::Test {
            name: name.into(),
            outcome,
        }
    }

    pub(crate) fn complete(tests: &[Line]) -> Vec<Line> {
        let mut lines = tests.to_vec();
        lines.extend([
            Line::Feature("btf".into()),
            Line::Done("rig".into()),
            Line::End,
        ]);
        lines
    }

    fn failures(lines: &[Line]) -> Vec<String> {
        judge(&entry(), &["rig"], lines).failures
    }

    #[test]
    fn a_complete_report_passes() {
        let lines = complete(&[
            test("a::x", Outcome::Ok),
            test("a::old", Outcome::Skip("y".into())),
        ]);
        let verdict = judge(&entry(), &["rig"], &lines);
        assert!(verdict.failures.is_empty(), "{:?}", verdict.failures);
        assert_eq!((verdict.passed, verdict.skipped), (1, 1));
    }

    #[test]
    fn an_unlisted_skip_fails() {
        let found = failures(&complete(&[test(
            "a::new",
            Outcome::Skip("no vhost".into()),
        )]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("a::new") && found[0].contains("no vhost"));
    }

    #[test]
    fn listed_skip_that_passes_fails() {
        assert_eq!(failures(&complete(&[test("a::old", Outcome::Ok)])).len(), 1);
    }

    pub(crate) fn ran(lines: Vec<Line>, death: Option<&str>) -> Ran {
        Ran {
            lines,
            death: death.map(|why| why.to_owned().into()),
            took: Duration::ZERO,
            suites_took: Duration::ZERO,
        }
    }

    fn broke(lines: Vec<Line>, death: Option<&str>) -> Option<Break> {
        let verdict = judge(&entry(), &["rig"], &lines);
        Break::of(&ran(lines, death), &verdict)
    }

    fn failed(name: &str, why: &str) -> Line {
        test(name, Outcome::Fail(why.into()))
    }

    #[test]
    fn only_rig_and_guest_failures_mean_broken_machine() {
        let alone = |name, why| {
            broke(complete(&[failed(name, why)]), None).map(|one| one.is_without_agent())
        };
        assert_eq!(alone("rig::pods_start", "no answer"), Some(true));
        let silent = format!("cpu: error {SILENT_GUEST}: os error 11");
        assert_eq!(alone("a::x", &silent), Some(false));
        let dead = format!("{DEAD_POD}: its VMM: exit status: 0");
        assert_eq!(alone("a::pods_live", &dead), Some(false));
        assert_eq!(alone("a::x", "reported 5 ns, burned 6 ns"), None);
    }

    #[test]
    fn dead_machine_reports_when_it_died() {
        let alone = |lines| broke(lines, Some("Kernel panic")).map(|one| one.is_without_agent());
        assert_eq!(alone(Vec::new()), Some(true));
        assert_eq!(alone(vec![Line::Done("rig".into())]), Some(false));
    }

    #[test]
    fn defect_of_emulator_under_suite_is_not_the_agents() {
        let mut ran = ran(vec![Line::Done("rig".into())], Some("CPU 1 is lost"));
        let broken = |ran: &Ran| Break::of(ran, &Verdict::default()).expect("it died");
        assert!(!broken(&ran).is_without_agent());
        ran.death.as_mut().expect("it died").is_emulators = true;
        assert!(broken(&ran).is_without_agent());
        let said = broken(&ran).to_string();
        assert!(
            said.contains("by a defect of the emulator (CPU 1"),
            "{said}"
        );
    }

    #[test]
    fn features_must_equal_the_list() {
        let lines = [
            Line::Feature("fentry".into()),
            Line::Done("rig".into()),
            Line::End,
        ];
        let found = failures(&lines);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("btf") && found[1].contains("fentry"));
    }

    #[test]
    fn a_suite_that_died_midway_fails() {
        assert_eq!(failures(&[test("a::x", Outcome::Ok)]).len(), 1);
    }
}
