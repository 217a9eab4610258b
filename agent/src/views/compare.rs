//! `virtlens doctor --against`: differences between two recorded windows.

use std::fmt::Write as _;

use serde::Serialize;
use virtlens_model::judge::compare::{Compared, Comparison, FindingChange, ValueChange};
use virtlens_model::judge::measure::{Measure, Unit};
use virtlens_model::judge::past::{Found, PastVm};
use virtlens_model::snapshot::{API_VERSION, Finding, Vm};
use virtlens_model::vocab::{CpuSet, Role};

use crate::term::{Style, printable, shown};
use crate::views::doctor::{HeldTime, Page};
use crate::views::pick::whole_name_of;

/// The readings of a window, times in ns since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readings {
    /// Time of the first one.
    pub first_ns: u64,
    /// Time of the last one.
    pub last_ns: u64,
    /// Their number.
    pub count: u64,
}

/// The differences between two windows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Differences<'c> {
    api_version: &'static str,
    kind: &'static str,
    node: &'c str,
    /// The window of comparison.
    before: Window,
    /// The judged window.
    now: Window,
    /// The VMs that are in both windows.
    vms: Vec<VmDifference<'c>>,
    /// The VMs that are only in the window of comparison.
    only_before: Vec<String>,
    /// The VMs that are only in the judged window.
    only_now: Vec<String>,
}

/// Times of the first and the last reading, RFC 3339, UTC.
#[derive(Debug, Serialize)]
struct Window {
    since: String,
    until: String,
    readings: u64,
}

#[derive(Debug, Serialize)]
struct VmDifference<'c> {
    namespace: Option<&'c str>,
    pod: Option<&'c str>,
    uid: Option<&'c str>,
    vm: &'c str,
    pid: u32,
    /// `null` if the VM was not judged in both windows.
    findings: Option<Vec<FindingDifference<'c>>>,
    values: Vec<Value>,
    pcpus: Option<Pcpus<'c>>,
    #[serde(skip)]
    of: &'c Vm,
}

#[derive(Debug, Serialize)]
struct FindingDifference<'c> {
    /// "appeared", "ended" or "remained".
    change: &'static str,
    /// The finding in the judged window, else in the window of comparison.
    #[serde(flatten)]
    finding: &'c Finding,
    #[serde(flatten)]
    held: HeldTime,
    /// The evidence in the window of comparison, if the finding remained.
    evidence_before: Option<&'c str>,
}

#[derive(Debug, Serialize)]
struct Value {
    measure: &'static str,
    unit: &'static str,
    before: f64,
    now: f64,
    ratio: f64,
    #[serde(skip)]
    of: Measure,
}

#[derive(Debug, Serialize)]
struct Pcpus<'c> {
    before: &'c CpuSet,
    now: &'c CpuSet,
}

impl From<Readings> for Window {
    fn from(readings: Readings) -> Self {
        Self {
            since: shown(readings.first_ns),
            until: shown(readings.last_ns),
            readings: readings.count,
        }
    }
}

impl From<&ValueChange> for Value {
    fn from(change: &ValueChange) -> Self {
        Self {
            measure: change.measure.name(),
            unit: change.measure.unit().name(),
            before: change.before,
            now: change.now,
            ratio: change.ratio,
            of: change.measure,
        }
    }
}

impl<'c> From<&FindingChange<'c>> for FindingDifference<'c> {
    fn from(change: &FindingChange<'c>) -> Self {
        let Found { finding, held } = change.last();
        let (name, evidence_before) = match change {
            FindingChange::Appeared(_) => ("appeared", None),
            FindingChange::Ended(_) => ("ended", None),
            FindingChange::Remained { before, .. } => ("remained", Some(&*before.finding.evidence)),
        };
        Self {
            change: name,
            finding,
            held: HeldTime::from(*held),
            evidence_before,
        }
    }
}

impl<'c> VmDifference<'c> {
    fn of(compared: &'c Compared<'c>) -> Self {
        let vm = &compared.now.vm;
        let findings = compared.findings.as_ref();
        let pcpus = compared.pcpus.as_ref();
        Self {
            namespace: vm.namespace.as_deref(),
            pod: vm.pod.as_deref(),
            uid: vm.uid.as_deref(),
            vm: &vm.vm,
            pid: vm.pid,
            findings: findings.map(|found| found.iter().map(Into::into).collect()),
            values: compared.values.iter().map(Into::into).collect(),
            pcpus: pcpus.map(|[before, now]| Pcpus { before, now }),
            of: vm,
        }
    }

    /// Whether the VM has a finding or something changed.
    fn is_shown(&self) -> bool {
        let has_findings = self
            .findings
            .as_ref()
            .is_some_and(|found| !found.is_empty());
        has_findings || !self.values.is_empty() || self.pcpus.is_some()
    }
}

impl<'c> Differences<'c> {
    /// The differences of the VMs that `is_wanted` accepts.
    pub fn new(
        node: &'c str,
        [before, now]: [Readings; 2],
        comparison: &'c Comparison<'c>,
        is_wanted: impl Fn(&Vm) -> bool,
    ) -> Self {
        let both = comparison.both.iter();
        let both = both.filter(|one| is_wanted(&one.before.vm) || is_wanted(&one.now.vm));
        let names = |vms: &[&PastVm]| {
            let vms = vms.iter().map(|past| &past.vm);
            vms.filter(|vm| is_wanted(vm)).map(whole_name_of).collect()
        };
        Self {
            api_version: API_VERSION,
            kind: "Comparison",
            node,
            before: before.into(),
            now: now.into(),
            vms: both.map(VmDifference::of).collect(),
            only_before: names(&comparison.only_before),
            only_now: names(&comparison.only_now),
        }
    }

