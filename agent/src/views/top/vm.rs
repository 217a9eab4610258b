//! The screen of one VM: roles, limits, vCPUs, workers, memory, findings.

use std::fmt::Write as _;
use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use virtlens_model::judge::interval::{Interval, LimitUse, VcpuUse};
use virtlens_model::snapshot::{Severity, Vcpu, Vm};
use virtlens_model::vocab::topology::guest::GuestPlace;
use virtlens_model::vocab::topology::host::HostPlace;

use super::fleet::size;
use super::history::find;
use super::rows::float;
use super::state::Top;
use super::theme::Theme;
use crate::term::printable;
use crate::views::pick::name_of;

/// All lines of the VM called `name`; their number is not limited.
pub fn lines<'a>(top: &Top, name: &str, width: usize, theme: Theme) -> Vec<Line<'a>> {
    if top.is_cluster() && top.shown().is_none() {
        return vec![Line::raw(" reading ...")];
    }
    let Some(vm) = top.shown().and_then(|reading| find(reading, name)) else {
        return vec![
            Line::styled(
                format!(
                    " {} is not in this reading: it has ended or had not started.",
                    printable(name)
                ),
                theme.warning(),
            ),
            Line::raw(" Esc returns to the list; Left and Right show other readings."),
        ];
    };
    let screen = Screen {
        top,
        vm,
        over: top.history().over(name, top.back()),
        width,
        theme,
    };
    let mut lines = vec![screen.head()];
    lines.extend(screen.summary());
    let Some(over) = screen.over else {
        lines.push(Line::raw(" New VM: rates are shown from the next reading."));
        return lines;
    };
    screen.roles(&mut lines, &over);
    screen.limits(&mut lines, &over);
    screen.vcpus(&mut lines, &over);
    screen.workers(&mut lines, &over);
    screen.memory(&mut lines, &over);
    screen.findings(&mut lines);
    lines
}

/// A VM in one interval.
struct Screen<'t> {
    top: &'t Top,
    vm: &'t Vm,
    over: Option<Interval<'t>>,
    width: usize,
    theme: Theme,
}

