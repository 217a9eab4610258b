//! All rules over one interval.

use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::remedy::Setup;
use crate::judge::findings::{memory, place, quota, threads};
use crate::judge::interval::Interval;
use crate::snapshot::{Check, Finding};

/// Judges a VM over an interval and returns the findings [by rank](Finding::by_rank).
/// `cgroup` is the cgroup version of the host's cpu controller
/// ([`Node::cgroup`](crate::snapshot::Node)).
pub fn judge(over: &Interval, bounds: &Bounds, cgroup: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let setup = Setup::of(over.now, cgroup);
    found.extend(quota::judge(over, bounds, &setup));
    // A VM at its limit needs a higher limit: more vCPUs would only share it.
    let is_capped = found.iter().any(|one| one.check == Check::QuotaCapped);
    let threads = threads::judge(over, bounds, &setup);
    found.extend(threads.filter(|one| !is_capped || one.check != Check::VcpusSaturated));
    found.extend(place::judge(over));
    found.extend(memory::judge(over, bounds));
    found.sort_by(Finding::by_rank);
    found
}
