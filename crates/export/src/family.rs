//! A metric family.

use std::fmt;

use virtlens_model::snapshot::Vm;

use crate::identity::IDENTITY_LABELS;
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::Samples;
use crate::scrape::Scrape;

/// One metric family.
#[derive(Debug)]
pub struct Family {
    /// The series name, with the unit and `_total` or `_info`.
    pub name: &'static str,
    /// Metric type.
    pub kind: Kind,
    /// The first profile with the family; `None` if only its name selects it.
    pub profile: Option<Profile>,
    /// Unit of the values; part of the name.
    pub unit: Option<&'static str>,
    /// One-line description.
    pub help: &'static str,
    /// The family's own labels, in order.
    pub(crate) own_labels: &'static [&'static str],
    pub(crate) rows: Rows,
}

/// Source of a family's series.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    /// Called once for each VM.
    Vm(fn(&Vm, &mut Samples) -> fmt::Result),
    /// Called once per reading.
    Agent(fn(&Scrape, &mut Samples) -> fmt::Result),
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vm(_) => "Vm",
            Self::Agent(_) => "Agent",
        })
    }
}

impl Family {
    /// All label names, in order.
    pub fn labels(&self) -> Vec<&'static str> {
        let identity: &[&str] = match self.rows {
            Rows::Vm(_) => &IDENTITY_LABELS,
            Rows::Agent(_) => &[],
        };
        [identity, self.own_labels].concat()
    }

    /// The name without the suffixes that `OpenMetrics` adds: the unit, and `_total` or
    /// `_info`.
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