impl Screen<'_> {
    fn head<'a>(&self) -> Line<'a> {
        let by = self
            .vm
            .runtime
            .map_or(String::new(), |by| format!(" by {by}"));
        let state = if self.vm.running { "" } else { "  ended" };
        let (name, vmm, pid) = (name_of(self.vm), self.vm.vmm, self.vm.pid);
        let called = if *name == *self.vm.vm {
            String::new()
        } else {
            format!("  {}", printable(&self.vm.vm))
        };
        Line::from(vec![
            Span::styled(format!(" {name}"), self.theme.head()),
            Span::raw(format!("  {vmm}{by}  pid {pid}{called}{state}")),
        ])
    }

    /// The findings in one line; their full text is at the bottom.
    fn summary<'a>(&self) -> Option<Line<'a>> {
        let found = self.vm.findings.as_deref()?;
        let names: Vec<&str> = found.iter().map(|one| one.check.name()).collect();
        let style = match found.first()?.severity {
            Severity::Warning => self.theme.warning(),
            Severity::Info => Style::new(),
        };
        Some(Line::styled(format!(" ! {}", names.join(", ")), style))
    }

    /// The history of a value, as bars.
    fn bars(
        &self,
        taken: usize,
        most: Option<f64>,
        value: impl Fn(&Interval) -> Option<f64>,
    ) -> String {
        let available = self.width.saturating_sub(taken + 1).min(60);
        let back = self.top.back();
        let values = self
            .top
            .history()
            .series(&self.vm.vm, back, available, value);
        let highest = values.iter().flatten().copied().fold(0.0, f64::max);
        self.theme.bars(&values, most.unwrap_or(highest))
    }

    fn roles(&self, lines: &mut Vec<Line>, over: &Interval) {
        let text = " ROLE       THR  CORES  QUOTA   WAIT  RAN OUT  CORES SO FAR";
        lines.push(Line::styled(text, self.theme.head()));
        let limit = over.binding();
        let back = self.top.back();
        let all = |over: &Interval| Some(over.cores(over.cpu_ns()));
        let most = self.top.history().series(&self.vm.vm, back, 60, all);
        let most = most.into_iter().flatten().fold(0.0, f64::max);
        for role in over.roles() {
            let share = limit.and_then(|limit| {
                let ns = limit.of(role.role)?;
                Some(over.cores(ns) / limit.cores)
            });
            let text = format!(
                " {:<9} {:>4} {:>6.2} {:>6} {:>6} {:>8}  ",
                role.role.name(),
                role.threads,
                over.cores(role.cpu_ns),
                percent(share),
                role.wait_ns
                    .map_or("-".to_owned(), |ns| format!("{:.2}", over.cores(ns))),
                role.throttle_hits
                    .map_or("-".to_owned(), |hits| hits.to_string()),
            );
            let of = |over: &Interval| Some(over.cores(over.role(role.role)?.cpu_ns));
            let bars = self.bars(text.chars().count(), Some(most), of);
            lines.push(Line::raw(text + &bars));
        }
        if over.unattributed_cpu_ns() > 0 {
            let cores = over.cores(over.unattributed_cpu_ns());
            lines.push(Line::raw(format!(" {:<9} {:>4} {cores:>6.2}", "none", "")));
        }
    }

    fn limits(&self, lines: &mut Vec<Line>, over: &Interval) {
        for limit in over.limits() {
            let used = over.cores(limit.total_ns()) / limit.cores;
            let throttled = over.cores(over.throttled_ns(&limit));
            let style = self.theme.load(Some(throttled * 2.0));
            let text = format!(
                " limit {} {:.2} cores: {} used, throttled {} in {}/{} periods  ",
                limit.now.scope.name(),
                limit.cores,
                percent(Some(used)),
                percent(Some(throttled)),
                limit.throttled_periods,
                limit.periods,
            );
            let cgroup = &limit.now.cgroup;
            let of = |over: &Interval| {
                let mut limits = over.limits();
                let same = |one: &LimitUse| one.now.cgroup == *cgroup;
                let limit = limits.find(same)?;
                Some(over.cores(over.throttled_ns(&limit)))
            };
            let bars = self.bars(text.chars().count(), Some(1.0), of);
            lines.push(Line::from(vec![Span::styled(text, style), Span::raw(bars)]));
        }
        if Interval::since_began(self.vm).limits().next().is_none() {
            lines.push(Line::styled(" no CPU limit", self.theme.faint()));
        }
    }

    fn vcpus(&self, lines: &mut Vec<Line>, over: &Interval) {
        let text = " vCPU GUEST    pCPU HOST       CPU%  guest  host  poll  WAIT   MEAN  EXITS/s";
        lines.push(Line::styled(text, self.theme.head()));
        for used in over.vcpus() {
            let vcpu = self.vm.vcpus.iter().find(|vcpu| vcpu.id == used.id);
            if let Some(vcpu) = vcpu {
                lines.push(self.vcpu(over, vcpu, &used));
            }
        }
    }

    fn vcpu<'a>(&self, over: &Interval, vcpu: &Vcpu, used: &VcpuUse) -> Line<'a> {
        let poll_ns = used
            .kvm
            .halt_poll_ns()
            .map(|poll| poll.success.saturating_add(poll.fail));
        // The tick samples guest time, which can therefore exceed the CPU time.
        let guest_ns = used.guest_ns.map(|ns| ns.min(used.cpu_ns));
        let host_ns = guest_ns.zip(poll_ns).map(|(guest, poll)| {
            let busy = guest.saturating_add(poll);
            used.cpu_ns.saturating_sub(busy)
        });
        let share = |ns: Option<u64>| percent(ns.map(|ns| over.cores(ns)));
        let is_misplaced = self.vm.topology.as_ref().is_some_and(|topology| {
            let mut mismatches = topology.mismatches.iter();
            mismatches.any(|one| one.mismatch.vcpus.contains(&used.id))
        });
        let mark = if is_misplaced { "!" } else { " " };
        let wait = used.wait_ns.map(|ns| over.cores(ns));
        Line::from(vec![
            Span::raw(format!(
                " {:<4} {:<8} {:>4} {:<8}{mark} ",
                used.id,
                vcpu.guest.map_or("-".to_owned(), guest_place),
                vcpu.pcpu.map_or("-".to_owned(), |pcpu| pcpu.to_string()),
                vcpu.host.map_or("-".to_owned(), host_place),
            )),
            Span::styled(
                format!("{:>5}", share(Some(used.cpu_ns))),
                self.theme.load(Some(over.cores(used.cpu_ns))),
            ),
            Span::raw(format!(
                "  {:>5} {:>5} {:>5} ",
                share(guest_ns),
                share(host_ns),
                share(poll_ns)
            )),
            Span::styled(
                format!("{:>5}", percent(wait)),
                self.theme.load(wait.map(|wait| wait * 5.0)),
            ),
            Span::raw(format!(
                " {:>6}  {:>7}",
                used.mean_wait_ns().map_or("-".to_owned(), short_time),
                used.kvm.exits().map_or("-".to_owned(), |exits| {
                    let count = exits
                        .by_kind()
                        .fold(0, |sum, (_, one)| one.saturating_add(sum));
                    short(over.per_second(count))
                })
            )),
        ])
    }

    fn workers(&self, lines: &mut Vec<Line>, over: &Interval) {
        let mut workers: Vec<_> = over.workers().filter(|one| one.tid.is_some()).collect();
        if workers.is_empty() {
            return;
        }
        workers.sort_by_key(|worker| (worker.role, worker.worker));
        let devices = workers.iter().filter_map(|worker| worker.device);
        let device_width = devices.map(|device| device.name().len() + 1).max();
        let device_width = device_width.unwrap_or(0);
        let device = if device_width > 0 { " DEVICE" } else { "" };
        let text = format!(" WORKER         THREAD{device:<device_width$}   CPU%");
        lines.push(Line::styled(text, self.theme.head()));
        for worker in workers {
            let busy = over.cores(worker.cpu_ns);
            let name = format!("{} {}", worker.role.name(), worker.worker);
            let tid = worker.tid.map_or(String::new(), |tid| tid.to_string());
            let of = |over: &Interval| {
                let same = (worker.role, worker.worker);
                let found = over.workers().find(|one| (one.role, one.worker) == same);
                found.map(|one| over.cores(one.cpu_ns))
            };
            let device = worker.device.map_or(String::new(), |one| format!(" {one}"));
            let text = format!(" {name:<12} {tid:>8}{device:<device_width$}");
            let cpu = format!("{:>7}  ", percent(Some(busy)));
            let bars = self.bars(text.len() + cpu.len(), Some(1.0), of);
            lines.push(Line::from(vec![
                Span::raw(text),
                Span::styled(cpu, self.theme.load(Some(busy))),
                Span::raw(bars),
            ]));
        }
    }

    fn memory(&self, lines: &mut Vec<Line>, over: &Interval) {
        let memory = &self.vm.memory;
        let mut text = format!(
            " resident {} of {}, peak {}",
            size(memory.resident_bytes),
            size(memory.guest_bytes),
            size(memory.resident_peak_bytes)
        );
        if let Some(bytes) = memory.guest_memfd_bytes {
            write!(text, "; guest_memfd {}", size(Some(bytes)))
                .expect("writing to a String cannot fail");
        }
        if let Some(limit) = memory.cgroup_limit_bytes {
            let (used, limit) = (size(memory.cgroup_bytes), size(Some(limit)));
            write!(text, "; cgroup {used} of {limit}").expect("writing to a String cannot fail");
        }
        lines.push(Line::styled(" MEMORY", self.theme.head()));
        let resident = |over: &Interval| over.now.memory.resident_bytes.map(float);
        let taken = text.chars().count() + 2;
        let bars = self.bars(taken, memory.guest_bytes.map(float), resident);
        lines.push(Line::raw(format!("{text}  {bars}")));
        if let Some(ns) = memory.dirty_logging.and_then(|logging| logging.seen_ns) {
            let seconds = ns / 1_000_000_000;
            let text = format!(" dirty logging, as for a live migration, for {seconds} s");
            lines.push(Line::raw(text));
        }
        let used = over.memory();
        if let Some(discards) = used.discards {
            let rate = |bytes: u64| {
                let rate = over.per_second(bytes);
                if bytes == 0 {
                    "0".to_owned()
                } else {
                    format!("{}/s", size(Some(whole(rate))))
                }
            };
            lines.push(Line::raw(format!(
                " reported {}, refaulted {}; balloon in {}, out {}; release time {}",
                rate(discards.report.bytes),
                used.refault_bytes.map_or("-".to_owned(), rate),
                rate(discards.inflate.bytes),
                rate(discards.deflate.bytes),
                percent(Some(over.cores(discards.release_ns()))),
            )));
        }
        let features = memory.features.by_name().map(|(name, feature)| {
            let state = match feature.enabled {
                Some(true) => "on",
                Some(false) => "off",
                None => "unknown",
            };
            format!("{} {state} ({})", name.replace('_', " "), feature.reason)
        });
        for line in self.wrapped(&features.join("; "), " ") {
            lines.push(line.style(self.theme.faint()));
        }
    }

    /// Wraps a text into as many lines as it needs.
    fn wrapped<'a>(&self, text: &str, indent: &str) -> Vec<Line<'a>> {
        let options = textwrap::Options::new(self.width.saturating_sub(1))
            .initial_indent(indent)
            .subsequent_indent(indent);
        let lines = textwrap::wrap(text, &options).into_iter();
        lines.map(|line| Line::raw(line.into_owned())).collect()
    }

    fn findings(&self, lines: &mut Vec<Line>) {
        lines.push(Line::styled(" FINDINGS", self.theme.head()));
        let found = self.vm.findings.as_deref();
        for finding in found.unwrap_or_default() {
            let style = match finding.severity {
                Severity::Warning => self.theme.warning(),
                Severity::Info => Style::new(),
            };
            let (severity, name) = (finding.severity, finding.check.name());
            lines.push(Line::styled(format!(" {severity}: {name}"), style));
            lines.extend(self.wrapped(&printable(&finding.evidence), "   "));
            let remedy = format!("do: {}", finding.remedy);
            lines.extend(self.wrapped(&printable(&remedy), "   "));
        }
        match found {
            None => lines.push(Line::styled(" not judged yet", self.theme.faint())),
            Some([]) => lines.push(Line::styled(" none", self.theme.faint())),
            Some(_) => {}
        }
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0))
}

/// Formats a rate in few characters.
fn short(rate: f64) -> String {
    if rate < 9_999.5 {
        format!("{rate:.0}")
    } else {
        format!("{:.0}k", rate / 1000.0)
    }
}

/// Formats a short time in at most six characters.
fn short_time(ns: u64) -> String {
    let secs = Duration::from_nanos(ns).as_secs_f64();
    match ns {
        0..1_000_000 => format!("{:.0}us", secs * 1e6),
        1_000_000..100_000_000 => format!("{:.1}ms", secs * 1e3),
        100_000_000..1_000_000_000 => format!("{:.0}ms", secs * 1e3),
        _ => format!("{secs:.1}s"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "two digits of the rate are displayed"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

/// Package, core and thread as seen by the guest.
fn guest_place(place: GuestPlace) -> String {
    format!("s{}c{}t{}", place.package, place.core, place.thread)
}

/// Node, core and thread of the host, as far as known.
fn host_place(place: HostPlace) -> String {
    let part = |letter: char, number: Option<u32>| {
        number.map_or(String::new(), |number| format!("{letter}{number}"))
    };
    part('n', place.node) + &part('c', place.core) + &part('t', place.thread)
}
