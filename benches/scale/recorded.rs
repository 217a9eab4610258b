//! A recorded reading of one VM, and the exposition of an agent with many VMs like it.

use std::fmt::Write as _;

use virtlens_export::Selection;

/// All metrics of an agent with one VM: a Kata pod of two vCPUs under a limit, with vhost,
/// virtiofsd, an iothread and a balloon, on Debian 7.2. The scenario `series` prints it.
const READING: &str = include_str!("reading.prom");

/// Assumed age of the recorded VM, by which its counters are divided to get rates.
const AGE_S: f64 = 100.0;

/// Lifetime of a VM. When it ends another pod takes its place.
const LIFETIME_S: u64 = 2 * 3600;

/// Numbers of vCPUs of the VMs, in turn.
const VCPUS: [u32; 5] = [1, 2, 2, 4, 8];

/// The families that are exported.
#[derive(Debug)]
pub(crate) struct Recorded {
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    /// The lines HELP and TYPE.
    head: String,
    /// Whether its values grow: a counter or a histogram.
    grows: bool,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    /// Labels with their values.
    labels: Vec<(String, String)>,
    value: f64,
    is_of_vm: bool,
}

/// A VM of a simulated agent at one time.
struct Vm {
    identity: [String; 4],
    vcpus: u32,
    /// Whether it reaches its limit, as the recorded VM does.
    is_busy: bool,
    /// Multiple of the recorded rates and sizes.
    factor: f64,
    age_s: f64,
}

impl Recorded {
    /// The recorded reading with the selected families.
    pub(crate) fn new(selection: &Selection) -> Self {
        let mut families: Vec<Family> = Vec::new();
        let mut is_selected = false;
        let mut help = String::new();
        for line in READING.lines() {
            if line.starts_with("# HELP ") {
                help = format!("{line}\n");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type has a name");
                is_selected = selection.has(name);
                if is_selected {
                    families.push(Family {
                        head: format!("{help}{line}\n"),
                        grows: kind != "gauge",
                        samples: Vec::new(),
                    });
                }
            } else if let (true, Some(family)) = (is_selected, families.last_mut()) {
                family.samples.push(Sample::parse(line));
            }
        }
        assert!(!families.is_empty(), "the recorded reading has families");
        Self { families }
    }

    /// Series of one agent with this number of VMs.
    pub(crate) fn series(&self, vms: u32) -> usize {
        let text = self.text("n", vms, 1_000_000_000, None);
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    /// The exposition of an agent at a time. `timestamp_ms` stands behind each value.
    pub(crate) fn text(
        &self,
        node: &str,
        vms: u32,
        at_s: u64,
        timestamp_ms: Option<u64>,
    ) -> String {
        let vms: Vec<Vm> = (0..vms).map(|slot| Vm::at(node, slot, at_s)).collect();
        let timestamp = timestamp_ms.map_or_else(String::new, |ms| format!(" {ms}"));
        let mut out = String::new();
        for family in &self.families {
            out.push_str(&family.head);
            for sample in &family.samples {
                if !sample.is_of_vm {
                    let value = sample.value;
                    let labels = labels(&sample.labels, |_, value| value.to_owned());
                    line(&mut out, &sample.name, &labels, value, &timestamp);
                    continue;
                }
                for vm in &vms {
                    vm.write(&mut out, node, sample, family.grows, &timestamp);
                }
            }
        }
        out
    }
}

impl Vm {
    /// The VM in a slot of a node at a time.
    fn at(node: &str, slot: u32, at_s: u64) -> Self {
        let phase = u64::from(slot) * 977 % LIFETIME_S;
        let generation = (at_s + phase) / LIFETIME_S;
        let born_s = generation * LIFETIME_S - phase;
        let id = format!("{node}-{slot}-{generation}");
        // One of ten works as hard as the recorded VM.
        let is_busy = slot % 10 == 3;
        let spread = f64::from(slot * 37 % 100) / 500.0;
        Self {
            identity: [
                format!("team-{}", slot % 20),
                format!("checkout-7d9f8b6c5d-{id}"),
                format!("sandbox-{id:0>64}"),
                format!("0000-{id}"),
            ],
            vcpus: VCPUS[slot as usize % VCPUS.len()],
            factor: if is_busy { 1.0 } else { 0.01 + spread },
            is_busy,
            age_s: u32::try_from(at_s - born_s).map_or(0.0, f64::from),
        }
    }

    fn write(&self, out: &mut String, node: &str, sample: &Sample, grows: bool, timestamp: &str) {
        let [namespace, pod, name, uid] = &self.identity;
        let vcpu = sample.label("vcpu");
        let copies = match vcpu {
            Some("0") => self.vcpus,
            Some(_) => return,
            None => 1,
        };
        // Absent unless a limit throttles the VM.
        let only_busy = ["virtlens_finding", "virtlens_throttle_"];
        if !self.is_busy && only_busy.iter().any(|begin| sample.name.starts_with(begin)) {
            return;
        }
        let mut value = sample.value;
        if sample.name.contains("_throttle") && !self.is_busy {
            value = 0.0;
        } else if grows {
            value *= self.age_s / AGE_S * self.factor;
        } else if sample.name.ends_with("_bytes") {
            value *= 1.0 + self.factor;
        }
        if sample.value.fract() == 0.0 {
            value = value.floor();
        }
        for copy in 0..copies {
            let labels = labels(&sample.labels, |label, recorded| match label {
                "namespace" => namespace.clone(),
                "pod" => pod.clone(),
                "vm" => name.clone(),
                "uid" => uid.clone(),
                "node" => node.to_owned(),
                "vcpu" => copy.to_string(),
                _ => recorded.to_owned(),
            });
            line(out, &sample.name, &labels, value, timestamp);
        }
    }
}

impl Sample {
    /// A line `name{label="value",…} number`.
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, inside) = series.split_once('{').unwrap_or((series, ""));
        let inside = inside.trim_end_matches('}');
        let labels: Vec<(String, String)> = inside
            .split("\",")
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (label, value) = part.split_once("=\"").expect("a label has a value");
                (label.to_owned(), value.trim_end_matches('"').to_owned())
            })
            .collect();
        Self {
            name: name.to_owned(),
            is_of_vm: labels.iter().any(|(label, _)| label == "vm"),
            labels,
            value: value.parse().expect("a sample has a number"),
        }
    }

    fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        let (_, value) = labels.find(|(label, _)| label == name)?;
        Some(value)
    }
}

fn labels(labels: &[(String, String)], value: impl Fn(&str, &str) -> String) -> String {
    let mut text = String::new();
    for (index, (label, recorded)) in labels.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let value = value(label, recorded);
        write!(text, "{comma}{label}=\"{value}\"").expect("writing to a String cannot fail");
    }
    text
}

fn line(out: &mut String, name: &str, labels: &str, value: f64, timestamp: &str) {
    writeln!(out, "{name}{{{labels}}} {value}{timestamp}")
        .expect("writing to a String cannot fail");
}
