//! The commands of `kubectl virtlens`.

use std::cell::RefCell;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use virtlens_kube::histories;
use virtlens_model::judge::past::Past;
use virtlens_model::snapshot::{API_VERSION, Snapshot, Vm};

use super::args::{DoctorArgs, SnapshotArgs, TopArgs, TopologyArgs};
use super::readings::{times_of, usage, usage_at};
use super::target::Target;
use crate::cli::compare::{Wanted, diagnose_remote};
use crate::cli::live::{interval_of, report, window_of};
use crate::cli::past::Judged;
use crate::cli::remote::{JUDGED_EVERY, recorded_time};
use crate::cli::stdout::{print, table_style};
use crate::config::Config;
use crate::moment::unix_ns_of;
use crate::views::doctor::{Diagnosis, text_of_nodes};
use crate::views::snapshot::Output;
use crate::views::table::{NodeReading, render_nodes};
use crate::views::top::theme::Theme;
use crate::views::{doctor, pick, snapshot, top, topology};

/// Objects of several nodes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'i, T> {
    api_version: &'static str,
    kind: &'static str,
    items: &'i [T],
}

fn json<T: Serialize>(kind: &'static str, items: &[T]) -> anyhow::Result<String> {
    let list = List {
        api_version: API_VERSION,
        kind,
        items,
    };
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

pub(super) fn snapshot(target: &Target, args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    target.report_missing();
    let interval = args.interval.map(|span| span.0);
    let at = args.at.map(|at| at.instant(Timestamp::now()));
    let nodes = match at {
        Some(at) => usage_at(target, at, interval)?,
        None => usage(target, interval)?,
    };
    let times = match (at, args.output) {
        (Some(_), Output::Table) => times_of(nodes.iter().map(|(node, now, _)| (&**node, now))),
        _ => String::new(),
    };
    print(&(times + &text(&nodes, args.output)?))?;
    Ok(target.code(nodes.len()))
}

fn text(nodes: &[NodeReading], output: Output) -> anyhow::Result<String> {
    match (nodes, output) {
        ([(_, now, before)], _) => snapshot::of(now, before.as_ref(), output, table_style()),
        (_, Output::Table) => Ok(render_nodes(nodes, table_style())),
        (_, Output::Json) => {
            let items: Vec<&Snapshot> = nodes.iter().map(|(_, now, _)| now).collect();
            json("SnapshotList", &items)
        }
    }
}

pub(super) fn top(target: Target, args: &TopArgs) -> anyhow::Result<ExitCode> {
    let interval = interval_of(args.interval)?;
    if !top::has_terminal() {
        target.report_missing();
        let nodes = usage(&target, Some(interval))?;
        print(&text(&nodes, Output::Table)?)?;
        return Ok(target.code(nodes.len()));
    }
    let theme = Theme {
        color: table_style().color,
        ascii: args.ascii,
    };
    let Target {
        agents,
        missing,
        namespace,
        pod,
        reported: _,
    } = target;
    match (pod, agents.first()) {
        (Some(pod), Some(agent)) => {
            top::run_remote(agent.remote.clone(), Some(&pod), interval, theme)?;
        }
        _ => top::run_cluster(agents, missing, namespace, interval, theme)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn topology(target: &Target, args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    target.report_missing();
    let view = topology::View {
        style: table_style(),
        ascii: args.ascii,
    };
    let at = args.at.map(|at| at.instant(Timestamp::now()));
    let (readings, times) = match at {
        Some(at) => {
            let readings = target.read_at(at)?;
            let nodes = readings.iter().map(|(node, reading)| (&**node, reading));
            let times = times_of(nodes);
            (readings, times)
        }
        None => (target.read()?, String::new()),
    };
    let drawn = readings
        .iter()
        .map(|(_, reading)| topology::render(reading, |_| true, view));
    print(&(times + &drawn.collect::<Vec<_>>().join("\n")))?;
    Ok(target.code(readings.len()))
}

pub(super) fn diagnose(
    target: &Target,
    args: &DoctorArgs,
    config: &Config,
) -> anyhow::Result<ExitCode> {
    target.report_missing();
    if let (Some(against), Some(agent)) = (args.against, target.agents.first()) {
        let wanted = Wanted {
            vm: target.pod.as_deref(),
            output: args.output,
        };
        let time = (args.since, args.until);
        return diagnose_remote(&agent.remote, time, against, &wanted);
    }
    let judged = if args.since.is_some() || args.until.is_some() {
        past(target, args)?
    } else {
        present(target, args)?
    };
    let finished: Vec<(String, Snapshot, Past, Duration)> = judged
        .into_iter()
        .filter_map(|(node, judged)| {
            let (snapshot, past, window) = judged.finish()?;
            Some((node, snapshot, past, window))
        })
        .collect();
    let mut nodes = Vec::new();
    for (node, snapshot, past, window) in &finished {
        let vms: Vec<&Vm> = pick::pick(&snapshot.vms, target.pod.as_deref())?;
        let diagnosis = Diagnosis::new(snapshot, &vms, *window, &config.bounds).held(past);
        nodes.push((node.clone(), diagnosis, snapshot));
    }
    let code = match (nodes.as_slice(), args.output) {
        ([], _) => anyhow::bail!("no reading"),
        ([(_, diagnosis, snapshot)], _) => return report(diagnosis, snapshot, args.output),
        (_, doctor::Output::Text) => print(&text_of_nodes(&nodes, table_style()))?,
        (_, doctor::Output::Json) => {
            let items: Vec<_> = nodes.iter().map(|(_, diagnosis, _)| diagnosis).collect();
            print(&json("DiagnosisList", &items)?)?
        }
    };
    if nodes
        .iter()
        .any(|(_, diagnosis, _)| diagnosis.has_findings())
    {
        return Ok(ExitCode::from(2));
    }
    Ok(if target.is_complete(nodes.len()) {
        code
    } else {
        ExitCode::FAILURE
    })
}

type JudgedNodes = Vec<(String, Judged)>;

/// Judges the readings of the next time.
fn present(target: &Target, args: &DoctorArgs) -> anyhow::Result<JudgedNodes> {
    let (begun, window) = (Instant::now(), window_of(args.window)?);
    let mut judged: JudgedNodes = Vec::new();
    loop {
        for (node, reading) in target.read()? {
            let unix_ns = unix_ns_of(&reading);
            let known = judged.iter().position(|(name, _)| *name == node);
            let number = known.unwrap_or_else(|| {
                judged.push((node, Judged::default()));
                judged.len() - 1
            });
            judged[number].1.add(reading, unix_ns);
        }
        let left = window.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(judged);
        }
        sleep(left.min(JUDGED_EVERY));
    }
}

/// Judges the recorded readings of a time.
fn past(target: &Target, args: &DoctorArgs) -> anyhow::Result<JudgedNodes> {
    let (since, until) = recorded_time(args.since, args.until)?;
    let judged: Vec<RefCell<Judged>> = target.agents.iter().map(|_| RefCell::default()).collect();
    let vm = target.pod.as_deref();
    let lost = histories(&target.agents, vm, &since, &until, |number, mut reading| {
        // A VM that is not in this reading may be in others.
        if target.select(&mut reading).is_ok() {
            let unix_ns = unix_ns_of(&reading);
            if let Some(judged) = judged.get(number) {
                judged.borrow_mut().add(reading, unix_ns);
            }
        }
    });
    for (agent, lost) in target.answered(lost)? {
        for error in lost {
            target.report(&agent.node, &error);
        }
    }
    let all = target.agents.iter().zip(judged);
    let all = all.map(|(agent, judged)| (agent.node.clone(), judged.into_inner()));
    let judged: JudgedNodes = all.filter(|(_, judged)| !judged.is_empty()).collect();
    (!judged.is_empty())
        .then_some(judged)
        .with_context(|| format!("no reading between {since} and {until}"))
}
