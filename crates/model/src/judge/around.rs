//! The usage of a VM before the onset of a warning, and while it lasts.

use crate::judge::interval::{Interval, is_same};
use crate::snapshot::{Check, Vm};

/// Most time between the start of an interval that was judged and its end, if readings are
/// closer together: the agent judges every 10 s at most, and so after less than 20 s. A warning
/// that a reading is the first to have began after all readings that are older by this.
const LONGEST_JUDGED_NS: u64 = 20_000_000_000;

/// A reading of the VM.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Its time, ns since 1970.
    pub unix_ns: u64,
    /// Its time on a monotonic clock of the agent, ns.
    pub clock_ns: u64,
    /// The VM.
    pub vm: Vm,
}

/// An interval between two readings.
#[derive(Debug, Clone, Copy)]
pub struct Span<'r> {
    /// Its start, ns since 1970.
    pub from_ns: u64,
    /// Its end, ns since 1970.
    pub until_ns: u64,
    /// The usage of the VM.
    pub over: Interval<'r>,
}

/// The last interval before an onset that the readings of one agent show; `None` if no agent has
/// two. `readings` are those of one VM, in their order, and `onset_ns` is the time of the first one
/// with the warning.
pub fn before(readings: &[Reading], onset_ns: u64) -> Option<Span<'_>> {
    let is_clean = |one: &Reading| one.unix_ns.saturating_add(LONGEST_JUDGED_NS) <= onset_ns;
    let end = readings.iter().rposition(is_clean)?;
    let parts = readings.get(..=end)?.chunk_by(is_continued);
    // An agent that started shortly before may have one reading only.
    let mut spans = parts.filter_map(|part| span(part.first()?, part.last()?));
    spans.next_back()
}

/// The longest interval after an onset in which all readings have one of the warnings `checks`;
/// without checks all readings after the onset count. If none has two, the interval between the first one and the previous reading.
pub fn during<'r>(readings: &'r [Reading], onset_ns: u64, checks: &[Check]) -> Option<Span<'r>> {
    let start = readings.iter().position(|one| one.unix_ns >= onset_ns)?;
    let (earlier, since) = readings.split_at_checked(start)?;
    let lasts = |one: &Reading| {
        let mut findings = one.vm.findings.iter().flat_map(|found| found.iter());
        checks.is_empty() || findings.any(|finding| checks.contains(&finding.check))
    };
    let parts = since.chunk_by(|one, next| is_continued(one, next) && lasts(one) && lasts(next));
    let spans = parts.filter_map(|part| span(part.first()?, part.last()?));
    let longest = spans.max_by_key(|span| span.over.length_ns());
    longest.or_else(|| span(earlier.last()?, since.first()?))
}

/// Whether the second reading is a later one of the same VM by the same agent.
fn is_continued(one: &Reading, next: &Reading) -> bool {
    is_same(&one.vm, &next.vm) && one.clock_ns <= next.clock_ns
}

fn span<'r>(from: &'r Reading, until: &'r Reading) -> Option<Span<'r>> {
    let length_ns = until.clock_ns.checked_sub(from.clock_ns)?;
    (length_ns > 0 && is_same(&from.vm, &until.vm)).then(|| Span {
        from_ns: from.unix_ns,
        until_ns: until.unix_ns,
        over: Interval::between(&from.vm, &until.vm, length_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::{Reading, Span, before, during};
    use crate::snapshot::{Check, Finding, Vm};

    const SECOND_NS: u64 = 1_000_000_000;
    const CAPPED: Check = Check::QuotaCapped;

    /// A reading at a second, and whether it has a warning.
    fn reading(second: u64, is_capped: bool) -> Reading {
        let found = is_capped.then(|| Finding::new(CAPPED, String::new(), 2.0));
        Reading {
            unix_ns: (1000 + second) * SECOND_NS,
            clock_ns: second * SECOND_NS,
            vm: Vm {
                findings: Some(found.into_iter().collect()),
                ..Vm::default()
            },
        }
    }

    /// Start, end and length of an interval, s.
    fn seconds(span: Option<Span>) -> Option<(u64, u64, u64)> {
        let at = |ns| ns / SECOND_NS - 1000;
        span.map(|span| {
            let length_s = span.over.length_ns() / SECOND_NS;
            (at(span.from_ns), at(span.until_ns), length_s)
        })
    }

    /// The intervals before and after an onset at second `onset`.
    fn both(readings: &[Reading], onset: u64) -> [Option<(u64, u64, u64)>; 2] {
        let onset_ns = (1000 + onset) * SECOND_NS;
        [
            seconds(before(readings, onset_ns)),
            seconds(during(readings, onset_ns, &[CAPPED])),
        ]
    }

    #[test]
    fn intervals_omit_time_in_which_the_load_may_have_changed() {
        let readings: Vec<_> = (0..=100)
            .map(|at| reading(at, (60..=90).contains(&at)))
            .collect();
        assert_eq!(both(&readings, 60), [Some((0, 40, 40)), Some((60, 90, 30))]);
        let readings: Vec<_> = (0..=10)
            .map(|at| reading(at * 10, (6..=9).contains(&at)))
            .collect();
        assert_eq!(both(&readings, 60), [Some((0, 40, 40)), Some((60, 90, 30))]);
    }

    #[test]
    fn only_readings_of_one_agent_are_compared() {
        let restarted = |mut one: Reading| {
            one.clock_ns -= 25 * SECOND_NS;
            one
        };
        let readings: Vec<_> = (0..=100)
            .map(|at| reading(at, at >= 60))
            .map(|one| match one.clock_ns / SECOND_NS {
                30.. => restarted(one),
                _ => one,
            })
            .collect();
        assert_eq!(
            both(&readings, 60),
            [Some((30, 40, 10)), Some((60, 100, 40))]
        );
        let readings: Vec<_> = (0..=100)
            .map(|at| reading(at, at >= 60))
            .map(|one| match one.clock_ns / SECOND_NS {
                70.. => restarted(one),
                _ => one,
            })
            .collect();
        assert_eq!(
            both(&readings, 60),
            [Some((0, 40, 40)), Some((70, 100, 30))]
        );
    }

    #[test]
    fn agent_with_a_single_reading_before_the_onset_is_passed_over() {
        let mut readings: Vec<_> = (0..=100).map(|at| reading(at, at >= 60)).collect();
        for one in readings.iter_mut().skip(40) {
            one.clock_ns -= 40 * SECOND_NS;
        }
        assert_eq!(
            both(&readings, 60),
            [Some((0, 39, 39)), Some((60, 100, 40))]
        );
    }

    #[test]
    fn single_reading_is_compared_with_the_previous_one() {
        let readings: Vec<_> = (0..=6).map(|at| reading(at * 10, at == 6)).collect();
        assert_eq!(both(&readings, 60), [Some((0, 40, 40)), Some((50, 60, 10))]);
    }

    #[test]
    fn vm_that_starts_with_a_warning_has_no_time_before_it() {
        let readings: Vec<_> = (50..=70).map(|at| reading(at, at >= 60)).collect();
        assert_eq!(both(&readings, 60), [None, Some((60, 70, 10))]);
        assert_eq!(both(&[], 60), [None, None]);
        assert_eq!(both(&[reading(60, true)], 60), [None, None]);
    }
}