    /// Whether the judged window has findings on VMs that are in both windows.
    pub fn has_findings(&self) -> bool {
        let mut findings = self.vms.iter().flat_map(|vm| &vm.findings).flatten();
        findings.any(|finding| finding.change != "ended")
    }

    /// Formats the differences as text.
    pub fn text(&self, style: Style) -> String {
        let page = Page::new(style);
        let mut out = String::new();
        let [before, now] = [&self.before, &self.now]
            .map(|one| format!("{} to {} ({} readings)", one.since, one.until, one.readings));
        let head = format!("{}: {now}, compared with {before}", printable(self.node));
        page.line(&mut out, "", &page.paint.head(&head));
        for vm in self.vms.iter().filter(|vm| vm.is_shown()) {
            page.head(&mut out, vm.of);
            vm.text(&page, &mut out);
        }
        let hidden = self.vms.iter().filter(|vm| !vm.is_shown());
        let unchanged: Vec<_> = hidden.map(|vm| whole_name_of(vm.of)).collect();
        let unjudged = self.vms.iter().filter(|vm| vm.findings.is_none());
        let unjudged: Vec<_> = unjudged.map(|vm| whole_name_of(vm.of)).collect();
        let lists = [
            ("no change", &unchanged),
            ("findings unknown, not judged in both windows", &unjudged),
            ("only in the window of comparison", &self.only_before),
            ("only in the judged window", &self.only_now),
        ];
        let lists = lists.iter().filter(|(_, names)| !names.is_empty());
        for (index, (title, names)) in lists.enumerate() {
            if index == 0 {
                out.push('\n');
            }
            page.line(&mut out, "", &format!("{title}: {}", names.join(", ")));
        }
        out
    }
}

impl VmDifference<'_> {
    fn text(&self, page: &Page, out: &mut String) {
        for found in self.findings.iter().flatten() {
            let finding = found.finding;
            let title = format!(
                "{}: {}: {}",
                found.change,
                finding.severity,
                finding.check.name()
            );
            // An end is good news.
            let title = match found.change {
                "ended" => title,
                _ => page.severe(finding.severity, &title),
            };
            page.line(out, "  ", &title);
            page.line(out, "    ", &printable(&finding.evidence));
            if let Some(before) = found.evidence_before {
                page.line(out, "    ", &printable(&format!("before: {before}")));
            }
            page.line(out, "    ", &found.held.line());
            if found.change != "ended" {
                page.line(out, "    ", &printable(&format!("do: {}", finding.remedy)));
            }
        }
        if !self.values.is_empty() {
            let head = ["mean", "before", "now", "ratio"];
            row(&page.paint.faint(&cells(head)), out);
        }
        for value in &self.values {
            let [before, now] = [value.before, value.now].map(|one| quantity(value.of, one));
            let ratio = format!("{:.1}", value.ratio);
            row(&cells([label(value.of), &before, &now, &ratio]), out);
        }
        if let Some(Pcpus { before, now }) = &self.pcpus {
            page.line(
                out,
                "  ",
                &format!("pCPUs of the vCPUs: {before} before, {now} now"),
            );
        }
    }
}

fn row(cells: &str, out: &mut String) {
    writeln!(out, "  {cells}").expect("writing to a String cannot fail");
}

/// A row of the table of values.
fn cells([name, before, now, ratio]: [&str; 4]) -> String {
    format!("{name:<26}{before:>14}{now:>14}{ratio:>8}")
}

/// What a value is, for people.
const fn label(measure: Measure) -> &'static str {
    match measure {
        Measure::Cpu => "CPU",
        Measure::RoleCpu(Role::Vcpu) => "CPU of vcpu",
        Measure::RoleCpu(Role::Vhost) => "CPU of vhost",
        Measure::RoleCpu(Role::Virtiofsd) => "CPU of virtiofsd",
        Measure::RoleCpu(Role::Iothread) => "CPU of iothread",
        Measure::RoleCpu(Role::Emulator) => "CPU of emulator",
        Measure::RoleCpu(Role::Helper) => "CPU of helper",
        Measure::Limit => "CPU limit",
        Measure::QuotaUsed => "used part of the limit",
        Measure::Throttled => "throttled",
        Measure::VcpuRunDelay => "run delay of each vCPU",
        Measure::VcpuMeanRunDelay => "wait before a vCPU runs",
        Measure::HaltPoll => "halt polling",
        Measure::Exits => "VM exits",
        Measure::Vcpus => "vCPUs",
        Measure::Resident => "resident memory",
    }
}

fn quantity(measure: Measure, value: f64) -> String {
    match measure.unit() {
        Unit::Cores => format!("{value:.2} cores"),
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::Seconds if value < 1e-3 => format!("{:.0} us", value * 1e6),
        Unit::Seconds => format!("{:.1} ms", value * 1e3),
        Unit::PerSecond => format!("{value:.0}/s"),
        Unit::Count => format!("{value:.1}"),
        Unit::Bytes => format!("{:.2} GiB", value / f64::from(1 << 30)),
    }
}
