//! `virtlens top`: a live view of all VMs or one.
//!
//! ```text
//! collector ─► history ─► state ◄─ keys
//!                           └─► fleet · vm ─► terminal
//! ```
//!
//! It reads the host itself: it works without the agent and never disturbs a running one.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use virtlens_model::snapshot::Snapshot;

use crate::collect::Collector;
use crate::term::printable;
use crate::views::pick::pick;
use crate::views::shortfall::shortfalls;

pub mod fleet;
pub mod history;
pub mod rows;
pub mod state;
mod terminal;
pub mod theme;
mod tracing;
pub mod vm;

use self::rows::FLAGS;
pub use self::state::INTERVALS;
use self::state::{Action, Top, View};
use self::terminal::{Input, Terminal};
use self::theme::Theme;
use self::tracing::Tracing;

/// Length of the interval that findings cover, except for the first ones.
const JUDGED_EVERY: Duration = Duration::from_secs(5);

/// Time until the first findings.
const JUDGED_FIRST: Duration = Duration::from_secs(2);

/// Maximum delay until a signal is handled.
const SIGNALS_SEEN_AFTER: Duration = Duration::from_millis(500);

/// Whether there is a terminal for output and input.
pub fn has_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Shows the host's VMs, or the one called `wanted`, until a key ends the program.
///
/// # Errors
///
/// If there is no VM of that name, or the terminal cannot be used.
pub fn run(
    collector: &mut Collector,
    wanted: Option<&str>,
    interval: Duration,
    theme: Theme,
) -> anyhow::Result<()> {
    let first = collector.collect_judged();
    let wanted = wanted
        .map(|name| pick(&first.vms, Some(name)))
        .transpose()?;
    let vm = wanted.as_ref().and_then(|picked| picked.first());
    let view = vm.map_or(View::Fleet, |vm| View::Vm(Arc::clone(&vm.vm)));
    let mut top = Top::new(interval, view);
    top.add(first);
    // Without handlers these signals would end the program without restoring the
    // terminal.
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        flag::register(signal, Arc::clone(&is_over)).context("cannot handle signals")?;
    }
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let ended = live(collector, &mut top, &is_over, |top| {
        terminal
            .draw(|frame| draw(top, theme, frame))
            .map(|_| ())
            .context("cannot draw on the terminal")
    });
    ratatui::restore();
    ended
}

fn live(
    collector: &mut Collector,
    top: &mut Top,
    is_over: &AtomicBool,
    mut show: impl FnMut(&mut Top) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut read, mut judged) = (Instant::now(), Instant::now());
    let mut judge_after = JUDGED_FIRST;
    let mut trace: Option<Tracing> = None;
    let input = Terminal::open()?;
    while !is_over.load(Ordering::Relaxed) {
        show(top)?;
        let left = top.interval.saturating_sub(read.elapsed());
        match input.wait(left.min(SIGNALS_SEEN_AFTER))? {
            Input::Event(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                match top.press(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Save) => save(top),
                    Some(Action::Trace) => follow(top, &mut trace, collector),
                    None => {}
                }
            }
            Input::HungUp => return Ok(()),
            Input::Event(_) | Input::Nothing => {}
        }
        if let Some(message) = trace.as_mut().and_then(Tracing::ended) {
            top.message = message;
            trace = None;
        }
        if read.elapsed() >= top.interval {
            read = Instant::now();
            let reading = if judged.elapsed() >= judge_after {
                judged = read;
                judge_after = JUDGED_EVERY;
                collector.collect_judged()
            } else {
                collector.collect()
            };
            top.add(reading);
        }
    }
    Ok(())
}

/// Writes the displayed reading to a new file in the working directory, as JSON.
fn save(top: &mut Top) {
    let Some(reading) = top.shown().map(Arc::clone) else {
        return;
    };
    top.message = match write(&reading) {
        Ok(path) => format!("saved {}", path.display()),
        Err(error) => format!("cannot save: {error:#}"),
    };
}

/// Starts a trace of the selected VM; only one runs at a time.
fn follow(top: &mut Top, trace: &mut Option<Tracing>, collector: &Collector) {
    let name = top.looked_at();
    let newest = top.history.at(0);
    let vm = newest.and_then(|newest| {
        let mut vms = newest.vms.iter().filter(|vm| vm.running);
        Some((vms.find(|vm| Some(&vm.vm) == name.as_ref())?, stamp(newest)))
    });
    top.message = match (&trace, vm) {
        (Some(trace), _) => trace.text(),
        (None, None) => "no VM to trace".to_owned(),
        (None, Some((vm, time))) => match Tracing::start(vm, &time, collector) {
            Ok(begun) => trace.insert(begun).text(),
            Err(error) => format!("cannot trace: {error:#}"),
        },
    };
}

/// Time of a reading, for a file name.
fn stamp(reading: &Snapshot) -> String {
    let time = reading.time.chars().filter(char::is_ascii_alphanumeric);
    time.take(18).collect()
}

