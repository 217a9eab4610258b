//! What a metric family is, and the table of all of them.

use std::fmt;

use virtlens_model::snapshot::Vm;

use crate::Reading;
use crate::agent_rows::AGENT_FAMILIES;
use crate::finding_rows::FINDING_FAMILIES;
use crate::memory_rows::MEMORY_FAMILIES;
use crate::placement_rows::PLACEMENT_FAMILIES;
use crate::samples::Samples;
use crate::throttle_rows::THROTTLE_FAMILIES;
use crate::vm_rows::VM_FAMILIES;

/// The labels that every series of a VM carries, before its own.
pub(crate) const IDENTITY_LABELS: [&str; 3] = ["namespace", "pod", "vm"];

/// How the values of a family behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until its VM begins anew.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Always 1; what it says stands in its labels.
    Info,
    /// How often something took how long: series of `_bucket`, `_sum` and
    /// `_count`.
    Histogram,
}

impl Kind {
    /// Its name in `OpenMetrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric family.
#[derive(Debug)]
pub struct Family {
    /// The name that its series have, with unit and `_total` or `_info`.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// The unit of its values; part of the name.
    pub unit: Option<&'static str>,
    /// What it means, in one line.
    pub help: &'static str,
    /// Its own labels, in their order.
    pub(crate) own_labels: &'static [&'static str],
    pub(crate) rows: Rows,
}

/// Where the series of a family come from.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    /// Asked once for each VM.
    Vm(fn(&Vm, &mut Samples) -> fmt::Result),
    /// Asked once.
    Agent(fn(&Reading, &mut Samples) -> fmt::Result),
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vm(_) => "Vm",
            Self::Agent(_) => "Agent",
        })
    }
}

/// All families, in the order in which they are exported.
pub fn families() -> impl Iterator<Item = &'static Family> {
    VM_FAMILIES
        .iter()
        .chain(THROTTLE_FAMILIES)
        .chain(PLACEMENT_FAMILIES)
        .chain(MEMORY_FAMILIES)
        .chain(FINDING_FAMILIES)
        .chain(AGENT_FAMILIES)
}

impl Family {
    /// All its labels, in their order.
    pub fn labels(&self) -> Vec<&'static str> {
        let identity: &[&str] = match self.rows {
            Rows::Vm(_) => &IDENTITY_LABELS,
            Rows::Agent(_) => &[],
        };
        [identity, self.own_labels].concat()
    }

    /// The name without what `OpenMetrics` adds to it: the unit, and `_total`
    /// or `_info`.
    pub(crate) fn base_name(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
            Kind::Info => "_info",
        };
        let name = self.name.strip_suffix(suffix).unwrap_or(self.name);
        match self.unit {
            Some(unit) => name
                .strip_suffix(unit)
                .and_then(|name| name.strip_suffix('_'))
                .unwrap_or(name),
            None => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Kind, families};

    #[test]
    fn names_are_unique_and_tell_kind_and_unit() {
        let mut names = BTreeSet::new();
        for family in families() {
            let name = family.name;
            assert!(names.insert(name), "{name} is there twice");
            assert_eq!(
                name.ends_with("_total"),
                family.kind == Kind::Counter,
                "{name}"
            );
            assert_eq!(name.ends_with("_info"), family.kind == Kind::Info, "{name}");
            let unit = family.unit.map_or(String::new(), |unit| format!("_{unit}"));
            let suffix = match family.kind {
                Kind::Counter => "_total",
                Kind::Gauge | Kind::Histogram => "",
                Kind::Info => "_info",
            };
            assert_eq!(format!("{}{unit}{suffix}", family.base_name()), name);
            assert!(
                family.unit.is_some() || !name.contains("_seconds") && !name.contains("_bytes"),
                "{name} hides its unit"
            );
        }
    }

    #[test]
    fn help_is_one_line_that_needs_no_escape() {
        for family in families() {
            assert!(!family.help.is_empty(), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\', '"']), "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
    }

    #[test]
    fn labels_are_unique_within_a_family() {
        for family in families() {
            let labels = family.labels();
            let unique: BTreeSet<_> = labels.iter().collect();
            assert_eq!(unique.len(), labels.len(), "{}", family.name);
        }
    }
}
