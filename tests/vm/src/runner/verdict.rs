//! Judges one boot against what `kernels.toml` says of that kernel.

use std::collections::{BTreeMap, BTreeSet};

use virtlens_vmtest::report::{Line, Outcome};

use crate::kernel::Entry;

/// What one boot came to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) passed: usize,
    /// Skips that `kernels.toml` allows.
    pub(crate) skipped: usize,
    pub(crate) features: BTreeSet<String>,
    /// Everything that makes the run fail; empty is success.
    pub(crate) failures: Vec<String>,
}

impl Verdict {
    /// A failure that says that the machine broke, not what ran in it: of the
    /// rig's self-tests, which know nothing of the agent, or of a guest that
    /// went silent under a suite.
    pub(crate) fn broken_machine(&self) -> Option<String> {
        let of_rig = |failure: &&String| {
            failure.starts_with("rig::") || failure.contains("guest does not answer")
        };
        self.failures.iter().find(of_rig).cloned()
    }
}

/// Judges the report of a boot in which `suites` were to run.
pub(crate) fn judge(entry: &Entry, suites: &[&str], lines: &[Line]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut reported: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut pending = BTreeSet::new();
    for line in lines {
        match line {
            Line::Test { name, outcome } => judge_test(entry, name, outcome, &mut verdict),
            Line::Feature(name) => drop(pending.insert(name.clone())),
            Line::Done(suite) => drop(reported.insert(suite, std::mem::take(&mut pending))),
            Line::End => {}
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
mod tests {
    use super::*;

    fn entry() -> Entry {
        toml::from_str(
            "name = 'k'\nsuite = 's'\nseries = '6.1'\nnested_kvm = true\n\
             [features]\nrig = ['btf']\n[skips]\n'a::old' = 'the reason'\n",
        )
        .expect("an entry")
    }

    fn test(name: &str, outcome: Outcome) -> Line {
        Line::Test {
            name: name.into(),
            outcome,
        }
    }

    fn complete(tests: &[Line]) -> Vec<Line> {
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
    fn a_listed_skip_that_passes_fails_so_the_list_stays_true() {
        assert_eq!(failures(&complete(&[test("a::old", Outcome::Ok)])).len(), 1);
    }

    #[test]
    fn only_the_rig_and_its_guests_tell_of_a_broken_machine() {
        let broken = |name: &str, why: &str| {
            let lines = complete(&[test(name, Outcome::Fail(why.into()))]);
            judge(&entry(), &["rig"], &lines).broken_machine().is_some()
        };
        assert!(broken("rig::pods_start", "no answer"));
        assert!(broken(
            "a::x",
            "cpu: error the guest does not answer: os error 11"
        ));
        assert!(!broken("a::x", "told 5 ns, burned 6 ns"));
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
