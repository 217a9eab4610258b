//! `virtlens top`: a view of all VMs or one, live or in a recording.
//!
//! ```text
//! this host ───┐
//! other agent ─┼► feed ─► history ─► state ◄─ keys
//! recording ───┘                       └─► fleet · vm · timeline ─► terminal
//! ```
//!
//! It reads the host itself: it works without the agent and never disturbs a running one.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use virtlens_kube::{NodeAgent, Remote};
use virtlens_model::snapshot::Snapshot;
use virtlens_record::Recording;

use crate::collect::Collector;
use crate::term::printable;
use crate::views::pick::{NoSuchVm, pick};
use crate::views::shortfall::shortfalls;

mod feed;
pub mod fleet;
pub mod history;
mod keys;
pub mod lists;
pub mod nodes;
pub mod replay;
pub mod rows;
pub mod state;
mod terminal;
pub mod theme;
mod there;
pub mod timeline;
mod tracing;
pub mod vm;

use self::feed::{Feed, Live};
use self::nodes::{Mode, Node};
use self::replay::Replay;
pub use self::state::INTERVALS;
use self::state::{Action, Top, View};
use self::terminal::{Input, Terminal};
use self::theme::Theme;
use self::there::There;
pub use self::there::keep;
use self::timeline::Timeline;
use self::tracing::Tracing;

/// Maximum delay until a signal is handled.
const SIGNALS_SEEN_AFTER: Duration = Duration::from_millis(500);

/// Lowest screen with the time line of a recording, lines.
const WITH_TIMELINE: u16 = 8;

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
    let mut top = Top::new(interval, view_of(&first, wanted)?);
    top.add(first);
    show(&mut Live::new(collector), &mut top, theme)
}

/// Shows the readings of another node's agent, as [`run`] shows the host.
///
/// # Errors
///
/// If the agent does not answer or has no VM of that name, or if the terminal cannot be used.
pub fn run_remote(
    agent: Remote,
    wanted: Option<&str>,
    interval: Duration,
    theme: Theme,
) -> anyhow::Result<()> {
    let first = Arc::new(agent.snapshot(None)?);
    let mut top = Top::new(interval, view_of(&first, wanted)?);
    top.add(first);
    let node = String::new();
    let agents = vec![NodeAgent {
        node,
        remote: agent,
    }];
    let mut feed = There::start(agents, None, &top)?;
    show(&mut feed, &mut top, theme)
}

/// Shows the readings of several nodes' agents, as [`run`] shows the host: the VMs of a
/// namespace, or all. The nodes that are `missing` have no agent.
///
/// # Errors
///
/// If the terminal cannot be used.
pub fn run_cluster(
    agents: Vec<NodeAgent>,
    missing: Vec<String>,
    namespace: Option<String>,
    interval: Duration,
    theme: Theme,
) -> anyhow::Result<()> {
    let names: Vec<String> = agents.iter().map(|agent| agent.node.clone()).collect();
    let mut top = Top::of_cluster(interval, names);
    top.nodes.extend(missing.into_iter().map(|name| Node {
        name: name.into(),
        silence: Some("no running agent".to_owned()),
        ..Node::default()
    }));
    let mut feed = There::start(agents, namespace, &top)?;
    show(&mut feed, &mut top, theme)
}

/// Shows a recording from the position of the time line on, as [`run`] shows the host.
/// `message` is shown until the first key.
///
/// # Errors
///
/// If the reading has no VM of that name, or the terminal cannot be used.
pub fn run_recorded(
    recording: Recording,
    timeline: Timeline,
    wanted: Option<&str>,
    message: String,
    theme: Theme,
) -> anyhow::Result<()> {
    let mut replay = Replay::new(recording);
    let mut top = Top::new(Duration::ZERO, View::Fleet);
    (top.timeline, top.message) = (Some(timeline), message);
    replay.follow(&mut top);
    match top.shown() {
        Some(first) => top.view = view_of(first, wanted)?,
        None => anyhow::bail!("{}", top.message),
    }
    show(&mut replay, &mut top, theme)
}

/// The screen of the VM called `wanted`, or of all.
fn view_of(reading: &Snapshot, wanted: Option<&str>) -> Result<View, NoSuchVm> {
    let wanted = wanted.map(|name| pick(&reading.vms, Some(name)));
    let picked = wanted.transpose()?;
    let vm = picked.as_ref().and_then(|picked| picked.first());
    Ok(vm.map_or(View::Fleet, |vm| View::Vm((&*vm.vm).into())))
}

/// Shows the readings on the terminal until a key or a signal ends the program.
fn show(feed: &mut dyn Feed, top: &mut Top, theme: Theme) -> anyhow::Result<()> {
    // Without handlers these signals would end the program without restoring the
    // terminal.
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        flag::register(signal, Arc::clone(&is_over)).context("cannot handle signals")?;
    }
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let ended = follow(feed, top, &is_over, |top| {
        terminal
            .draw(|frame| draw(top, theme, frame))
            .map(|_| ())
            .context("cannot draw on the terminal")
    });
    ratatui::restore();
    ended
}

