//! Parses the selectors of a query.

use promql_parser::label::MatchOp;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};

/// One selector of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Name of the metric.
    pub metric: String,
    /// Matchers: label, operator (`=`, `!=`, `=~`, `!~`), value.
    pub conditions: Vec<(String, String, String)>,
}

impl Selector {
    /// Formats the selector as a query.
    pub fn query(&self) -> String {
        let conditions = self.conditions.iter();
        let conditions: Vec<String> = conditions
            .map(|(label, operator, value)| format!("{label}{operator}{value:?}"))
            .collect();
        format!("{}{{{}}}", self.metric, conditions.join(", "))
    }
}

/// Values for Grafana's own variables, only for the parser.
const GRAFANA: [(&str, &str); 3] = [
    ("$__rate_interval", "1m"),
    ("$__interval", "1m"),
    ("$__range", "1h"),
];

/// Returns all selectors of a query, which may contain Grafana's variables.
///
/// # Errors
///
/// If it is not valid `PromQL`, or a selector has no name.
pub fn selectors(query: &str) -> Result<Vec<Selector>, String> {
    let query = GRAFANA
        .iter()
        .fold(query.to_owned(), |query, (name, value)| {
            query.replace(name, value)
        });
    let parsed = parser::parse(&query).map_err(|error| format!("{query}: {error}"))?;
    let mut found = Found(Vec::new());
    walk_expr(&mut found, &parsed)?;
    Ok(found.0)
}

struct Found(Vec<Selector>);

impl ExprVisitor for Found {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.0.push(selector_of(selector)?),
            Expr::MatrixSelector(matrix) => self.0.push(selector_of(&matrix.vs)?),
            _ => {}
        }
        Ok(true)
    }
}

fn selector_of(selector: &VectorSelector) -> Result<Selector, String> {
    let metric = selector.name.clone().ok_or("a selector without a name")?;
    let matchers = selector.matchers.matchers.iter();
    let conditions = matchers.map(|matcher| {
        let operator = match &matcher.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Re(_) => "=~",
            MatchOp::NotRe(_) => "!~",
        };
        let (name, value) = (matcher.name.clone(), matcher.value.clone());
        (name, operator.to_owned(), value)
    });
    Ok(Selector {
        metric,
        conditions: conditions.collect(),
    })
}

/// The labels by which a query groups or joins: the content of the parentheses after
/// `by`, `on` and the like.
pub fn grouping_labels(query: &str) -> Vec<String> {
    let words = ["by (", "on (", "ignoring (", "without (", "group_left ("];
    let mut labels = Vec::new();
    for word in words {
        for part in query.split(&format!(" {word}")).skip(1) {
            let inside = part.split(')').next().unwrap_or_default();
            let inside = inside.split(',').map(|label| label.trim().to_owned());
            labels.extend(inside.filter(|label| !label.is_empty()));
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_found_anywhere_in_query() {
        let query =
            r#"sum by (a, b) (rate(x{l="1"}[$__rate_interval])) / on (a) y > 0 or vector(0)"#;
        let found = selectors(query).expect("PromQL");
        let names: Vec<_> = found.iter().map(|one| one.metric.as_str()).collect();
        assert_eq!(names, ["x", "y"]);
        assert_eq!(found[0].query(), r#"x{l="1"}"#);
        assert_eq!(grouping_labels(query), ["a", "b", "a"]);
        assert!(selectors("sum by (").is_err());
    }
}
