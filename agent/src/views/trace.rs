//! `virtlens trace`: records all events of one VM for a short time, as a file for the
//! Perfetto viewer and a summary.
//!
//! ```text
//! participants ─► Tracer ─ events ─► Timeline ─ pieces ─► Writer ─► file
//!                collector ─ counters ───────────┘  └─► Summary ─► report
//! ```

mod co_stop;
mod counters;
mod file;
mod order;
mod participants;
mod report;
mod text;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::flag;
use virtlens_export::timeline::{Clocks, Title, Writer};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::timeline::{Counter, Event, Piece, Summary, Timeline};
use virtlens_probe::trace::Tracer;

use self::counters::Counters;
use self::file::Output;
pub use self::order::Order;
use self::participants::Participants;
pub use self::report::Report;
use crate::collect::Collector;
use crate::views::pick::{name_of, pick};

/// Interval between reads of the kernel's ring buffer. At the rate limit of the programs
/// a CPU fills 2 % of the buffer in this time.
const DRAIN_EVERY: Duration = Duration::from_millis(20);

/// Minimum interval between readings of the host, which provide the values: the usual
/// period of a quota. If readings are slow, the interval grows so that they use 2 % of a
/// CPU.
const READ_EVERY: Duration = Duration::from_millis(100);
const READ_REST: u32 = 50;

/// Limit on the repetitions of the thread list while new threads start.
const ROUNDS: usize = 5;

/// Reason for the end of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Time,
    Size,
    Signal,
    VmGone,
}

/// Traces a VM and returns the data of the summary.
///
/// # Errors
///
/// If there is no such VM, the kernel rejects the programs, or the file cannot be
/// written.
pub fn run(collector: &mut Collector, order: &Order) -> anyhow::Result<Report> {
    let is_over = signals()?;
    let first = collector.collect();
    let vm = the_one(&first, &order.vm)?;
    let tracer = Tracer::load(collector.loader(), collector.kernel());
    let mut tracer = tracer.context("cannot trace on this host")?;
    let name = name_of(vm);

    let mut participants = Participants::of(vm, collector);
    // Lists the threads again, since a thread that starts between the list and the
    // attachment of the programs would be missed.
    for round in 0.. {
        tracer.follow(&participants.tids(), &participants.groups())?;
        tracer.attach()?;
        if !participants.grow(collector) || round == ROUNDS {
            break;
        }
        tracer.detach();
    }
    // After the steps that can fail, so that no empty file remains and no older file is
    // lost.
    let mut output = Output::create(order.file.as_deref(), &name)?;
    let before = collector.collect();
    let began = clocks();
    let then_ns = participants.cpu_ns(collector);
    let title = Title {
        vm: name.clone(),
        processes: participants.processes.clone(),
        quotas: participants.quotas.clone(),
        began,
    };
    let mut pieces = Vec::new();
    let timeline = Timeline::new(began.monotonic_ns, participants.actors.clone(), &mut pieces);
    let mut take = Take {
        writer: Writer::new(title, &mut output.bytes),
        counters: Counters::new(&before, &vm.vm, participants.paths.clone()),
        timeline,
        pieces,
        output,
        lost: 0,
    };
    let end = take.follow(collector, &mut tracer, order, &name, &is_over)?;
    let mut counted_ns = participants.cpu_ns(collector);
    let (summary, output) = take.end(&mut tracer, collector)?;
    counted_ns.retain(|tid, ns| {
        let then_ns = then_ns.get(tid).copied();
        *ns = ns.saturating_sub(then_ns.unwrap_or(0));
        then_ns.is_some()
    });
    Ok(Report {
        name,
        node: before.node.name.clone(),
        counted_ns,
        summary,
        lacks: tracer.lacks().to_vec(),
        knows_throttle: tracer.reports_throttling(),
        end: end.text(order),
        bytes: output.written,
        file: output.name.clone(),
    })
}

/// Writes a trace that another node took, as [`run`] does: to `file`, or to a new file named after
/// the VM. Returns a text that names the file.
///
/// # Errors
///
/// If the file cannot be written.
pub fn save(file: Option<&Path>, vm: &str, trace: Vec<u8>) -> anyhow::Result<String> {
    let mut output = Output::create(file, vm)?;
    output.bytes = trace;
    output.flush()?;
    let (size, name) = (text::bytes(output.written), &output.name);
    Ok(format!("trace: {name}, {size}"))
}

/// A running trace.
struct Take {
    timeline: Timeline,
    counters: Counters,
    writer: Writer,
    pieces: Vec<Piece>,
    output: Output,
    lost: u64,
}

