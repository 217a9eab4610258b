//! The usage of a VM in an interval, in numbers that two intervals can be compared by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use virtlens_model::judge::around::Span;
use virtlens_model::judge::interval::{Interval, LimitUse};
use virtlens_model::judge::ready::ready;
use virtlens_model::vocab::Role;

use crate::term::shown;

/// Usage of a VM in an interval; `None` is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Start of the interval, RFC 3339, UTC.
    from: String,
    /// End of the interval, RFC 3339, UTC.
    until: String,
    /// Length of the interval, ns.
    length_ns: u64,
    /// CPU time per second.
    cpu_cores: f64,
    /// CPU time per second, by role.
    role_cores: BTreeMap<Role, f64>,
    /// Run delay of all threads per second, throttling included.
    wait_cores: Option<f64>,
    /// Share of the time in which the vCPU that waits most waited, throttling left out.
    vcpu_wait_ratio: Option<f64>,
    /// The binding limit.
    limit_cores: Option<f64>,
    /// Used share of the limit.
    limit_used_ratio: Option<f64>,
    /// Share of the time in which the limit throttled the VM.
    throttled_ratio: Option<f64>,
    /// Share of the limit's periods in which it throttled the VM.
    throttled_periods_ratio: Option<f64>,
    /// Resident memory of the VMM at the end.
    memory_resident_bytes: Option<u64>,
    /// Memory of the cgroup with the tightest limit at the end.
    memory_cgroup_bytes: Option<u64>,
}

impl Usage {
    /// The usage in an interval.
    pub(super) fn of(span: &Span<'_>) -> Self {
        let over = &span.over;
        let limit = over.binding();
        let waits = ready(over).vcpus.into_iter();
        let waits = waits.map(|vcpu| over.cores(vcpu.contended.least_ns));
        let memory = &over.now.memory;
        Self {
            from: shown(span.from_ns),
            until: shown(span.until_ns),
            length_ns: over.length_ns(),
            cpu_cores: over.cores(over.cpu_ns()),
            role_cores: over
                .roles()
                .map(|role| (role.role, over.cores(role.cpu_ns)))
                .collect(),
            wait_cores: over.wait_ns().map(|ns| over.cores(ns)),
            vcpu_wait_ratio: waits.reduce(f64::max),
            limit_cores: limit.as_ref().map(|limit| limit.cores),
            limit_used_ratio: limit
                .as_ref()
                .map(|limit| over.cores(limit.total_ns()) / limit.cores),
            throttled_ratio: limit.as_ref().map(|limit| throttled(over, limit)),
            throttled_periods_ratio: limit.as_ref().and_then(throttled_periods),
            memory_resident_bytes: memory.resident_bytes,
            memory_cgroup_bytes: memory.cgroup_bytes,
        }
    }
}

fn throttled(over: &Interval, limit: &LimitUse) -> f64 {
    over.cores(over.throttled_ns(limit))
}

#[expect(clippy::cast_precision_loss, reason = "a percentage with one decimal")]
fn throttled_periods(limit: &LimitUse) -> Option<f64> {
    let (periods, throttled) = (limit.periods as f64, limit.throttled_periods as f64);
    (limit.periods > 0).then_some(throttled / periods)
}

/// A row: its name, and the value of each usage.
type Row = (String, [Option<String>; 2]);

/// The values of two usages as rows; rows without a value are left out.
pub(super) fn rows(both: [Option<&Usage>; 2]) -> Vec<Row> {
    let row = |name: &str, value: &dyn Fn(&Usage) -> Option<String>| {
        (name.to_owned(), both.map(|usage| usage.and_then(value)))
    };
    let cores = |value: f64| format!("{value:.2}");
    let percent = |ratio: f64| format!("{:.1}", 100.0 * ratio);
    let mib = |bytes: u64| (bytes >> 20).to_string();
    #[expect(clippy::cast_precision_loss, reason = "seconds with one decimal")]
    let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
    let mut rows = vec![
        row("time, s", &|of| Some(seconds(of.length_ns))),
        row("CPU, cores", &|of| Some(cores(of.cpu_cores))),
    ];
    for role in Role::ALL {
        rows.push(row(&format!("  {}", role.name()), &|of| {
            of.role_cores.get(&role).copied().map(cores)
        }));
    }
    rows.extend([
        row("wait for a CPU, cores", &|of| of.wait_cores.map(cores)),
        row("vCPU that waits most, %", &|of| {
            of.vcpu_wait_ratio.map(percent)
        }),
        row("CPU limit, cores", &|of| of.limit_cores.map(cores)),
        row("  used, %", &|of| of.limit_used_ratio.map(percent)),
        row("  throttled, % of the time", &|of| {
            of.throttled_ratio.map(percent)
        }),
        row("  throttled, % of periods", &|of| {
            of.throttled_periods_ratio.map(percent)
        }),
        row("resident memory, MiB", &|of| {
            of.memory_resident_bytes.map(mib)
        }),
        row("memory of the cgroup, MiB", &|of| {
            of.memory_cgroup_bytes.map(mib)
        }),
    ]);
    rows.retain(|(_, cells)| cells.iter().any(Option::is_some));
    rows
}
