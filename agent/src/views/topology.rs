//! `virtlens topology`: the host's CPUs as a tree with the vCPUs on each, followed by the
//! mismatches and their remedies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use textwrap::Options;
use virtlens_model::snapshot::{Snapshot, Topology, Unjudged, Vcpu, Vm};
use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::{HostPlace, HostTopology};

use crate::term::{Paint, Style, printable};
use crate::views::pick::name_of;

/// Drawing style.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// Width and colour.
    pub style: Style,
    /// Whether only ASCII characters are used.
    pub ascii: bool,
}

/// Width if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

const INFALLIBLE: &str = "writing to a String cannot fail";

/// Draws the host with the VMs of the snapshot that `shows` accepts.
pub fn render(snapshot: &Snapshot, shows: impl Fn(&Vm) -> bool, view: View) -> String {
    let host = &*snapshot.host;
    let vms: Vec<Tagged<'_>> = snapshot
        .vms
        .iter()
        .filter(|vm| vm.running && shows(vm))
        .enumerate()
        .map(|(index, vm)| Tagged {
            tag: tag(index),
            vm,
        })
        .collect();
    let canvas = Canvas {
        width: view.style.width.unwrap_or(DEFAULT_WIDTH).max(40),
        paint: Paint(view.style.color),
        symbols: if view.ascii { &ASCII } else { &UNICODE },
    };
    let mut out = String::new();
    let caption = caption(snapshot, host, canvas.symbols);
    canvas.text(&mut out, "", "  ", &canvas.paint.head(&caption));
    out.push('\n');
    canvas.host(&mut out, host, &Occupants::of(host, &vms));
    for one in &vms {
        out.push('\n');
        canvas.vm(&mut out, one);
    }
    if vms.is_empty() {
        out.push_str("\nNo running VM found.\n");
    }
    out
}

/// A VM with its tag in the tree.
struct Tagged<'a> {
    tag: String,
    vm: &'a Vm,
}

/// Returns the tag of a VM: A … Z, AA … ZZ and so on.
fn tag(index: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(index % 26).unwrap_or(0));
    match index / 26 {
        0 => letter.to_string(),
        more => format!("{}{letter}", tag(more - 1)),
    }
}

struct Symbols {
    branch: &'static str,
    times: &'static str,
    arrow: &'static str,
}

const UNICODE: Symbols = Symbols {
    branch: "├ ",
    times: "×",
    arrow: "→ ",
};

const ASCII: Symbols = Symbols {
    branch: "+ ",
    times: "x",
    arrow: "=> ",
};

fn caption(snapshot: &Snapshot, host: &HostTopology, symbols: &Symbols) -> String {
    let places = || host.online().iter().filter_map(|cpu| host.place(cpu));
    let count = |level: fn(&HostPlace) -> Option<u32>| {
        let mut numbers: Vec<u32> = places().filter_map(level).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    };
    let node = &snapshot.node;
    let mut text = format!(
        "{}: {} CPUs",
        printable(&node.name),
        host.online().iter().count()
    );
    let levels = [
        (count(|place| place.package), "package"),
        (host.nodes().count(), "NUMA node"),
        (host.cores().count(), "core"),
    ];
    for (number, name) in levels.into_iter().filter(|(number, _)| *number > 0) {
        let plural = if number == 1 { "" } else { "s" };
        write!(text, ", {number} {name}{plural}").expect(INFALLIBLE);
    }
    if let Some(threads) = host.threads_per_core().filter(|threads| *threads > 1) {
        write!(text, " {} {threads} threads", symbols.times).expect(INFALLIBLE);
    }
    text
}

/// The vCPUs on each pCPU.
struct Occupants(BTreeMap<u32, Vec<Occupant>>);

struct Occupant {
    text: String,
    is_misplaced: bool,
}