fn follow(
    feed: &mut dyn Feed,
    top: &mut Top,
    is_over: &AtomicBool,
    mut show: impl FnMut(&mut Top) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut trace: Option<Tracing> = None;
    let input = Terminal::open()?;
    while !is_over.load(Ordering::Relaxed) {
        show(top)?;
        match input.wait(feed.due_in(top).min(SIGNALS_SEEN_AFTER))? {
            Input::Event(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                match top.press(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Save) => save(top),
                    Some(Action::Trace) => start_trace(top, &mut trace, feed),
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
        feed.update(top);
    }
    Ok(())
}

/// Writes the displayed reading to a new file in the working directory, as JSON.
fn save(top: &mut Top) {
    let Some(reading) = top.shown().map(Arc::clone) else {
        if top.is_cluster() {
            "open a VM to save the reading of its node".clone_into(&mut top.message);
        }
        return;
    };
    top.message = match write(&reading) {
        Ok(path) => format!("saved {}", path.display()),
        Err(error) => format!("cannot save: {error:#}"),
    };
}

/// Starts a trace of the selected VM; only one runs at a time.
fn start_trace(top: &mut Top, trace: &mut Option<Tracing>, feed: &dyn Feed) {
    let looked_at = top.looked_at();
    let vm = looked_at.and_then(|id| {
        let node = top.nodes.get(id.node)?;
        let mut rows = node.rows(id.node).into_iter();
        let row = rows.find(|row| row.is_running && row.is(Some(&id)))?;
        Some((row.into_owned(), stamp(node.time()?)))
    });
    top.message = match (&trace, vm) {
        (Some(trace), _) => trace.text(),
        (None, None) => "no VM to trace".to_owned(),
        (None, Some((vm, time))) => match feed.trace(&vm, &time) {
            Ok(begun) => trace.insert(begun).text(),
            Err(error) => format!("cannot trace: {error:#}"),
        },
    };
}

/// Time of a reading, for a file name.
fn stamp(time: &str) -> String {
    let time = time.chars().filter(char::is_ascii_alphanumeric);
    time.take(18).collect()
}

fn write(reading: &Snapshot) -> anyhow::Result<PathBuf> {
    let time = stamp(&reading.time);
    let path = Path::new(".").join(format!("virtlens-{time}.json"));
    let text = serde_json::to_string_pretty(reading)? + "\n";
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Draws the screen.
pub fn draw(top: &mut Top, theme: Theme, frame: &mut Frame) {
    let has_room = frame.area().height >= WITH_TIMELINE && !top.shows_help;
    let timeline = top.timeline.as_ref().filter(|_| has_room);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(if timeline.is_some() { 2 } else { 0 }),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, line, body, foot] = Layout::vertical(rows).areas(frame.area());
    let width = usize::from(body.width);
    let height = usize::from(body.height);
    if let Some(timeline) = timeline {
        let lines = timeline.lines(width, theme).to_vec();
        frame.render_widget(Paragraph::new(lines), line);
    }
    top.page = height.saturating_sub(2).max(1);
    frame.render_widget(theme.readable(caption(top, theme)), head);
    let lines: Vec<Line> = if top.shows_help {
        keys::help(top, theme)
    } else if let View::Vm(id) = &top.view {
        let name = Arc::clone(&id.vm);
        let lines = vm::lines(top, &name, width, theme);
        top.scroll = top.scroll.min(lines.len().saturating_sub(height));
        lines.into_iter().skip(top.scroll).collect()
    } else {
        fleet::lines(top, width, height, theme)
    };
    let lines: Vec<Line> = lines.into_iter().map(|line| theme.readable(line)).collect();
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(theme.readable(keys::footer(top, theme)), foot);
}

fn caption<'a>(top: &Top, theme: Theme) -> Line<'a> {
    if top.is_cluster() && top.view == View::Fleet {
        return caption_of_cluster(top, theme);
    }
    let recorded = top.timeline.as_ref().map(Timeline::state);
    let Some(reading) = top.shown() else {
        let state = recorded.unwrap_or_default();
        return Line::styled(format!(" virtlens  {state}"), theme.head());
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
    let every = match &recorded {
        None => format!("  every {} s", top.interval.as_secs_f64()),
        Some(_) => String::new(),
    };
    let state = recorded.unwrap_or_else(|| state(top));
    Line::from(vec![
        Span::styled(
            format!(" virtlens  {}", printable(&node.name)),
            theme.head(),
        ),
        Span::raw(format!("  {vms} VM{plural}  {} CPUs{every}  ", node.cpus)),
        Span::styled(state, theme.head()),
        Span::styled(lost + &off, theme.warning()),
    ])
}

/// Whether the screen is live.
fn state(top: &Top) -> String {
    match (top.mode, top.back()) {
        (Mode::Live, _) => "live".to_owned(),
        (Mode::Paused, 0) => "paused".to_owned(),
        (Mode::Paused, back) => format!("paused, {back} back"),
    }
}

/// The caption of a cluster, with the nodes that do not answer.
fn caption_of_cluster<'a>(top: &Top, theme: Theme) -> Line<'a> {
    let lists = || {
        let nodes = top.nodes.iter();
        nodes.filter_map(|node| node.lists.at(node.list_back))
    };
    let vms = lists().flat_map(|listed| &listed.rows);
    let vms = vms.filter(|row| row.is_running).count();
    let nodes = lists().count();
    let every = top.interval.as_secs_f64();
    let silent = top.nodes.iter().filter(|node| node.silence.is_some());
    let silent: Vec<_> = silent.map(|node| printable(&node.name)).collect();
    let silence = if silent.is_empty() {
        String::new()
    } else {
        format!("  {} not answering: {}", silent.len(), silent.join(", "))
    };
    Line::from(vec![
        Span::styled(
            format!(" virtlens  {nodes} of {} nodes", top.nodes.len()),
            theme.head(),
        ),
        Span::raw(format!("  VMs: {vms}  every {every} s  ")),
        Span::styled(state(top), theme.head()),
        Span::styled(silence, theme.warning()),
    ])
}
