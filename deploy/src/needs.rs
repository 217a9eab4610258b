//! The profile of metrics that a query needs.

use virtlens_export::{Family, Profile, families};

use crate::promql;
use crate::rules::recordings;
use crate::tokens::{self, PodLabels};

/// A metric that the default profile lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The profile `full` has it.
    Full,
    /// Only its name selects it.
    Named(&'static str),
}

/// The need of a query with [`tokens`], `None` if the default profile has all its metrics.
///
/// # Panics
///
/// If the query is no `PromQL`, which would be a bug.
pub fn of_query(query: &str) -> Option<Need> {
    let query = tokens::query(query, PodLabels::Kept);
    let selectors = promql::selectors(&query).expect("the query is PromQL");
    selectors
        .iter()
        .filter_map(|one| of_metric(&one.metric))
        .max()
}

fn of_metric(metric: &str) -> Option<Need> {
    if let Some(rule) = recordings().find(|rule| rule.name == metric) {
        return of_query(rule.query);
    }
    let is_it = |family: &&'static Family| {
        let rest = metric.strip_prefix(family.name);
        rest.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
    };
    let family = families().find(is_it)?;
    match family.profile {
        Some(Profile::Minimal | Profile::Default) => None,
        Some(Profile::Full) => Some(Need::Full),
        None => Some(Need::Named(family.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Need, of_query};

    #[test]
    fn needs_are_found_behind_suffixes_and_rules() {
        assert_eq!(of_query("virtlens_cpu_seconds_total{@sel}"), None);
        assert_eq!(of_query("vm:virtlens_cpu_seconds:rate5m"), None);
        assert_eq!(of_query("up"), None);
        let durations = "virtlens_throttle_duration_seconds_bucket / virtlens_vm_info";
        assert_eq!(of_query(durations), Some(Need::Full));
        let name = "virtlens_vcpu_pcpu_seconds_total";
        assert_eq!(of_query(name), Some(Need::Named(name)));
    }
}