impl Occupants {
    fn of(host: &HostTopology, vms: &[Tagged<'_>]) -> Self {
        let mut by_pcpu: BTreeMap<u32, Vec<Occupant>> = BTreeMap::new();
        for Tagged { tag, vm } in vms {
            for vcpu in vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some()) {
                let Some(pcpu) = vcpu.pcpu else { continue };
                let is_misplaced = is_misplaced(vm, vcpu);
                let float = if is_bound(host, vcpu) { "" } else { "~" };
                let mark = if is_misplaced { "!" } else { "" };
                by_pcpu.entry(pcpu).or_default().push(Occupant {
                    text: format!("{float}{tag}{}{mark}", vcpu.id),
                    is_misplaced,
                });
            }
        }
        Self(by_pcpu)
    }
}

fn is_misplaced(vm: &Vm, vcpu: &Vcpu) -> bool {
    vm.topology.as_ref().is_some_and(|topology| {
        let mut found = topology.mismatches.iter();
        found.any(|one| one.mismatch.vcpus.contains(&vcpu.id))
    })
}

/// Whether the vCPU's affinity allows only its present core.
fn is_bound(host: &HostTopology, vcpu: &Vcpu) -> bool {
    let core: CpuSet = vcpu
        .pcpu
        .into_iter()
        .flat_map(|pcpu| host.siblings(pcpu).iter().copied().chain([pcpu]))
        .collect();
    let mask = vcpu.affinity.as_ref();
    mask.is_some_and(|mask| mask.iter().all(|cpu| core.contains(cpu)))
        && core.len() < host.online().len()
}

struct Canvas {
    width: usize,
    paint: Paint,
    symbols: &'static Symbols,
}

impl Canvas {
    fn host(&self, out: &mut String, host: &HostTopology, occupants: &Occupants) {
        let mut above = None;
        let mut rows: Vec<(Option<HostPlace>, Vec<u32>)> = host
            .cores()
            .map(|(_, cpus)| {
                let place = cpus.first().and_then(|cpu| host.place(*cpu)).copied();
                (place, cpus.to_vec())
            })
            .collect();
        if rows.is_empty() {
            rows = host.online().iter().map(|cpu| (None, vec![cpu])).collect();
        }
        let level = |place: &Option<HostPlace>| {
            place.map(|place| (place.package, place.node, place.die, place.llc))
        };
        rows.sort_by_key(|(place, cpus)| (level(place), cpus.first().copied()));
        for (place, cpus) in &rows {
            if above != Some(level(place)) {
                above = Some(level(place));
                if let Some(place) = place {
                    writeln!(out, "{}", heading(place)).expect(INFALLIBLE);
                }
            }
            self.core(out, place.as_ref(), cpus, occupants);
        }
    }

