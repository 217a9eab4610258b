//! Shows a recording: reads it around the position of the time line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Lost, Mark, Recorded, Recording};

use super::feed::Feed;
use super::history::{History, MAX_VMS};
use super::rows::Row;
use super::state::Top;
use super::timeline::Timeline;
use super::tracing::Tracing;

/// Readings before the shown one that are read: those of the longest row of bars.
const MOST_BEFORE: usize = 60;

/// Largest difference between the agent's clock and the time of day between two readings of
/// one agent, ns: the clock is read before the host is, the time of day afterwards.
const CLOCK_TOLERANCE_NS: u64 = 2_000_000_000;

/// A recording.
#[derive(Debug)]
pub struct Replay {
    recording: Recording,
    /// The readings around the shown one, by number.
    kept: BTreeMap<usize, Arc<Snapshot>>,
    /// Numbers of the readings that were read last; those that `kept` lacks are unreadable.
    read: Range<usize>,
    /// Number of the shown reading.
    shown: Option<usize>,
    shown_since: Instant,
}

impl Replay {
    /// Shows a recording from the position of the time line on.
    pub fn new(recording: Recording) -> Self {
        Self {
            recording,
            kept: BTreeMap::new(),
            read: 0..0,
            shown: None,
            shown_since: Instant::now(),
        }
    }

    /// Shows the reading at the position of the time line, which advances while it plays.
    pub fn follow(&mut self, top: &mut Top) {
        let Some(timeline) = &mut top.timeline else {
            return;
        };
        let shown_for = timeline.shown_for();
        if shown_for.is_some_and(|length| self.shown_since.elapsed() >= length) {
            timeline.advance();
        }
        let at = timeline.at();
        if self.shown == Some(at) {
            return;
        }
        let (history, lost) = self.history(timeline.marks(), at);
        (self.shown, self.shown_since) = (Some(at), Instant::now());
        let is_unreadable = history.at(0).is_none();
        if let Some(node) = top.nodes.first_mut() {
            node.history = history;
        }
        if is_unreadable {
            let why = lost.map_or_else(String::new, |error| format!(": {error}"));
            top.message = format!("this reading is unreadable{why}");
        }
    }

    /// The readings up to number `at`; none if that one is unreadable, and the cause if it is
    /// known.
    fn history(&mut self, marks: &[Mark], at: usize) -> (History, Option<Lost>) {
        let mut lost = None;
        if self.kept.is_empty() {
            // It shows how many VMs a reading has.
            lost = self.keep(marks, at..at + 1);
        }
        let vms = self.kept.values().map(|reading| reading.vms.len()).max();
        let before = (MAX_VMS / vms.unwrap_or(0).max(1)).clamp(1, MOST_BEFORE);
        let first = at.saturating_sub(before);
        let is_read = self.read.contains(&first) && self.read.contains(&at);
        if !is_read {
            // The next steps, forward or back, need no reading.
            let margin = 1 + before / 4;
            let end = (at + 1 + margin).min(marks.len());
            lost = self.keep(marks, first.saturating_sub(margin)..end);
        }
        let mut history = History::default();
        if !self.kept.contains_key(&at) {
            return (history, lost);
        }
        let mut last: Option<(u64, &Arc<Snapshot>)> = None;
        for (number, reading) in self.kept.range(first..=at) {
            let unix_ns = marks.get(*number).map_or(0, |mark| mark.unix_ns);
            let is_next = last.is_none_or(|(before_ns, before)| {
                let elapsed_ns = unix_ns.checked_sub(before_ns);
                elapsed_ns.is_some_and(|elapsed_ns| is_of_one_agent(before, reading, elapsed_ns))
            });
            if !is_next {
                history = History::default();
            }
            history.add(Arc::clone(reading));
            last = Some((unix_ns, reading));
        }
        (history, lost)
    }

