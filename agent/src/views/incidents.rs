//! `virtlens incidents`: the incidents of a recording, and one of them in depth.

mod readings;
mod usage;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthStr as _;
use virtlens_model::judge::around::{Reading, before, during};
use virtlens_model::judge::findings::Bounds;
use virtlens_model::snapshot::{API_VERSION, Check, Vm};
use virtlens_record::{Incident, IncidentVm};

pub use self::readings::readings;
use self::usage::{Usage, rows};
use crate::term::{Paint, Style, printable, shown};
use crate::views::doctor::{Page, next};
use crate::views::pick::{is_called, name_of};
use crate::views::snapshot::Output;

/// The incidents of a recording.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'i> {
    api_version: &'static str,
    kind: &'static str,
    /// Oldest first.
    incidents: &'i [Incident],
}

/// Formats the incidents of a recording, which are sorted by time.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn list(incidents: &[Incident], output: Output, style: Style) -> anyhow::Result<String> {
    table(incidents, false, output, style)
}

/// Formats the incidents of several nodes, which are sorted by time.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn list_of_nodes(
    incidents: &[Incident],
    output: Output,
    style: Style,
) -> anyhow::Result<String> {
    table(incidents, true, output, style)
}

fn table(
    incidents: &[Incident],
    has_nodes: bool,
    output: Output,
    style: Style,
) -> anyhow::Result<String> {
    if output == Output::Json {
        return list_json(incidents);
    }
    if incidents.is_empty() {
        return Ok("No incidents.\n".to_owned());
    }
    let cells = |node: String, others: [String; 5]| {
        let [id, rest @ ..] = others;
        let node = has_nodes.then_some(node);
        [id].into_iter().chain(node).chain(rest).collect()
    };
    let head = ["ID", "TIME", "VM", "CHECKS", "TRACE"].map(str::to_owned);
    let row = |incident: &Incident| {
        let checks = incident.checks().map(|check| check.name().to_owned());
        let alerts = incident.alerts.iter();
        let alerts = alerts.map(|alert| format!("alert {}", printable(alert)));
        let began: Vec<String> = alerts.chain(checks).collect();
        let trace = match (&incident.trace, incident.is_complete) {
            (Some(_), _) => "yes",
            (None, true) => "no",
            (None, false) => "not yet",
        };
        let others = [
            printable(&incident.id),
            shown(incident.unix_ns),
            name_of(&vm_of(&incident.vm)),
            began.join(","),
            trace.to_owned(),
        ];
        cells(printable(&incident.node), others)
    };
    let rows: Vec<Vec<String>> = [cells("NODE".to_owned(), head)]
        .into_iter()
        .chain(incidents.iter().map(row))
        .collect();
    let paint = Paint(style.color);
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let widths = rows.iter().filter_map(|row| row.get(column));
            let widest = widths.map(|cell| cell.width()).max().unwrap_or(0);
            format!("{cell}{}  ", " ".repeat(widest - cell.width()))
        });
        let line: String = cells.collect();
        let line = line.trim_end();
        let line = if index == 0 {
            paint.head(line)
        } else {
            line.to_owned()
        };
        writeln!(out, "{line}").expect(INFALLIBLE);
    }
    Ok(out)
}

/// The incidents of a recording, which are sorted by time, as JSON.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn list_json(incidents: &[Incident]) -> anyhow::Result<String> {
    let list = List {
        api_version: API_VERSION,
        kind: "Incidents",
        incidents,
    };
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// Whether `wanted` names the VM of an incident.
pub fn is_of(incident: &Incident, wanted: &str) -> bool {
    is_called(&vm_of(&incident.vm), wanted)
}

const INFALLIBLE: &str = "writing to a String cannot fail";

/// The VM of an incident, as far as it is known.
fn vm_of(vm: &IncidentVm) -> Vm {
    Vm {
        namespace: vm.namespace.clone(),
        pod: vm.pod.clone(),
        uid: vm.uid.clone(),
        vm: Arc::clone(&vm.vm),
        pid: vm.pid,
        ..Vm::default()
    }
}