    /// One core, in as many lines as needed.
    fn core(
        &self,
        out: &mut String,
        place: Option<&HostPlace>,
        cpus: &[u32],
        occupants: &Occupants,
    ) {
        let core = place
            .and_then(|place| place.core)
            .map_or(String::new(), |core| format!("core {core:<4} "));
        let head = format!("  {}{core}", self.symbols.branch);
        let indent = head.chars().count();
        let cell = (self.width.saturating_sub(indent) / cpus.len().max(1)).clamp(20, 40);
        let mut line = head;
        let mut column = indent;
        for cpu in cpus {
            if column > indent && column + cell > self.width {
                out.push_str(line.trim_end());
                out.push('\n');
                line = " ".repeat(indent);
                column = indent;
            }
            let (text, painted) = self.cell(*cpu, occupants, cell);
            line.push_str(&painted);
            line.extend(std::iter::repeat_n(' ', cell.saturating_sub(text)));
            column += cell.max(text);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }

    /// A pCPU and its vCPUs; returns the width, and the text with its style.
    fn cell(&self, cpu: u32, occupants: &Occupants, width: usize) -> (usize, String) {
        let mut plain = format!("cpu {cpu:<4}");
        let mut painted = plain.clone();
        let here = occupants.0.get(&cpu).map_or(&[][..], Vec::as_slice);
        for (index, one) in here.iter().enumerate() {
            let left = here.len() - index;
            // The number of omitted vCPUs is shown, and needs space too.
            if left > 1 && plain.len() + one.text.len() + 5 > width {
                let more = format!(" +{left}");
                plain.push_str(&more);
                painted.push_str(&more);
                break;
            }
            plain.push(' ');
            painted.push(' ');
            plain.push_str(&one.text);
            if one.is_misplaced {
                painted.push_str(&self.paint.warning(&one.text));
            } else {
                painted.push_str(&one.text);
            }
        }
        (plain.len(), painted)
    }

    fn vm(&self, out: &mut String, one: &Tagged<'_>) {
        let Tagged { tag, vm } = one;
        let name = name_of(vm);
        let topology = vm.topology.as_deref();
        let summary = topology.map_or("not judged yet".to_owned(), |it| self.summary(vm, it));
        let head = format!("{tag}  {name}: {summary}");
        self.text(out, "", "   ", &head);
        let found = topology.map_or(&[][..], |topology| &topology.mismatches);
        for (index, one) in found.iter().enumerate() {
            let mismatch = &one.mismatch;
            let kind = self.paint.warning(mismatch.kind.name());
            self.text(out, "   ", "   ", &format!("{kind} since {}", one.since));
            self.text(out, "     ", "     ", &printable(&mismatch.evidence));
            let next = found.get(index + 1).map(|next| &next.mismatch.remedy);
            // Once for all mismatches with the same remedy.
            if next != Some(&mismatch.remedy) {
                let arrow = format!("     {}", self.symbols.arrow);
                self.text(out, &arrow, "       ", &printable(&mismatch.remedy));
            }
        }
    }

    fn summary(&self, vm: &Vm, topology: &Topology) -> String {
        let times = self.symbols.times;
        let vcpus = vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some()).count();
        let mut text = format!("{vcpus} vCPUs, {} pinned", topology.pinned_vcpus);
        if let Some(cpuset) = &topology.cpuset {
            write!(text, "; cpuset {cpuset}").expect(INFALLIBLE);
        }
        match topology.guest {
            Some(guest) => write!(
                text,
                "; guest {} {times} {} {times} {} (packages, cores, threads)",
                guest.packages, guest.cores, guest.threads
            ),
            None => write!(text, "; guest topology unknown"),
        }
        .expect(INFALLIBLE);
        match (topology.pairs, topology.unknown) {
            (Some(pairs), _) => write!(
                text,
                "; pairs: {} aligned, {} split, {} shared",
                pairs.aligned, pairs.split, pairs.shared
            ),
            (None, why) => write!(text, "; {}", why.map_or("pairs unknown", unjudged)),
        }
        .expect(INFALLIBLE);
        if topology.mismatches.is_empty() {
            text.push_str("; no mismatch");
        }
        text
    }

    fn text(&self, out: &mut String, first: &str, rest: &str, text: &str) {
        let options = Options::new(self.width)
            .initial_indent(first)
            .subsequent_indent(rest);
        let text = if self.symbols.times == ASCII.times {
            text.replace('→', "->").replace('≥', ">=")
        } else {
            text.to_owned()
        };
        writeln!(out, "{}", textwrap::fill(&text, options)).expect(INFALLIBLE);
    }
}

fn heading(place: &HostPlace) -> String {
    let parts = [
        ("package", place.package),
        ("node", place.node),
        ("last-level cache", place.llc),
    ];
    let known = parts
        .iter()
        .filter_map(|(name, number)| Some((name, (*number)?)));
    let texts: Vec<String> = known
        .map(|(name, number)| format!("{name} {number}"))
        .collect();
    texts.join(", ")
}

fn unjudged(why: Unjudged) -> &'static str {
    match why {
        Unjudged::GuestTopology => "pairs unknown: guest topology not reported",
        Unjudged::HostTopology => "pairs unknown: host cores not reported",
        Unjudged::NoSmt => "no pairs: host without SMT",
    }
}
