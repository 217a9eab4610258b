//! `virtlens doctor`: the findings of an interval by rank, with the evidence, the rule,
//! the impact, the remedy and the next step.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use textwrap::Options;
use virtlens_model::judge::findings::Bounds;
use virtlens_model::judge::interval::is_same;
use virtlens_model::judge::past::{Held, Past};
use virtlens_model::snapshot::{API_VERSION, Check, Finding, Severity, Snapshot, Source, Vm};

use crate::term::{Paint, Style, printable, shown};
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

/// A finding and its VM.
#[derive(Debug, Serialize)]
struct Found<'s> {
    namespace: Option<&'s str>,
    pod: Option<&'s str>,
    uid: Option<&'s str>,
    vm: &'s str,
    pid: u32,
    #[serde(flatten)]
    finding: &'s Finding,
    rule: String,
    impact: &'static str,
    next: String,
    /// When it held in a past time.
    #[serde(flatten)]
    held: Option<HeldTime>,
    #[serde(skip)]
    of: &'s Vm,
}

/// When a finding held in a past time.
#[derive(Debug, Serialize)]
pub(super) struct HeldTime {
    /// Time of the first reading that had it, RFC 3339, UTC.
    since: String,
    /// Time of the last reading that had it, RFC 3339, UTC.
    until: String,
    /// Whether the readings between them had it too.
    continuous: bool,
    #[serde(skip)]
    seconds: f64,
}

impl From<Held> for HeldTime {
    fn from(held: Held) -> Self {
        let time = Duration::from_nanos(held.until_ns.saturating_sub(held.since_ns));
        Self {
            since: shown(held.since_ns),
            until: shown(held.until_ns),
            continuous: held.is_continuous,
            seconds: time.as_secs_f64(),
        }
    }
}

impl HeldTime {
    pub(super) fn line(&self) -> String {
        let Self { since, until, .. } = self;
        if since == until {
            return format!("held: in the reading of {since}");
        }
        let gaps = if self.continuous { "" } else { ", with gaps" };
        format!("held: {since} to {until} ({:.0} s{gaps})", self.seconds)
    }
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
        let seconds = Duration::from_nanos(self.window_ns).as_secs_f64();
        let (vms, checks) = (self.judged_vms, Check::ALL.len());
        let plural = if vms == 1 { "" } else { "s" };
        let found = match self.findings.len() {
            0 => "no findings".to_owned(),
            1 => "1 finding".to_owned(),
            more => format!("{more} findings"),
        };
        let node = printable(self.node);
        let head = format!("{node}: {found}: {vms} VM{plural}, {checks} checks, {seconds:.1} s");
        page.line(&mut out, "", &page.paint.head(&head));
        let mut shown: Vec<&Vm> = Vec::new();
        for first in &self.findings {
            if shown.iter().any(|vm| std::ptr::eq(*vm, first.of)) {
                continue;
            }
            shown.push(first.of);
            let of_vm = self
                .findings
                .iter()
                .filter(|one| std::ptr::eq(one.of, first.of));
            page.vm(&mut out, first.of, of_vm);
        }
        if !self.unjudged_vms.is_empty() {
            out.push('\n');
            let names = self.unjudged_vms.join(", ");
            page.line(
                &mut out,
                "",
                &format!("not judged, started or ended during the interval: {names}"),
            );
        }
        for lack in shortfalls(snapshot) {
            page.line(&mut out, "", &page.paint.warning(&lack.line()));
        }
        out
    }
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

/// A text layout of a given width.
pub(super) struct Page {
    width: usize,
    pub(super) paint: Paint,
}

/// Width if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

/// Lines longer than this are hard to read.
const MAX_WIDTH: usize = 110;

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self {
            width: style.width.unwrap_or(DEFAULT_WIDTH).clamp(40, MAX_WIDTH),
            paint: Paint(style.color),
        }
    }

    /// The title of a VM.
    pub(super) fn head(&self, out: &mut String, vm: &Vm) {
        let by = vm
            .runtime
            .map_or(String::new(), |runtime| format!(" by {runtime}"));
        let name = name_of(vm);
        let head = format!("{name} ({}{by}, pid {})", vm.vmm, vm.pid);
        out.push('\n');
        self.line(out, "", &self.paint.head(&head));
    }

    fn vm<'f>(&self, out: &mut String, vm: &Vm, findings: impl Iterator<Item = &'f Found<'f>>) {
        self.head(out, vm);
        for found in findings {
            let held = found.held.as_ref().map(HeldTime::line);
            self.finding(
                out,
                found.finding,
                held.as_deref(),
                &found.rule,
                &found.next,
            );
        }
    }

    /// A finding; `held` is the time in which it held.
    pub(super) fn finding(
        &self,
        out: &mut String,
        finding: &Finding,
        held: Option<&str>,
        rule: &str,
        next: &str,
    ) {
        let indent = "    ";
        self.title(out, finding.severity, finding.check.name());
        self.line(out, indent, &printable(&finding.evidence));
        if let Some(held) = held {
            self.line(out, indent, held);
        }
        let rule = self.paint.faint(&format!("rule: {rule}"));
        self.line(out, indent, &rule);
        let why = finding.check.about().impact;
        self.line(out, indent, &format!("why: {why}"));
        self.line(out, indent, &printable(&format!("do: {}", finding.remedy)));
        self.line(out, indent, &format!("next: {next}"));
    }

    fn title(&self, out: &mut String, severity: Severity, name: &str) {
        let title = self.severe(severity, &format!("{severity}: {name}"));
        writeln!(out, "  {title}").expect("writing to a String cannot fail");
    }

    /// A text in the colour of a severity.
    pub(super) fn severe(&self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Warning => self.paint.warning(text),
            Severity::Info => text.to_owned(),
        }
    }

    /// A paragraph; continuation lines have a deeper indentation.
    pub(super) fn line(&self, out: &mut String, indent: &str, text: &str) {
        let hanging = format!("{indent}  ");
        let options = Options::new(self.width)
            .initial_indent(indent)
            .subsequent_indent(&hanging)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .break_words(false);
        out.push_str(&textwrap::fill(text, options));
        out.push('\n');
    }
}