/// An incident with the usage of its VM before and during it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    api_version: String,
    kind: String,
    incident: Incident,
    /// Usage before the onset; `None` if it was not recorded.
    before: Option<Usage>,
    /// Usage while the warnings lasted; `None` if it was not recorded.
    during: Option<Usage>,
    /// Path of the trace for the Perfetto viewer.
    trace: Option<String>,
    /// Directory of the incident, which is a recording, too; `None` for clients that do not see
    /// the whole node.
    directory: Option<String>,
}

impl Shown {
    /// An incident in `directory`, if the reader may see its path, and the readings of its VM.
    pub fn new(incident: Incident, directory: Option<&Path>, readings: &[Reading]) -> Self {
        let checks: Vec<Check> = if incident.alerts.is_empty() {
            incident.checks().collect()
        } else {
            // It is unknown how long an alert lasts.
            Vec::new()
        };
        let onset_ns = incident.unix_ns;
        let trace = incident.trace.as_ref().zip(directory);
        let trace = trace.map(|(file, directory)| directory.join(file));
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "IncidentReport".to_owned(),
            incident,
            before: before(readings, onset_ns).map(|span| Usage::of(&span)),
            during: during(readings, onset_ns, &checks).map(|span| Usage::of(&span)),
            trace: trace.map(|path| path.display().to_string()),
            directory: directory.map(|path| path.display().to_string()),
        }
    }

    /// The report of another node, whose trace this command fetches.
    #[must_use]
    pub fn fetched_by(mut self, command: &str) -> Self {
        self.directory = None;
        if self.incident.trace.is_some() {
            self.trace = Some(command.to_owned());
        }
        self
    }

    /// The report as JSON.
    ///
    /// # Errors
    ///
    /// If the JSON cannot be generated, which would be a bug.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The report as text.
    pub fn text(&self, bounds: &Bounds, style: Style) -> String {
        let page = Page::new(style);
        let incident = &self.incident;
        let vm = &incident.vm;
        let name = name_of(&vm_of(vm));
        let by = vm.runtime.as_ref();
        let by = by.map_or(String::new(), |runtime| format!(" by {runtime}"));
        let about = printable(&format!("{}{by}", vm.vmm));
        let node = printable(&incident.node);
        let mut out = String::new();
        let head = format!("{name} ({about}, pid {}) on {node}", vm.pid);
        page.line(&mut out, "", &page.paint.head(&head));
        let (from, until) = (shown(incident.from_ns), shown(incident.until_ns));
        let rest = if incident.is_complete {
            ""
        } else {
            "; not complete: its time has not passed, or the agent ended"
        };
        let time = format!(
            "{}: recorded {from} to {until}{rest}",
            shown(incident.unix_ns)
        );
        page.line(&mut out, "", &time);
        if !incident.alerts.is_empty() {
            let alerts = printable(&incident.alerts.join(", "));
            page.line(&mut out, "", &format!("alerts: {alerts}"));
        }
        for finding in &incident.findings {
            let next = next(finding.check, &name);
            page.finding(
                &mut out,
                finding,
                None,
                &bounds.rule_of(finding.check),
                &next,
            );
        }
        out.push('\n');
        self.compare(&mut out, &page);
        out.push('\n');
        // Paths are not broken, so that they can be copied.
        let trace = match (&self.trace, &incident.trace_missing) {
            (Some(path), _) => format!("{} (open it in https://ui.perfetto.dev)", printable(path)),
            (None, Some(why)) => format!("none: {}", printable(why)),
            (None, None) => "none yet".to_owned(),
        };
        writeln!(out, "trace: {trace}").expect(INFALLIBLE);
        if let Some(directory) = &self.directory {
            let directory = printable(directory);
            writeln!(out, "more: virtlens doctor {name} --from {directory}").expect(INFALLIBLE);
        }
        out
    }

    /// The usage before and during the incident, side by side.
    fn compare(&self, out: &mut String, page: &Page) {
        let both = [self.before.as_ref(), self.during.as_ref()];
        let head = format!("{:<32}{:>12}{:>12}", "", "before", "during");
        writeln!(out, "{}", page.paint.head(&head)).expect(INFALLIBLE);
        for (name, cells) in rows(both) {
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            let [before, during] = cells;
            writeln!(out, "{name:<32}{before:>12}{during:>12}").expect(INFALLIBLE);
        }
    }
}