fn write(reading: &Snapshot) -> anyhow::Result<PathBuf> {
    let time = stamp(reading);
    let path = Path::new(".").join(format!("virtlens-{time}.json"));
    let text = serde_json::to_string_pretty(reading)? + "\n";
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Draws the screen.
pub fn draw(top: &mut Top, theme: Theme, frame: &mut Frame) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
    let width = usize::from(body.width);
    let height = usize::from(body.height);
    top.page = height.saturating_sub(2).max(1);
    frame.render_widget(theme.readable(caption(top, theme)), head);
    let lines: Vec<Line> = if top.shows_help {
        help(theme)
    } else if let View::Vm(name) = &top.view {
        let name = Arc::clone(name);
        let lines = vm::lines(top, &name, width, theme);
        top.scroll = top.scroll.min(lines.len().saturating_sub(height));
        lines.into_iter().skip(top.scroll).collect()
    } else {
        fleet::lines(top, width, height, theme)
    };
    let lines: Vec<Line> = lines.into_iter().map(|line| theme.readable(line)).collect();
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(theme.readable(footer(top, theme)), foot);
}

fn caption<'a>(top: &Top, theme: Theme) -> Line<'a> {
    let Some(reading) = top.shown() else {
        return Line::styled(" virtlens", theme.head());
    };
    let node = &reading.node;
    let vms = reading.vms.iter().filter(|vm| vm.running).count();
    let plural = if vms == 1 { "" } else { "s" };
    let lost: u64 = reading.dropped.iter().map(|one| one.count).sum();
    let lost = if lost > 0 {
        format!("  lost {lost}")
    } else {
        String::new()
    };
    let count = |is_up: bool| -> usize {
        let lacks = shortfalls(reading).into_iter();
        let such = lacks.filter(|one| one.up == is_up);
        such.map(|one| one.sources.len()).sum()
    };
    let off = match (count(false), count(true)) {
        (0, 0) => String::new(),
        (0, limited) => format!("  {limited} limited: see virtlens check"),
        (off, _) => format!("  {off} off: see virtlens check"),
    };
    let state = match top.paused {
        None => "live".to_owned(),
        Some(0) => "paused".to_owned(),
        Some(back) => format!("paused, {back} back"),
    };
    let secs = top.interval.as_secs_f64();
    Line::from(vec![
        Span::styled(
            format!(" virtlens  {}", printable(&node.name)),
            theme.head(),
        ),
        Span::raw(format!(
            "  {vms} VM{plural}  {} CPUs  every {secs} s  ",
            node.cpus
        )),
        Span::styled(state, theme.head()),
        Span::styled(lost + &off, theme.warning()),
    ])
}

fn footer<'a>(top: &Top, theme: Theme) -> Line<'a> {
    if !top.message.is_empty() {
        return Line::styled(format!(" {}", top.message), theme.head());
    }
    if top.is_filtering {
        return Line::styled(
            format!(" /{}_  Enter applies, Esc clears", top.filter),
            theme.head(),
        );
    }
    let filter = if top.filter.is_empty() {
        String::new()
    } else {
        format!("  filter: {}", top.filter)
    };
    let keys = match (&top.view, top.paused) {
        (_, Some(_)) => " Left/Right step  Space live  o save  ? help  q quit",
        (View::Fleet, None) => {
            " Enter VM  / filter  s sort  Space pause  +- interval  ? help  q quit"
        }
        (View::Vm(_), None) => {
            " Esc list  j k scroll  Space pause  o save  t trace  +- interval  ? help  q quit"
        }
    };
    Line::styled(format!("{keys}{filter}"), theme.faint())
}

fn help<'a>(theme: Theme) -> Vec<Line<'a>> {
    const KEYS: [(&str, &str); 13] = [
        (
            "j k Up Down",
            "move; scroll within a VM (also PgUp PgDn, g G)",
        ),
        ("Enter", "show the VM's details"),
        ("Esc", "return; in the list clear the filter"),
        ("/ F4", "show VMs whose name contains a text"),
        ("s < > F6", "sort by another column"),
        ("S", "reverse the order"),
        ("Space p", "pause or resume"),
        ("Left Right", "previous or next reading"),
        ("+ -", "longer or shorter interval (100 ms to 10 s)"),
        (
            "o",
            "save the displayed reading as JSON in the working directory",
        ),
        (
            "t",
            "trace the VM for 10 s into a file in the working directory",
        ),
        ("? h F1", "show or hide this help"),
        ("q F10 Ctrl-C", "quit"),
    ];
    let mut lines = vec![Line::styled(" Keys", theme.head())];
    let line = |(key, text): (&str, &str)| Line::raw(format!("   {key:<14} {text}"));
    lines.extend(KEYS.map(line));
    lines.push(Line::raw(""));
    let text = " Flags: upper case is a warning, lower case is information";
    lines.push(Line::styled(text, theme.head()));
    lines.extend(FLAGS.chunks(2).map(|pair| {
        let parts = pair
            .iter()
            .map(|(flag, text)| format!("   {flag}  {text:<24}"));
        Line::raw(parts.collect::<String>())
    }));
    lines
}
