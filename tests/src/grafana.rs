//! Substitution of dashboard variables in queries, as Grafana does it.

use serde_json::Value;

use crate::prometheus::Prometheus;

/// The variables of a dashboard with their values.
#[derive(Debug)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// Resolves the variables in order, because a variable's values depend on earlier
    /// ones. `choose` gets the name, the values as parts of a regular expression, and the
    /// expression for all of them.
    pub fn of(
        prometheus: &Prometheus,
        dashboard: &Value,
        mut choose: impl FnMut(&str, &[String], &str) -> String,
    ) -> Self {
        let mut known = Self(Vec::new());
        let list = dashboard["templating"]["list"].as_array();
        for variable in list.into_iter().flatten() {
            let Some(query) = variable["query"]["query"].as_str() else {
                continue;
            };
            let values = label_values(prometheus, &known.choices_in(query));
            let name = variable["name"].as_str().unwrap_or_default();
            let all = variable["allValue"].as_str().unwrap_or_default();
            let value = choose(name, &values, all);
            known.0.push((name.to_owned(), value));
        }
        known
    }

    /// The query as Grafana sends it.
    pub fn put_into(&self, query: &str, rate_interval: &str) -> String {
        self.choices_in(&query.replace("$__rate_interval", rate_interval))
    }

    fn choices_in(&self, query: &str) -> String {
        self.0
            .iter()
            .fold(query.to_owned(), |query, (name, value)| {
                query.replace(&format!("\"${name}\""), &format!("\"{value}\""))
            })
    }
}

/// The values of `label_values(SELECTOR, LABEL)`, as parts of a regular expression.
fn label_values(prometheus: &Prometheus, query: &str) -> Vec<String> {
    let inside = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'));
    let (selector, label) = inside
        .and_then(|inside| inside.rsplit_once(", "))
        .unwrap_or_else(|| panic!("{query} is no label_values"));
    let path = format!("label/{label}/values");
    let answer = prometheus.api(&path, &[("match[]", selector)]);
    let values = answer.as_array().cloned().unwrap_or_default();
    let values = values.iter().filter_map(Value::as_str);
    values.map(|value| value.replace('.', "\\\\.")).collect()
}
