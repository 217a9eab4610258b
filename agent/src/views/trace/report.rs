//! The summary of a trace, as text.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use virtlens_model::timeline::{
    ExitReason, ExitUse, GuestSplit, Slice, Split, Summary, ThreadUse, Track,
};
use virtlens_probe::trace::Lack;

use super::co_stop;
use super::text::{Page, Table, bytes, ratio, seconds, shares, time};
use crate::term::{Paint, Style, printable};

/// The data of the summary.
#[derive(Debug)]
pub struct Report {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) summary: Summary,
    /// CPU time by tid, ns, as counted by the kernel for threads that lived throughout
    /// the trace.
    pub(super) counted_ns: FxHashMap<u32, u64>,
    pub(super) lacks: Vec<Lack>,
    /// Whether throttling of threads is known.
    pub(super) knows_throttle: bool,
    /// Reason for an early end.
    pub(super) end: Option<String>,
    pub(super) bytes: u64,
    pub(super) file: String,
}

/// Limit on the displayed exit reasons and threads.
const ROWS: usize = 10;

/// Threads with a smaller share of running time are omitted.
const LEAST: f64 = 0.0005;

impl Report {
    /// Returns the summary.
    pub fn text(&self, style: Style) -> String {
        let mut page = Page {
            paint: Paint(style.color),
            out: String::new(),
        };
        self.head(&mut page);
        self.vcpus(&mut page);
        self.others(&mut page);
        self.exits(&mut page);
        self.longest("longest waits for a CPU", &self.summary.waits, &mut page);
        self.longest("longest throttlings", &self.summary.throttles, &mut page);
        self.comparison(&mut page);
        page.out
    }

    fn head(&self, page: &mut Page) {
        let summary = &self.summary;
        let (name, node) = (&self.name, printable(&self.node));
        let head = format!(
            "{name} on {node}: {:.1} s, {} events, {} lost",
            seconds(summary.took_ns),
            summary.events,
            summary.lost
        );
        page.head(&head);
        let (file, size) = (printable(&self.file), bytes(self.bytes));
        page.line(&format!(
            "{file}: {size}; open it at https://ui.perfetto.dev"
        ));
        if let Some(end) = &self.end {
            page.warn(end);
        }
        if summary.lost > 0 {
            page.warn(
                "events were lost: the state of each thread from a loss to its next event is \
                 \"unknown\"",
            );
        }
        for lack in &self.lacks {
            page.warn(&format!(
                "not available: {} ({})",
                lack.what,
                printable(&lack.reason)
            ));
        }
    }

    /// Each vCPU's wall time; the parts add up.
    fn vcpus(&self, page: &mut Page) {
        let mut vcpus: Vec<&ThreadUse> = self.summary.threads.iter().collect();
        vcpus.retain(|thread| thread.actor.vcpu.is_some());
        vcpus.sort_by_key(|thread| thread.actor.vcpu);
        let names = [
            "guest",
            "host",
            "poll",
            "wait",
            "throttled",
            "idle",
            "unknown",
        ];
        let mut table = Table::new("vCPUs, % of the time", &names);
        let mut is_unknown = false;
        for thread in vcpus {
            let split = &thread.split;
            let traced = split.guest.zip(split.host_ns());
            let (guest, host_ns) = traced.unwrap_or((GuestSplit::default(), split.running_ns));
            let mut cells = shares(
                &[
                    guest.guest_ns,
                    host_ns,
                    guest.polled_ns,
                    split.runnable_ns,
                    split.throttled_ns,
                    split.sleeping_ns + split.uninterruptible_ns,
                    split.unknown_ns + guest.unknown_ns,
                ],
                split.wall_ns(),
            );
            if traced.is_none() && split.running_ns > 0 {
                is_unknown = true;
                cells[1].push('*');
                for at in [0, 2] {
                    "?".clone_into(&mut cells[at]);
                }
            }
            self.mark_throttled(&mut cells[4]);
            table.row(&thread.actor.title(), cells);
        }
        page.table(&table);
        if is_unknown {
            page.line("  * includes guest time: no KVM entry or exit event received");
        }
        if let Some(co_stop) = co_stop::line(&self.summary) {
            page.line(&co_stop);
        }
    }

