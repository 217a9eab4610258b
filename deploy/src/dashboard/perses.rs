//! A dashboard as the specification of one of Perses: a `DashboardSpec`, with the panels of
//! the plugins that Perses ships.

use serde_json::{Map, Value, json};

use super::layout::lines;
use super::variables::{self, Variable};
use super::{Dashboard, Draw, Of, Panel, Target, Unit};
use crate::tokens::{self, PodLabels};

/// Quantiles in place of a heatmap: Perses draws heatmaps of native histograms only
/// (perses/plugins, heatmapchart/src/components/HeatMapChartPanel.tsx).
const QUANTILES: [(&str, &str); 3] = [("0.5", "median"), ("0.9", "90 %"), ("0.99", "99 %")];

/// Columns of a table that are no property of a VM.
const HIDDEN: [&str; 4] = ["timestamp", "__name__", "job", "endpoint"];

impl Dashboard {
    /// The dashboard's specification for Perses, with the default data source of the project.
    pub fn perses(&self, labels: PodLabels) -> Value {
        let mut panels = Map::new();
        let mut layouts = Vec::new();
        for (row_number, row) in self.rows.iter().enumerate() {
            let (placed, _) = lines(row);
            let mut items = Vec::new();
            for (number, one) in placed.iter().enumerate() {
                let key = format!("row{row_number}_panel{number}");
                items.push(json!({
                    "x": one.left,
                    "y": one.top,
                    "width": one.panel.width,
                    "height": one.panel.height(),
                    "content": { "$ref": format!("#/spec/panels/{key}") },
                }));
                panels.insert(key, one.panel.perses(labels));
            }
            layouts.push(json!({
                "kind": "Grid",
                "spec": {
                    "display": { "title": row.title, "collapse": { "open": row.is_open } },
                    "items": items,
                },
            }));
        }
        json!({
            "display": {
                "name": format!("virtlens / {}", self.title),
                "description": self.description,
            },
            "duration": "1h",
            "refreshInterval": "30s",
            "variables": variables(self.of, labels),
            "panels": panels,
            "layouts": layouts,
        })
    }
}

fn variables(of: Of, labels: PodLabels) -> Vec<Value> {
    let variable = |one: Variable| {
        // Perses chooses the first value of a variable without a default and without All.
        let is_one = variables::opens_with_one(of, one.name);
        let mut spec = json!({
            "name": one.name,
            "display": { "name": one.title },
            "allowAllValue": !is_one,
            "allowMultiple": true,
            "sort": "alphabetical-asc",
            "plugin": {
                "kind": "PrometheusLabelValuesVariable",
                "spec": {
                    "labelName": labels.name(one.label),
                    "matchers": [labels.name(one.series)],
                },
            },
        });
        if !is_one {
            spec["customAllValue"] = json!(variables::ALL);
            spec["defaultValue"] = json!("$__all");
        }
        json!({ "kind": "ListVariable", "spec": spec })
    };
    variables::of(of).map(variable).collect()
}

impl Panel {
    fn perses(&self, labels: PodLabels) -> Value {
        let (kind, spec) = match self.draw {
            Draw::Stat => ("StatChart", self.number()),
            Draw::Lines | Draw::Stacked | Draw::Heatmap => ("TimeSeriesChart", self.chart()),
            Draw::Table => ("Table", self.columns_of_table()),
        };
        json!({
            "kind": "Panel",
            "spec": {
                "display": { "name": self.title, "description": self.text() },
                "plugin": { "kind": kind, "spec": spec },
                "queries": self.queries(labels),
            },
        })
    }

    fn queries(&self, labels: PodLabels) -> Vec<Value> {
        let is_now = matches!(self.draw, Draw::Stat | Draw::Table);
        let query = |text: &str, legend: &str| {
            let mut spec = json!({ "query": text, "seriesNameFormat": labels.name(legend) });
            if is_now {
                spec["instant"] = json!(true);
            }
            json!({
                "kind": "TimeSeriesQuery",
                "spec": { "plugin": { "kind": "PrometheusTimeSeriesQuery", "spec": spec } },
            })
        };
        let of = |target: &Target| {
            let text = tokens::query(target.query, labels);
            if self.draw != Draw::Heatmap {
                return vec![query(&text, target.legend)];
            }
            let quantile =
                |(share, legend)| query(&format!("histogram_quantile({share}, {text})"), legend);
            QUANTILES.into_iter().map(quantile).collect()
        };
        self.targets.iter().flat_map(of).collect()
    }

    fn number(&self) -> Value {
        self.with_limit(json!({ "calculation": "last-number", "format": format(self.unit) }))
    }

    fn chart(&self) -> Value {
        let mut visual = json!({ "lineWidth": 1, "areaOpacity": 0.1 });
        if self.draw == Draw::Stacked {
            visual = json!({ "lineWidth": 1, "areaOpacity": 0.4, "stack": "all" });
        }
        let (mode, position) = self.legend_place();
        self.with_limit(json!({
            "legend": { "position": position, "mode": mode, "values": ["last-number", "max"] },
            "visual": visual,
            "yAxis": { "format": format(self.unit), "min": 0 },
        }))
    }

    fn with_limit(&self, mut spec: Value) -> Value {
        if let Some(limit) = self.limit {
            spec["thresholds"] = json!({ "steps": [{ "value": limit }] });
        }
        spec
    }

    /// The value column of each query comes first, then the labels.
    fn columns_of_table(&self) -> Value {
        let is_one = self.targets.len() == 1;
        let values = (1..).zip(self.targets).map(|(number, target)| {
            let name = if is_one {
                "value".to_owned()
            } else {
                format!("value #{number}")
            };
            let unit = target.unit.unwrap_or(self.unit);
            let mut column = json!({
                "name": name, "header": target.legend, "format": format(unit), "enableSorting": true,
            });
            if number == 1 {
                column["sort"] = json!("desc");
            }
            column
        });
        let hidden = HIDDEN.map(|name| json!({ "name": name, "hide": true }));
        let mut spec = json!({
            "density": "compact",
            "pagination": true,
            "enableFiltering": true,
            "columnSettings": values.chain(hidden).collect::<Vec<Value>>(),
        });
        if !is_one {
            spec["transforms"] = json!([{ "kind": "MergeSeries", "spec": {} }]);
        }
        spec
    }
}

/// Format of a value.
fn format(unit: Unit) -> Value {
    match unit {
        Unit::Count => json!({ "unit": "decimal", "shortValues": true }),
        Unit::PerSecond => json!({ "unit": "counts/sec" }),
        Unit::Cores | Unit::SecondsPerGib => json!({ "unit": "decimal", "decimalPlaces": 2 }),
        Unit::Share => json!({ "unit": "percent-decimal", "decimalPlaces": 1 }),
        Unit::Seconds => json!({ "unit": "seconds" }),
        Unit::Bytes => json!({ "unit": "bytes", "shortValues": true }),
        Unit::BytesPerSecond => json!({ "unit": "bytes/sec" }),
    }
}
