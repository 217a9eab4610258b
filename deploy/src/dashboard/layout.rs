//! The places of panels.

use super::{Draw, Panel, Row};

/// Width of a dashboard, columns.
pub(super) const COLUMNS: u32 = 24;

/// A panel in its row.
pub(super) struct Placed {
    pub(super) panel: &'static Panel,
    /// Column of its left edge.
    pub(super) left: u32,
    /// Distance from the row's first line of panels.
    pub(super) top: u32,
}

/// Lays out a row, as many panels per line as fit; with the height of all lines.
pub(super) fn lines(row: &Row) -> (Vec<Placed>, u32) {
    let mut placed = Vec::new();
    let (mut left, mut top, mut height) = (0, 0, 0);
    for panel in row.panels {
        if left + panel.width > COLUMNS {
            top += height;
            (left, height) = (0, 0);
        }
        placed.push(Placed { panel, left, top });
        left += panel.width;
        height = height.max(panel.height());
    }
    (placed, top + height)
}

impl Panel {
    /// Mode and position of the legend: a narrow panel has no room for it beside the chart.
    pub(super) fn legend_place(&self) -> (&'static str, &'static str) {
        if self.width < COLUMNS / 2 {
            ("list", "bottom")
        } else {
            ("table", "right")
        }
    }

    pub(super) fn height(&self) -> u32 {
        match self.draw {
            Draw::Stat => 4,
            Draw::Lines | Draw::Stacked | Draw::Heatmap => 8,
            Draw::Table => 9,
        }
    }
}
