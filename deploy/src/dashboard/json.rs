//! A dashboard as Grafana's JSON.

use serde_json::{Value, json};

use super::layout::{COLUMNS, lines};
use super::variables::{self, Variable};
use super::{Dashboard, Draw, Of, Panel, Row, Target};
use crate::needs::{self, Need};
use crate::tokens::{self, PodLabels};

/// The tag by which the dashboards link to each other.
const TAG: &str = "virtlens";

impl Dashboard {
    /// The dashboard as JSON for Grafana.
    pub fn json(&self, labels: PodLabels) -> Value {
        json!({
            "annotations": { "list": [self.firing(labels)] },
            "description": self.description,
            "editable": true,
            "graphTooltip": 1,
            "links": [{
                "asDropdown": true,
                "icon": "external link",
                // Fleet and Agent open with all nodes, which others must not take over.
                "includeVars": matches!(self.of, Of::Vm | Of::Node),
                "keepTime": true,
                "tags": [TAG],
                "targetBlank": false,
                "title": "virtlens",
                "tooltip": "",
                "type": "dashboards",
                "url": "",
            }],
            "panels": rows(self.rows, labels),
            "refresh": "30s",
            "schemaVersion": 39,
            "tags": [TAG],
            "templating": { "list": variables(self.of, labels) },
            "time": { "from": "now-1h", "to": "now" },
            "timepicker": {},
            "timezone": "browser",
            "title": format!("virtlens / {}", self.title),
            "uid": self.uid(),
            "version": 1,
        })
    }
}

impl Dashboard {
    /// Marks the times at which alerts of the shown objects fire.
    fn firing(&self, labels: PodLabels) -> Value {
        let selected = match self.of {
            Of::Vm | Of::Node => "@sel",
            Of::Namespaces => "@fleet",
            Of::Agents => "@node",
        };
        let query =
            format!("ALERTS{{alertname=~\"Virtlens.+\", alertstate=\"firing\", {selected}}}");
        json!({
            "datasource": datasource(),
            "enable": self.of != Of::Namespaces,
            "expr": tokens::query(&query, labels),
            "iconColor": "red",
            "name": "Alerts",
            "step": "60s",
            "tagKeys": labels.name("severity,instance,@namespace,@pod,vm"),
            "titleFormat": "{{alertname}}",
        })
    }
}

fn variables(of: Of, labels: PodLabels) -> Vec<Value> {
    let source = json!({
        "label": "Data source",
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    });
    let values = variables::of(of).map(
        |Variable {
             name,
             title,
             series,
             label,
         }| {
            let query = labels.name(&format!("label_values({series}, {label})"));
            // Grafana chooses the first value of a variable without a current one and without
            // All.
            let is_one = variables::opens_with_one(of, name);
            let all = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
            json!({
                "allValue": variables::ALL,
                "current": if is_one { json!({}) } else { all },
                "datasource": datasource(),
                "definition": query,
                "includeAll": !is_one,
                "label": title,
                "multi": true,
                "name": name,
                "query": { "query": query, "refId": name },
                "refresh": 2,
                "sort": 1,
                "type": "query",
            })
        },
    );
    [source].into_iter().chain(values).collect()
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Rows, from top to bottom, each followed by its panels. A closed row contains them.
fn rows(rows: &[Row], labels: PodLabels) -> Vec<Value> {
    let mut out = Vec::new();
    let mut ids = 1..;
    let mut top = 0;
    for row in rows {
        let id = ids.next();
        let (placed, height) = lines(row);
        let shown: Vec<Value> = placed
            .iter()
            .zip(&mut ids)
            .map(|(one, id)| {
                let (w, h) = (one.panel.width, one.panel.height());
                let mut shown = one.panel.json(labels);
                shown["gridPos"] = json!({ "h": h, "w": w, "x": one.left, "y": top + 1 + one.top });
                shown["id"] = json!(id);
                shown
            })
            .collect();
        let (inside, below) = if row.is_open {
            (Vec::new(), shown)
        } else {
            (shown, Vec::new())
        };
        out.push(json!({
            "collapsed": !row.is_open,
            "gridPos": { "h": 1, "w": COLUMNS, "x": 0, "y": top },
            "id": id,
            "panels": inside,
            "title": row.title,
            "type": "row",
        }));
        out.extend(below);
        top += 1 + if row.is_open { height } else { 0 };
    }
    out
}

/// The panels of a dashboard's JSON, also those in closed rows.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let rows = dashboard["panels"].as_array().into_iter().flatten();
    rows.flat_map(|row| {
        let inside = row["panels"].as_array().into_iter().flatten();
        [row].into_iter().chain(inside)
    })
    .filter(|one| one["type"] != "row")
}

impl Panel {
    fn json(&self, labels: PodLabels) -> Value {
        let (kind, options, custom) = match self.draw {
            Draw::Stat => ("stat", stat(), json!({})),
            Draw::Lines => ("timeseries", self.legend(), self.lines_style("none")),
            Draw::Stacked => ("timeseries", self.legend(), self.lines_style("normal")),
            Draw::Heatmap => ("heatmap", heatmap(self.unit.id()), json!({})),
            Draw::Table => ("table", self.sorted(), json!({ "filterable": true })),
        };
        json!({
            "datasource": datasource(),
            "description": self.text(),
            "fieldConfig": {
                "defaults": {
                    "custom": custom,
                    "min": 0,
                    "thresholds": self.thresholds(),
                    "unit": self.unit.id(),
                },
                "overrides": self.overrides(labels),
            },
            "options": options,
            "targets": self.targets_json(labels),
            "title": self.title,
            "transformations": self.transformations(),
            "type": kind,
        })
    }