impl Take {
    fn follow(
        &mut self,
        collector: &mut Collector,
        tracer: &mut Tracer,
        order: &Order,
        name: &str,
        is_over: &AtomicBool,
    ) -> anyhow::Result<End> {
        let (began, mut read) = (Instant::now(), Instant::now());
        let mut rest = READ_EVERY;
        let is_watched = std::io::stderr().is_terminal();
        let end = loop {
            let left = order.window.saturating_sub(began.elapsed());
            std::thread::sleep(DRAIN_EVERY.min(left));
            self.drain(tracer, u64::MAX)?;
            if read.elapsed() >= rest {
                read = Instant::now();
                let snapshot = collector.collect();
                rest = READ_EVERY.max(read.elapsed() * READ_REST);
                let runs = self.counters.add(&snapshot, now_ns(), &mut self.pieces);
                self.write()?;
                if is_watched {
                    let (seconds, lost) = (began.elapsed().as_secs_f64(), self.lost);
                    let written = text::bytes(self.output.written);
                    eprint!("\r\x1b[Ktracing {name}: {seconds:.1} s, {written}, {lost} lost ");
                    eprint!("(Ctrl-C to stop)");
                }
                if !runs {
                    break End::VmGone;
                }
            }
            if is_over.load(Ordering::Relaxed) {
                break End::Signal;
            }
            if self.output.written >= order.max_bytes {
                break End::Size;
            }
            if began.elapsed() >= order.window {
                break End::Time;
            }
        };
        if is_watched {
            eprint!("\r\x1b[K");
        }
        Ok(end)
    }

    /// Processes the events up to `until_ns`.
    fn drain(&mut self, tracer: &mut Tracer, until_ns: u64) -> anyhow::Result<()> {
        let Self {
            timeline, pieces, ..
        } = self;
        tracer.drain(|event: Event| {
            if event.time_ns <= until_ns {
                timeline.feed(&event, pieces);
            }
        });
        let lost = tracer.lost();
        if lost != self.lost {
            #[allow(
                clippy::cast_precision_loss,
                reason = "a displayed number has few digits"
            )]
            let value = lost as f64;
            self.pieces.push(Piece::Count {
                time_ns: now_ns().min(until_ns),
                counter: Counter::Lost,
                value,
            });
            self.lost = lost;
        }
        self.write()
    }

    fn write(&mut self) -> anyhow::Result<()> {
        for piece in self.pieces.drain(..) {
            self.writer.write(&piece, &mut self.output.bytes);
        }
        self.output.flush()
    }

    /// Ends the timeline and the file.
    fn end(
        mut self,
        tracer: &mut Tracer,
        collector: &Collector,
    ) -> anyhow::Result<(Summary, Output)> {
        let now_ns = now_ns();
        tracer.detach();
        self.drain(tracer, now_ns)?;
        let runs = |tid| participants::is_running(collector.root(), tid);
        let summary = self.timeline.end(now_ns, self.lost, runs, &mut self.pieces);
        for piece in self.pieces.drain(..) {
            self.writer.write(&piece, &mut self.output.bytes);
        }
        self.output.flush()?;
        Ok((summary, self.output))
    }
}

impl End {
    /// Reason that a trace is shorter than ordered.
    fn text(self, order: &Order) -> Option<String> {
        match self {
            Self::Time => None,
            Self::Size => {
                let most = text::bytes(order.max_bytes);
                Some(format!(
                    "stopped early: the file reached {most} (--max-size)"
                ))
            }
            Self::Signal => Some("stopped early by a signal".to_owned()),
            Self::VmGone => Some("stopped early: the VM ended".to_owned()),
        }
    }
}

/// Returns a flag that signals set: no signal may end the program in the middle of the
/// file.
fn signals() -> anyhow::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
        flag::register(signal, Arc::clone(&is_over)).context("cannot handle signals")?;
    }
    Ok(is_over)
}

/// The running VM that is called `wanted`; there must be exactly one.
fn the_one<'s>(snapshot: &'s Snapshot, wanted: &str) -> anyhow::Result<&'s Vm> {
    let picked = pick(&snapshot.vms, Some(wanted))?;
    let running: Vec<&Vm> = picked.iter().copied().filter(|vm| vm.running).collect();
    match running[..] {
        [] => bail!("VM {wanted} has ended"),
        [one] => Ok(one),
        [..] => {
            let names: Vec<String> = running
                .iter()
                .map(|vm| format!("{} ({})", vm.vm, vm.pid))
                .collect();
            bail!(
                "name {wanted} matches {} VMs; select one by the pid of its VMM: {}",
                names.len(),
                names.join(", ")
            )
        }
    }
}

fn clocks() -> Clocks {
    Clocks {
        monotonic_ns: clock_ns(ClockId::Monotonic),
        boottime_ns: clock_ns(ClockId::Boottime),
        realtime_ns: clock_ns(ClockId::Realtime),
    }
}

fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
