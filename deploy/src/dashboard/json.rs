//! A dashboard as Grafana's JSON.

use serde_json::{Value, json};

use super::{Dashboard, Draw, Of, Panel, Row, Target};
use crate::needs::{self, Need};
use crate::tokens::{self, PodLabels};

/// The tag by which the dashboards link to each other.
const TAG: &str = "virtlens";

/// Width of a dashboard, columns.
const COLUMNS: u32 = 24;

/// A variable: name, label, query of its values. The query depends on the preceding
/// variables.
type Variable = (&'static str, &'static str, &'static str);

const OF_AGENTS: [Variable; 2] = [
    (
        "cluster",
        "Cluster",
        "label_values(virtlens_build_info, cluster)",
    ),
    (
        "instance",
        "Node",
        r#"label_values(virtlens_build_info{cluster=~"$cluster"}, instance)"#,
    ),
];

const OF_VMS: [Variable; 3] = [
    (
        "namespace",
        "Namespace",
        r#"label_values(virtlens_vm_info{cluster=~"$cluster", instance=~"$instance"}, @namespace)"#,
    ),
    (
        "pod",
        "Pod",
        r#"label_values(virtlens_vm_info{cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace"}, @pod)"#,
    ),
    (
        "vm",
        "VM",
        r#"label_values(virtlens_vm_info{cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace", @pod=~"$pod"}, vm)"#,
    ),
];

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
                "includeVars": true,
                "keepTime": true,
                "tags": [TAG],
                "targetBlank": false,
                "title": "virtlens",
                "tooltip": "",
                "type": "dashboards",
                "url": "",
            }],
            "panels": panels(self.rows, labels),
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
    let vms: &[Variable] = match of {
        Of::Vm | Of::Node => &OF_VMS,
        Of::Namespaces => &OF_VMS[..1],
        Of::Agents => &[],
    };
    let values = OF_AGENTS.iter().chain(vms);
    let values = values.map(|(name, label, query)| {
        let query = labels.name(query);
        // Grafana chooses the first value of a variable without a current one and without All:
        // queries over all VMs of a fleet would take seconds.
        let is_one = [(Of::Node, "instance"), (Of::Vm, "vm")].contains(&(of, name));
        let all = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
        json!({
            // Matches objects without the label too: hosts without pods, a single
            // cluster.
            "allValue": ".*",
            "current": if is_one { json!({}) } else { all },
            "datasource": datasource(),
            "definition": query,
            "includeAll": !is_one,
            "label": label,
            "multi": true,
            "name": name,
            "query": { "query": query, "refId": name },
            "refresh": 2,
            "sort": 1,
            "type": "query",
        })
    });
    [source].into_iter().chain(values).collect()
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Lays out rows and panels, as many panels per line as fit.
fn panels(rows: &[Row], labels: PodLabels) -> Vec<Value> {
    let mut out = Vec::new();
    let mut top = 0;
    for row in rows {
        out.push(json!({
            "collapsed": false,
            "gridPos": { "h": 1, "w": COLUMNS, "x": 0, "y": top },
            "id": out.len() + 1,
            "panels": [],
            "title": row.title,
            "type": "row",
        }));
        top += 1;
        let (mut left, mut height) = (0, 0);
        for one in row.panels {
            if left + one.width > COLUMNS {
                top += height;
                (left, height) = (0, 0);
            }
            let place = json!({ "h": one.height(), "w": one.width, "x": left, "y": top });
            let mut shown = one.json(labels);
            shown["gridPos"] = place;
            shown["id"] = json!(out.len() + 1);
            out.push(shown);
            left += one.width;
            height = height.max(one.height());
        }
        top += height;
    }
    out
}

impl Panel {
    fn height(&self) -> u32 {
        match self.draw {
            Draw::Stat => 4,
            Draw::Lines | Draw::Stacked | Draw::Heatmap => 8,
            Draw::Table => 9,
        }
    }

    fn json(&self, labels: PodLabels) -> Value {
        let (kind, options, custom) = match self.draw {
            Draw::Stat => ("stat", stat(), json!({})),
            Draw::Lines => ("timeseries", legend(), self.lines_style("none")),
            Draw::Stacked => ("timeseries", legend(), self.lines_style("normal")),
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
    fn text(&self) -> String {
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

fn legend() -> Value {
    json!({
        "legend": { "calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "right", "showLegend": true },
        "tooltip": { "mode": "multi", "sort": "desc" },
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