    /// The description, with the metrics that the default profile lacks.
    pub(super) fn text(&self) -> String {
        let needs = self
            .targets
            .iter()
            .filter_map(|one| needs::of_query(one.query));
        let need = needs.max().map_or_else(String::new, |need| match need {
            Need::Full => " Empty without the metrics profile full.".to_owned(),
            Need::Named(name) => format!(" Empty unless the setting metrics names {name}."),
        });
        format!("{}{need}", self.description)
    }

    fn legend(&self) -> Value {
        let (mode, placement) = self.legend_place();
        json!({
            "legend": { "calcs": ["lastNotNull", "max"], "displayMode": mode, "placement": placement, "showLegend": true },
            "tooltip": { "mode": "multi", "sort": "desc" },
        })
    }

    fn lines_style(&self, stacking: &str) -> Value {
        let limit = if self.limit.is_some() {
            "dashed"
        } else {
            "off"
        };
        json!({
            "fillOpacity": if stacking == "normal" { 40 } else { 10 },
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": { "group": "A", "mode": stacking },
            "thresholdsStyle": { "mode": limit },
        })
    }

    fn thresholds(&self) -> Value {
        let mut steps = vec![json!({ "color": "green", "value": null })];
        steps.extend(
            self.limit
                .map(|limit| json!({ "color": "red", "value": limit })),
        );
        json!({ "mode": "absolute", "steps": steps })
    }

    fn targets_json(&self, labels: PodLabels) -> Vec<Value> {
        let is_now = matches!(self.draw, Draw::Stat | Draw::Table);
        let format = match self.draw {
            Draw::Table => "table",
            Draw::Heatmap => "heatmap",
            _ => "time_series",
        };
        let targets = ('A'..='Z').zip(self.targets);
        let targets = targets.map(|(id, target)| {
            json!({
                "datasource": datasource(),
                "editorMode": "code",
                "expr": tokens::query(target.query, labels),
                "format": format,
                "instant": is_now,
                "legendFormat": labels.name(target.legend),
                "range": !is_now,
                "refId": id.to_string(),
            })
        });
        targets.collect()
    }

    /// Grafana's name for the value column of each query.
    fn columns(&self) -> impl Iterator<Item = (String, &Target)> {
        let many = self.targets.len() > 1;
        ('A'..='Z').zip(self.targets).map(move |(id, target)| {
            let name = if many {
                format!("Value #{id}")
            } else {
                "Value".to_owned()
            };
            (name, target)
        })
    }

    fn sorted(&self) -> Value {
        let first = self.targets.first().map(|target| target.legend);
        json!({
            "cellHeight": "sm",
            "footer": { "enablePagination": true, "show": false },
            "showHeader": true,
            "sortBy": [{ "desc": true, "displayName": first }],
        })
    }

    fn overrides(&self, labels: PodLabels) -> Vec<Value> {
        if self.draw != Draw::Table {
            return Vec::new();
        }
        let columns = self.columns().map(|(name, target)| {
            let unit = target.unit.unwrap_or(self.unit);
            of_column(
                &name,
                &[
                    json!({ "id": "displayName", "value": target.legend }),
                    json!({ "id": "unit", "value": unit.id() }),
                ],
            )
        });
        let link = json!({
            "id": "links",
            "value": [{ "title": "this VM", "url": labels.name(LINK) }],
        });
        columns.chain([of_column("vm", &[link])]).collect()
    }

    /// Joins the queries of a table into one row for each VM.
    fn transformations(&self) -> Value {
        if self.draw != Draw::Table {
            return json!([]);
        }
        json!([
            { "id": "merge", "options": {} },
            {
                "id": "organize",
                "options": {
                    "excludeByName": { "Time": true, "__name__": true, "job": true, "endpoint": true },
                    "indexByName": {},
                    "renameByName": {},
                },
            },
        ])
    }
}

/// Link from a row of a table to its VM.
const LINK: &str = "/d/virtlens-pod?${datasource:queryparam}\
                    &var-cluster=${__data.fields.cluster}&var-instance=${__data.fields.instance}\
                    &var-namespace=${__data.fields.@namespace}&var-pod=${__data.fields.@pod}\
                    &var-vm=${__data.fields.vm}&${__url_time_range}";

fn of_column(name: &str, properties: &[Value]) -> Value {
    json!({
        "matcher": { "id": "byName", "options": name },
        "properties": properties,
    })
}

fn stat() -> Value {
    json!({
        "colorMode": "value",
        "graphMode": "none",
        "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
        "textMode": "auto",
    })
}

fn heatmap(unit: &str) -> Value {
    json!({
        "calculate": false,
        "cellGap": 1,
        "color": { "exponent": 0.5, "mode": "scheme", "scheme": "Oranges", "steps": 64 },
        "legend": { "show": true },
        "tooltip": { "mode": "single", "yHistogram": false },
        "yAxis": { "axisPlacement": "left", "unit": unit },
    })
}
