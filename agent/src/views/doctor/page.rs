//! The layout of findings as text.

use std::fmt::Write as _;
use std::time::Duration;

use textwrap::Options;
use virtlens_model::snapshot::{Check, Finding, Severity, Vm};

use super::found::{Found, HeldTime};
use crate::term::{Paint, Style, printable};
use crate::views::pick::name_of;

/// A text layout of a given width.
pub(in crate::views) struct Page {
    width: usize,
    pub(in crate::views) paint: Paint,
}

/// Width if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

/// Lines longer than this are hard to read.
const MAX_WIDTH: usize = 110;

impl Page {
    pub(in crate::views) fn new(style: Style) -> Self {
        Self {
            width: style.width.unwrap_or(DEFAULT_WIDTH).clamp(40, MAX_WIDTH),
            paint: Paint(style.color),
        }
    }

    /// The title of a VM.
    pub(in crate::views) fn head(&self, out: &mut String, vm: &Vm) {
        self.head_on(out, "", vm);
    }

    fn head_on(&self, out: &mut String, node: &str, vm: &Vm) {
        let by = vm
            .runtime
            .map_or(String::new(), |runtime| format!(" by {runtime}"));
        let name = name_of(vm);
        let node = if node.is_empty() {
            String::new()
        } else {
            format!(" on {}", printable(node))
        };
        let head = format!("{name}{node} ({}{by}, pid {})", vm.vmm, vm.pid);
        out.push('\n');
        self.line(out, "", &self.paint.head(&head));
    }

    /// The result in one line.
    pub(super) fn summary(
        &self,
        out: &mut String,
        nodes: &str,
        findings: usize,
        vms: usize,
        window_ns: u64,
    ) {
        let found = match findings {
            0 => "no findings".to_owned(),
            1 => "1 finding".to_owned(),
            more => format!("{more} findings"),
        };
        let plural = if vms == 1 { "" } else { "s" };
        let (nodes, checks) = (printable(nodes), Check::ALL.len());
        let seconds = Duration::from_nanos(window_ns).as_secs_f64();
        let head = format!("{nodes}: {found}: {vms} VM{plural}, {checks} checks, {seconds:.1} s");
        self.line(out, "", &self.paint.head(&head));
    }

    /// Ranked findings with the names of their nodes, if there are several: grouped by VM, in
    /// the order of the VMs' first findings.
    pub(super) fn findings(&self, out: &mut String, findings: &[(&str, &Found<'_>)]) {
        let mut shown: Vec<&Vm> = Vec::new();
        for (node, first) in findings {
            if shown.iter().any(|vm| std::ptr::eq(*vm, first.of)) {
                continue;
            }
            shown.push(first.of);
            self.head_on(out, node, first.of);
            let of_vm = findings.iter().map(|(_, one)| *one);
            self.vm(out, of_vm.filter(|one| std::ptr::eq(one.of, first.of)));
        }
    }

    fn vm<'f>(&self, out: &mut String, findings: impl Iterator<Item = &'f Found<'f>>) {
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
    pub(in crate::views) fn finding(
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

    pub(super) fn title(&self, out: &mut String, severity: Severity, name: &str) {
        let title = self.severe(severity, &format!("{severity}: {name}"));
        writeln!(out, "  {title}").expect("writing to a String cannot fail");
    }

    /// A text in the colour of a severity.
    pub(in crate::views) fn severe(&self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Warning => self.paint.warning(text),
            Severity::Info => text.to_owned(),
        }
    }

    /// A paragraph; continuation lines have a deeper indentation.
    pub(in crate::views) fn line(&self, out: &mut String, indent: &str, text: &str) {
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
