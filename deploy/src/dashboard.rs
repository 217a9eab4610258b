//! What a dashboard is, and how Grafana wants it written: the classic schema,
//! version 39, which every Grafana from 9 on and its sidecars take.

mod json;

/// One dashboard.
#[derive(Debug)]
pub struct Dashboard {
    /// The name of its file; its uid is `virtlens-` and this.
    pub name: &'static str,
    /// Its title, behind "virtlens / ".
    pub title: &'static str,
    /// What it is for, in one sentence.
    pub description: &'static str,
    /// Whose it is: which variables it has.
    pub of: Of,
    /// Its rows, from top to bottom.
    pub rows: &'static [Row],
}

/// What a dashboard lets its reader choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// VMs: by cluster, node, namespace, pod and name.
    Vms,
    /// Agents: by cluster and node.
    Agents,
}

/// Panels under one heading.
#[derive(Debug)]
pub struct Row {
    /// The heading.
    pub title: &'static str,
    /// From left to right, as many in a line as fit.
    pub panels: &'static [Panel],
}

/// One panel.
#[derive(Debug, Clone, Copy)]
pub struct Panel {
    /// Its title.
    pub title: &'static str,
    /// What it shows, in one sentence.
    pub description: &'static str,
    /// What its values are.
    pub unit: Unit,
    /// How it is drawn.
    pub draw: Draw,
    /// Its queries, with [`tokens`](crate::tokens).
    pub targets: &'static [Target],
    /// Of the 24 columns of a dashboard.
    pub width: u32,
    /// A line across it, from which on it is too much.
    pub limit: Option<f64>,
}

/// How a panel is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// One number.
    Stat,
    /// Lines over time.
    Lines,
    /// Areas over time, one on top of the other.
    Stacked,
    /// A column of buckets for each moment.
    Heatmap,
    /// A row for each series of the last value; of several queries by VM.
    Table,
}

/// One query of a panel.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The query, with [`tokens`](crate::tokens).
    pub query: &'static str,
    /// How its series are called; in a table the column of its values.
    pub legend: &'static str,
    /// The unit of a table's column, where it is not the panel's.
    pub unit: Option<Unit>,
}

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Things a second.
    PerSecond,
    /// CPU time by wall time.
    Cores,
    /// A part of something, 0 to 1.
    Share,
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
    /// Memory a second.
    BytesPerSecond,
    /// Seconds for a GiB.
    SecondsPerGib,
}

impl Unit {
    /// Its name for Grafana.
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

    /// A number.
    pub const fn stat(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Stat, 4, title, unit, description, targets)
    }

    /// Lines, half as wide as the dashboard; so are areas and heatmaps.
    pub const fn lines(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Lines, 12, title, unit, description, targets)
    }

    /// Areas on top of each other.
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

    /// A table as wide as the dashboard.
    pub const fn table(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        targets: &'static [Target],
    ) -> Self {
        Self::new(Draw::Table, 24, title, unit, description, targets)
    }

    /// The same in another width.
    #[must_use]
    pub const fn width(self, width: u32) -> Self {
        Self { width, ..self }
    }

    /// The same with a line from which on it is too much.
    #[must_use]
    pub const fn limit(self, limit: f64) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }
}

/// A query and the name of its series.
pub const fn target(query: &'static str, legend: &'static str) -> Target {
    Target {
        query,
        legend,
        unit: None,
    }
}

/// A query whose column in a table has a unit of its own.
pub const fn column(query: &'static str, legend: &'static str, unit: Unit) -> Target {
    Target {
        query,
        legend,
        unit: Some(unit),
    }
}

impl Dashboard {
    /// By which Grafana knows it.
    pub fn uid(&self) -> String {
        format!("virtlens-{}", self.name)
    }

    /// All its panels.
    pub fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }
}