    /// The threads that ran most, except vCPUs.
    fn others(&self, page: &mut Page) {
        let mut threads: Vec<&ThreadUse> = self.summary.threads.iter().collect();
        let share = |split: &Split| ratio(split.running_ns + split.throttled_ns, split.wall_ns());
        threads.retain(|one| one.actor.vcpu.is_none() && share(&one.split) >= LEAST);
        threads.sort_by_key(|one| Reverse(one.split.running_ns));
        let names = ["running", "wait", "throttled", "sleep", "unknown"];
        let mut table = Table::new("other threads, % of their time", &names);
        for thread in threads.iter().take(ROWS) {
            let split = &thread.split;
            let parts = [
                split.running_ns,
                split.runnable_ns,
                split.throttled_ns,
                split.sleeping_ns + split.uninterruptible_ns,
                split.unknown_ns,
            ];
            let title = format!("{} ({})", thread.actor.title(), thread.actor.tid);
            let mut cells = shares(&parts, split.wall_ns());
            self.mark_throttled(&mut cells[2]);
            table.row(&title, cells);
        }
        page.table(&table);
        let more = threads.len().saturating_sub(ROWS) as u64 + self.summary.more_threads;
        if more > 0 {
            page.line(&format!("  and {more} more"));
        }
    }

    /// Replaces a cell in the throttling column if throttling is unknown.
    fn mark_throttled(&self, cell: &mut String) {
        if !self.knows_throttle {
            "?".clone_into(cell);
        }
    }

    /// VM exits by reason, ordered by their cost to the host.
    fn exits(&self, page: &mut Page) {
        let mut exits: FxHashMap<Option<ExitReason>, ExitUse> = FxHashMap::default();
        for (reason, used) in self.summary.threads.iter().flat_map(|thread| &thread.exits) {
            exits.entry(*reason).or_default().merge(used);
        }
        let mut exits: Vec<_> = exits.into_iter().collect();
        exits.sort_by_key(|(reason, used)| (Reverse(used.host_ns), *reason));
        let names = ["count", "host", "with sleep", "longest", "to VMM"];
        let mut table = Table::new("exits, by host time", &names);
        for (reason, used) in exits.iter().take(ROWS) {
            let name = reason.map_or("unknown".into(), ExitReason::name);
            let cells = vec![
                used.count.to_string(),
                time(used.host_ns),
                time(used.took_ns),
                time(used.longest_ns),
                used.to_vmm.to_string(),
            ];
            table.row(&name, cells);
        }
        page.table(&table);
        let more = exits.len().saturating_sub(ROWS);
        if more > 0 {
            page.line(&format!("  and {more} more reasons"));
        }
    }

    fn longest(&self, title: &str, slices: &[Slice], page: &mut Page) {
        if slices.is_empty() {
            return;
        }
        page.chapter(title);
        let began_ns = self.summary.began_ns;
        for slice in slices {
            let Track::Thread(tid) = slice.track else {
                continue;
            };
            let thread = self.summary.threads.iter().find(|one| one.actor.tid == tid);
            let name = thread.map_or_else(String::new, |thread| thread.actor.title());
            let at = seconds(slice.from_ns.saturating_sub(began_ns));
            let rival = slice.peer.map_or_else(String::new, |peer| {
                if peer.tid == 0 {
                    ", the CPU was idle".to_owned()
                } else {
                    format!(", {} ({}) ran there", peer.name, peer.tid)
                }
            });
            let line = format!(
                "  {:>9} {name} ({tid}) at {at:.3} s{rival}",
                time(slice.took_ns())
            );
            page.line(&printable(&line));
        }
    }

    /// Compares the CPU time in the trace with the kernel's count.
    fn comparison(&self, page: &mut Page) {
        let threads = self.summary.threads.iter();
        let known: Vec<(u64, u64)> = threads
            .filter_map(|one| Some((one.split.running_ns, *self.counted_ns.get(&one.actor.tid)?)))
            .collect();
        let (traced, counted) = known.iter().fold((0, 0), |sum, one| plus(sum, *one));
        page.chapter("compared with the kernel's counters");
        let share = 100.0 * ratio(traced, counted);
        page.line(&format!(
            "  CPU time {} of {} ({share:.1} %)",
            time(traced),
            time(counted)
        ));
        let guests = self
            .summary
            .threads
            .iter()
            .filter_map(|one| one.split.guest);
        let (traced, counted) = guests.fold((0, 0), |sum, one| {
            plus(sum, (one.exits_recorded, one.exits_counted.unwrap_or(0)))
        });
        if counted > 0 {
            page.line(&format!("  exits {traced} of {counted}"));
        }
    }
}

