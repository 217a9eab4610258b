//! The tables of a dashboard, its JSON for Grafana (the classic schema, version 39, which
//! every Grafana from 9 on and its sidecars accept), and its specification for Perses.

mod json;
mod layout;
mod perses;
mod variables;

pub use json::panels;

/// One dashboard.
#[derive(Debug)]
pub struct Dashboard {
    /// File name; the uid is this after `virtlens-`.
    pub name: &'static str,
    /// Title, without the prefix "virtlens / ".
    pub title: &'static str,
    /// Purpose, in one sentence.
    pub description: &'static str,
    /// The objects that it shows, which determine its variables.
    pub of: Of,
    /// Rows, from top to bottom.
    pub rows: &'static [Row],
}

/// The objects that the variables of a dashboard select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// One VM, or some: by cluster, node, namespace, pod and name. It opens with one VM.
    Vm,
    /// VMs of a node: by namespace, pod and name. It opens with one node.
    Node,
    /// Groups of VMs: by cluster, node and namespace.
    Namespaces,
    /// Agents: by cluster and node.
    Agents,
}

/// Panels under one heading.
#[derive(Debug)]
pub struct Row {
    /// The heading.
    pub title: &'static str,
    /// Whether the dashboard opens with its panels. A row that is closed queries nothing.
    pub is_open: bool,
    /// Panels from left to right, as many per line as fit.
    pub panels: &'static [Panel],
}

/// One panel.
#[derive(Debug, Clone, Copy)]
pub struct Panel {
    /// Its title.
    pub title: &'static str,
    /// The values shown, in one sentence.
    pub description: &'static str,
    /// Unit of the values.
    pub unit: Unit,
    /// Visualization.
    pub draw: Draw,
    /// Its queries, with [`tokens`](crate::tokens).
    pub targets: &'static [Target],
    /// Width, in the 24 columns of a dashboard.
    pub width: u32,
    /// Threshold line, at which a value becomes too high.
    pub limit: Option<f64>,
}

/// Visualization of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// One number.
    Stat,
    /// Lines over time.
    Lines,
    /// Areas over time, one on top of the other.
    Stacked,
    /// A column of buckets for each point in time, of a query by `le`.
    Heatmap,
    /// A row with the last value of each series; several queries are joined by VM.
    Table,
}

/// One query of a panel.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The query, with [`tokens`](crate::tokens).
    pub query: &'static str,
    /// Series name; in a table, the name of the value column.
    pub legend: &'static str,
    /// Unit of a table's column, if it differs from the panel's.
    pub unit: Option<Unit>,
}

/// Unit of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Count.
    Count,
    /// Events per second.
    PerSecond,
    /// CPU time per wall time.
    Cores,
    /// Fraction, 0 to 1.
    Share,
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
    /// Memory per second.
    BytesPerSecond,
    /// Seconds per GiB.
    SecondsPerGib,
}

impl Unit {
    /// Grafana's name for the unit.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Count => "short",
            Self::PerSecond => "cps",
            Self::Cores => "suffix:cores",
            Self::Share => "percentunit",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "binBps",
            Self::SecondsPerGib => "suffix:s/GiB",
        }
    }
}

impl Panel {
    const fn new(
        draw: Draw,
        width: u32,
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self {
            title,
            description,
            unit,
            draw,
            targets,
            width,
            limit: None,
        }
    }

    /// A panel with one number.
    pub const fn stat(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Stat, 4, title, unit, description, targets)
    }

    /// A panel with lines, half as wide as the dashboard, like areas and heatmaps.
    pub const fn lines(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Lines, 12, title, unit, description, targets)
    }

    /// A panel with stacked areas.
    pub const fn stacked(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Stacked, 12, title, unit, description, targets)
    }

    /// A heatmap of a histogram's buckets.
    pub const fn heatmap(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Heatmap, 12, title, unit, description, targets)
    }

    /// A table, as wide as the dashboard.
    pub const fn table(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Table, 24, title, unit, description, targets)
    }

    /// Sets the width.
    #[must_use]
    pub const fn width(self, width: u32) -> Self {
        Self { width, ..self }
    }

    /// Adds a threshold line, at which a value becomes too high.
    #[must_use]
    pub const fn limit(self, limit: f64) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }
}

/// A query and its series name.
pub const fn target(query: &'static str, legend: &'static str) -> Target {
    Target {
        query,
        legend,
        unit: None,
    }
}

/// A query whose table column has a separate unit.
pub const fn column(query: &'static str, legend: &'static str, unit: Unit) -> Target {
    Target {
        query,
        legend,
        unit: Some(unit),
    }
}

impl Dashboard {
    /// Grafana's uid of the dashboard.
    pub fn uid(&self) -> String {
        format!("virtlens-{}", self.name)
    }

    /// All its panels.
    pub fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }
}
