//! `virtlens doctor`: the findings of an interval by rank, with the evidence, the rule,
//! the impact, the remedy and the next step.

mod found;
mod page;

use std::time::Duration;

use serde::Serialize;
use virtlens_model::judge::findings::Bounds;
use virtlens_model::judge::interval::is_same;
use virtlens_model::judge::past::Past;
use virtlens_model::snapshot::{API_VERSION, Check, Snapshot, Source, Vm};

use self::found::Found;
pub(super) use self::found::HeldTime;
pub(super) use self::page::Page;
use crate::term::{Style, printable};
use crate::views::pick::{name_of, whole_name_of};
use crate::views::shortfall::shortfalls;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// Versioned JSON for programs.
    Json,
}

/// The findings of one interval on the selected VMs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis<'s> {
    api_version: &'static str,
    kind: &'static str,
    /// End of the interval, RFC 3339, UTC.
    time: &'s str,
    node: &'s str,
    /// Length of the interval, ns.
    window_ns: u64,
    /// Number of judged VMs.
    judged_vms: usize,
    /// VMs that started or ended during the interval.
    unjudged_vms: Vec<String>,
    findings: Vec<Found<'s>>,
    /// Sources that are off or degraded. Checks that need their data are made without it
    /// or skipped.
    missing: Vec<&'s Source>,
}

impl<'s> Diagnosis<'s> {
    /// Collects the findings on `vms` in an interval that ended with `snapshot`.
    pub fn new(snapshot: &'s Snapshot, vms: &[&'s Vm], window: Duration, bounds: &Bounds) -> Self {
        let mut findings: Vec<Found> = vms
            .iter()
            .flat_map(|vm| {
                vm.findings
                    .iter()
                    .flat_map(|found| found.iter())
                    .map(|one| (*vm, one))
            })
            .map(|(vm, finding)| Found {
                namespace: vm.namespace.as_deref(),
                pod: vm.pod.as_deref(),
                uid: vm.uid.as_deref(),
                vm: &vm.vm,
                pid: vm.pid,
                finding,
                rule: bounds.rule_of(finding.check),
                impact: finding.check.about().impact,
                next: next(finding.check, &name_of(vm)),
                held: None,
                of: vm,
            })
            .collect();
        findings.sort_by(|a, b| a.finding.by_rank(b.finding));
        let unjudged = vms.iter().filter(|vm| vm.findings.is_none());
        Self {
            api_version: API_VERSION,
            kind: "Diagnosis",
            time: &snapshot.time,
            node: &snapshot.node.name,
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            judged_vms: vms.iter().filter(|vm| vm.findings.is_some()).count(),
            unjudged_vms: unjudged.map(|vm| whole_name_of(vm)).collect(),
            findings,
            missing: snapshot
                .sources
                .iter()
                .filter(|source| !source.up || !source.reason.is_empty())
                .collect(),
        }
    }

    /// Adds when the findings held, which are those of a past time.
    #[must_use]
    pub fn held(mut self, past: &Past) -> Self {
        for found in &mut self.findings {
            let mut vms = past.vms().iter();
            let of_vm = vms.find(|past| is_same(&past.vm, found.of));
            let held = of_vm.and_then(|past| past.held(found.finding.check));
            found.held = held.map(HeldTime::from);
        }
        self
    }

    /// Whether there are findings.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Formats the diagnosis as text: the VM with the worst finding first.
    pub fn text(&self, snapshot: &Snapshot, style: Style) -> String {
        let page = Page::new(style);
        let mut out = String::new();
        let (found, vms) = (self.findings.len(), self.judged_vms);
        page.summary(&mut out, self.node, found, vms, self.window_ns);
        let findings = self.findings.iter().map(|one| ("", one));
        page.findings(&mut out, &findings.collect::<Vec<_>>());
        self.gaps(&mut out, &page, snapshot, "");
        out
    }

    /// The VMs that were not judged, and sources that are off or degraded.
    fn gaps(&self, out: &mut String, page: &Page, snapshot: &Snapshot, node: &str) {
        if !self.unjudged_vms.is_empty() {
            out.push('\n');
            let names = self.unjudged_vms.join(", ");
            let text = format!("{node}not judged, started or ended during the interval: {names}");
            page.line(out, "", &text);
        }
        for lack in shortfalls(snapshot) {
            let text = format!("{node}{}", lack.line());
            page.line(out, "", &page.paint.warning(&text));
        }
    }
}

/// Formats the diagnoses of several nodes as one text: the VM with the worst finding first.
pub fn text_of_nodes(nodes: &[(String, Diagnosis<'_>, &Snapshot)], style: Style) -> String {
    let page = Page::new(style);
    let mut out = String::new();
    let of_nodes = || nodes.iter().map(|(_, diagnosis, _)| diagnosis);
    let found = of_nodes().map(|one| one.findings.len()).sum();
    let vms = of_nodes().map(|one| one.judged_vms).sum();
    let window_ns = of_nodes().map(|one| one.window_ns).max().unwrap_or(0);
    let head = format!("{} nodes", nodes.len());
    page.summary(&mut out, &head, found, vms, window_ns);
    let mut all: Vec<(&str, &Found)> = nodes
        .iter()
        .flat_map(|(name, diagnosis, _)| diagnosis.findings.iter().map(|one| (&**name, one)))
        .collect();
    all.sort_by(|(_, a), (_, b)| a.finding.by_rank(b.finding));
    page.findings(&mut out, &all);
    for (name, diagnosis, snapshot) in nodes {
        let name = printable(name);
        diagnosis.gaps(&mut out, &page, snapshot, &format!("{name}: "));
    }
    out
}

/// The command for further diagnosis of this VM.
pub(super) fn next(check: Check, name: &str) -> String {
    let next = check.about().next;
    [":", " --"].iter().fold(next.to_owned(), |next, end| {
        next.replace(&format!(" VM{end}"), &format!(" {name}{end}"))
    })
}

/// The checks with name, rule, impact and remedy, and the thresholds.
pub fn catalogue(bounds: &Bounds, style: Style) -> String {
    let page = Page::new(style);
    let mut out = String::new();
    for check in Check::ALL {
        let about = check.about();
        page.title(&mut out, about.severity, about.name);
        page.line(&mut out, "    ", &bounds.rule_of(check));
        page.line(&mut out, "    ", &format!("why: {}", about.impact));
        page.line(&mut out, "    ", &format!("do: {}", about.remedy));
    }
    out.push_str("\nThresholds, configurable under `thresholds:` in the configuration file\n");
    for bound in Bounds::TABLE {
        let value = bounds.get(bound.name).unwrap_or(bound.default);
        let (name, shown) = (bound.name, bound.show(value));
        page.line(
            &mut out,
            "    ",
            &format!("{name}: {value} ({shown}). {}", bound.meaning),
        );
    }
    out
}