/// Adds two pairs.
fn plus(one: (u64, u64), two: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(two.0), one.1.saturating_add(two.1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustc_hash::FxHashMap;
    use virtlens_model::timeline::{Actor, Event, ExitReason, Lost, Off, Peer, Timeline, What};
    use virtlens_model::vocab::Comm;

    use super::Report;
    use crate::term::Style;

    fn actor(tid: u32, name: &str, vcpu: Option<u32>) -> Actor {
        Actor {
            tid,
            process: 1,
            name: Comm::new(name),
            role: None,
            vcpu,
            device: None,
            groups: Arc::default(),
        }
    }

    /// A vCPU that halts for most of 10 s, and a thread that waited for it.
    fn report() -> Report {
        let peer = Peer {
            tid: 2,
            name: Comm::new("CPU 0/KVM"),
        };
        let exit = What::Exit {
            reason: Some(ExitReason {
                is_svm: false,
                code: 12,
            }),
            counted: 1,
            poll_ns: 0,
        };
        let sleeps = What::Off {
            into: Off::Sleeping,
            stands: None,
            before: peer,
        };
        let woken = What::Woken { stands: None };
        let steps = [
            (1000, 2, What::Entry),
            (2000, 2, exit),
            (2500, 2, sleeps),
            (3000, 1, woken),
            (3250, 1, What::On { after: peer }),
            (3500, 1, sleeps),
        ];
        let actors = vec![actor(1, "qemu", None), actor(2, "CPU 0/KVM", Some(0))];
        let mut pieces = Vec::new();
        let mut timeline = Timeline::new(0, actors, &mut pieces);
        for (ms, tid, what) in steps {
            let event = Event {
                time_ns: ms * 1_000_000,
                tid,
                pcpu: 0,
                lost: Lost::default(),
                what,
            };
            timeline.feed(&event, &mut pieces);
        }
        Report {
            name: "shop/web-0".to_owned(),
            node: "node-a".to_owned(),
            summary: timeline.end(10_000_000_000, 0, |_| false, &mut pieces),
            counted_ns: FxHashMap::from_iter([(1, 250_000_000), (2, 2_500_000_000)]),
            lacks: Vec::new(),
            knows_throttle: true,
            end: None,
            bytes: 2048,
            file: "web.pftrace".to_owned(),
        }
    }

    #[test]
    fn summary_splits_time_by_state() {
        let expected = "\
shop/web-0 on node-a: 10.0 s, 6 events, 0 lost
web.pftrace: 2.0 KiB; open it at https://ui.perfetto.dev

vCPUs, % of the time  guest  host  poll  wait  throttled  idle
  CPU 0/KVM            10.0  15.0   0.0   0.0        0.0  75.0

other threads, % of their time  running  wait  throttled  sleep
  qemu (1)                          2.5   2.5        0.0   95.0

exits, by host time  count      host  with sleep  longest  to VMM
  unknown                1    1.00 s      1.00 s   1.00 s       0
  HLT                    1  500.0 ms      8.00 s   8.00 s       0

longest waits for a CPU
   250.0 ms qemu (1) at 3.000 s, CPU 0/KVM (2) ran there

compared with the kernel's counters
  CPU time 2.75 s of 2.75 s (100.0 %)
  exits 1 of 1
";
        assert_eq!(report().text(Style::default()), expected);
    }

    #[test]
    fn untraced_throttling_is_shown_as_unknown() {
        let report = Report {
            knows_throttle: false,
            ..report()
        };
        let text = report.text(Style::default());
        for row in [
            "  CPU 0/KVM            10.0  15.0   0.0   0.0          ?  75.0\n",
            "  qemu (1)                          2.5   2.5          ?   95.0\n",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}