    /// Keeps these readings only, and reads those that it lacks.
    fn keep(&mut self, marks: &[Mark], wanted: Range<usize>) -> Option<Lost> {
        self.kept.retain(|number, _| wanted.contains(number));
        let start = self.read.start.clamp(wanted.start, wanted.end);
        let end = self.read.end.clamp(start, wanted.end);
        self.read = wanted.clone();
        let missing = if start == end {
            [wanted, 0..0]
        } else {
            [wanted.start..start, end..wanted.end]
        };
        let lost = missing.map(|numbers| self.read(marks, numbers));
        lost.into_iter().flatten().next()
    }

    /// Reads these readings. Each segment is decoded from its start.
    fn read(&mut self, marks: &[Mark], wanted: Range<usize>) -> Option<Lost> {
        let times = || marks.get(wanted.clone()).unwrap_or_default().iter();
        let first_ns = times().map(|mark| mark.unix_ns).min()?;
        let last_ns = times().map(|mark| mark.unix_ns).max()?;
        // After a clock was set back, other readings have such times, too.
        let mut expected = (0..).zip(marks);
        let mut lost = None;
        for recorded in self.recording.between(first_ns..last_ns.saturating_add(1)) {
            match recorded {
                Ok(Recorded { unix_ns, snapshot }) => {
                    let number = expected.find(|(_, mark)| mark.unix_ns == unix_ns);
                    // Those of the end were recorded since.
                    let Some((number, _)) = number else { break };
                    if wanted.contains(&number) {
                        self.kept.insert(number, Arc::new(snapshot));
                    }
                }
                Err(error) => lost = Some(error),
            }
        }
        lost
    }
}

impl Feed for Replay {
    fn update(&mut self, top: &mut Top) {
        self.follow(top);
    }

    fn due_in(&self, top: &Top) -> Duration {
        let timeline = top.timeline.as_ref();
        let shown_for = timeline.and_then(Timeline::shown_for);
        shown_for.map_or(Duration::MAX, |length| {
            length.saturating_sub(self.shown_since.elapsed())
        })
    }

    fn trace(&self, _: &Row, _: &str) -> anyhow::Result<Tracing> {
        anyhow::bail!("this is a recording")
    }
}

/// Whether one agent took both readings, `elapsed_ns` apart by the time of day. The clocks
/// and some counters of two agents are not comparable.
fn is_of_one_agent(before: &Snapshot, now: &Snapshot, elapsed_ns: u64) -> bool {
    // A failed reading has the clock of the last successful one.
    let clock_ns = |reading: &Snapshot| {
        let age_ns = reading.reading_age_ns.unwrap_or(0);
        reading.clock_ns.saturating_add(age_ns)
    };
    let by_clock_ns = clock_ns(now).checked_sub(clock_ns(before));
    by_clock_ns.is_some_and(|ns| ns.abs_diff(elapsed_ns) <= CLOCK_TOLERANCE_NS)
}

#[cfg(test)]
mod tests {
    use virtlens_model::snapshot::Snapshot;
    use virtlens_tests::blank;

    use super::is_of_one_agent;

    const SECOND: u64 = 1_000_000_000;

    fn reading(clock_ns: u64, age_ns: u64) -> Snapshot {
        Snapshot {
            clock_ns,
            reading_age_ns: Some(age_ns),
            ..blank::snapshot(Vec::new())
        }
    }

    #[test]
    fn readings_of_one_agent_have_one_clock() {
        let before = reading(5 * SECOND, 0);
        let later = reading(15 * SECOND, 0);
        assert!(is_of_one_agent(&before, &later, 10 * SECOND));
        // The clock was set.
        assert!(!is_of_one_agent(&before, &later, 3600 * SECOND));
        let failed = reading(5 * SECOND, 10 * SECOND);
        assert!(is_of_one_agent(&before, &failed, 10 * SECOND));
        let after = reading(25 * SECOND, 0);
        assert!(is_of_one_agent(&failed, &after, 10 * SECOND));
    }

    #[test]
    fn reading_of_restarted_agent_has_another_clock() {
        let before = reading(500 * SECOND, 0);
        assert!(!is_of_one_agent(&before, &reading(SECOND, 0), 10 * SECOND));
        let early = reading(SECOND, 0);
        assert!(!is_of_one_agent(
            &early,
            &reading(5 * SECOND, 0),
            10 * SECOND
        ));
    }
}
