//! CPU Ready and co-stop of a VM in an interval.
//!
//! Two readings give the run time and the wait of each vCPU, but not when they were. So
//! the time in which some vCPUs ran while others waited is known within bounds only. A
//! trace measures it exactly.

use crate::account::meter::Times;
use crate::judge::interval::{Interval, VcpuUse};
use crate::snapshot::{Ready, TimeRange, VcpuReady};
use crate::vocab::CpuSet;

/// CPU Ready of the VM in the interval.
pub fn ready(over: &Interval) -> Ready {
    Ready {
        interval_ns: over.length_ns(),
        co_stop: co_stop(over),
        vcpus: over
            .vcpus()
            .filter_map(|vcpu| {
                Some(VcpuReady {
                    vcpu: vcpu.id,
                    wait_ns: vcpu.wait_ns?,
                    contended: contended(over, &vcpu)?,
                    mean_wait_ns: vcpu.mean_wait_ns(),
                    timeslices: vcpu.timeslices,
                    involuntary_switches: vcpu.involuntary_switches,
                })
            })
            .collect(),
    }
}

/// Time in which a vCPU waited for a CPU, without throttling; `None` if its run delay is
/// unknown. Run delay includes throttling: the limits of a vCPU throttled it at most for
/// as long as they throttled any thread.
pub(super) fn contended(over: &Interval, vcpu: &VcpuUse) -> Option<TimeRange> {
    let wait_ns = vcpu.wait_ns?;
    let throttled_ns = over.vcpu_throttled_ns(vcpu.id);
    Some(TimeRange {
        least_ns: wait_ns.saturating_sub(throttled_ns),
        most_ns: wait_ns,
    })
}

/// Time in which at least one vCPU ran while at least one other was runnable but did not
/// run, throttling included; `None` if a vCPU started or ended in the interval, or if a
/// value of one is unknown.
pub(super) fn co_stop(over: &Interval) -> Option<TimeRange> {
    let counts = over.now.vcpu_count;
    let vcpus: Vec<VcpuUse> = over.vcpus().collect();
    // An unseen vCPU may have run.
    let are_all = counts.online.is_none() || usize::try_from(counts.usable()) == Ok(vcpus.len());
    if !are_all || over.vcpus_at_ends() != [vcpus.len(); 2] {
        return None;
    }
    let times = vcpus.iter().map(|vcpu| {
        Some(Times {
            cpu_ns: vcpu.cpu_ns,
            wait_ns: vcpu.wait_ns?,
        })
    });
    let times: Option<Vec<Times>> = times.collect();
    Some(bounds(&times?, pcpus(over), over.length_ns()))
}

/// Number of pCPUs on which the vCPUs may run; `None` if unknown.
fn pcpus(over: &Interval) -> Option<usize> {
    let mut all = CpuSet::default();
    for mask in over.vcpu_masks() {
        mask?.iter().for_each(|pcpu| all.insert(pcpu));
    }
    Some(all.len())
}

/// Bounds of the co-stop of vCPUs with these run times and waits, ns, on at most `pcpus`
/// CPUs in `length_ns`.
///
/// Let n be the number of vCPUs, m that of pCPUs, and u the co-stop.
///
/// - For any two vCPUs, the run time of one and the wait of the other overlap in all that
///   exceeds the interval.
/// - If m < n: outside of co-stop either up to m run or up to n wait, so that
///   running / m + waiting / n is at most 1. In co-stop it is at most 1 + (n − m) / n. Its
///   integral is Σ run / m + Σ wait / n, and thus at most length + u · (n − m) / n.
/// - A vCPU waits in co-stop at most as long as it waits, and as the others run; and the
///   same with running and waiting exchanged.
fn bounds(vcpus: &[Times], pcpus: Option<usize>, length_ns: u64) -> TimeRange {
    let run = |vcpu: &Times| u128::from(vcpu.cpu_ns);
    let wait = |vcpu: &Times| u128::from(vcpu.wait_ns);
    let (runs, waits) = (vcpus.iter().map(run), vcpus.iter().map(wait));
    let of_pair = runs.clone().max().unwrap_or(0) + waits.clone().max().unwrap_or(0);
    let (all_run, all_wait): (u128, u128) = (runs.sum(), waits.sum());
    let length = u128::from(length_ns);

    let mut least = of_pair.saturating_sub(length);
    let (n, m) = (vcpus.len() as u128, pcpus.unwrap_or(vcpus.len()) as u128);
    if 0 < m && m < n {
        let excess = (n * all_run + m * all_wait).saturating_sub(m * n * length);
        least = least.max(excess / (m * (n - m)));
    }

    let waits_while_others_run = vcpus.iter().map(|one| wait(one).min(all_run - run(one)));
    let runs_while_others_wait = vcpus.iter().map(|one| run(one).min(all_wait - wait(one)));
    let most = length
        .min(waits_while_others_run.sum())
        .min(runs_while_others_wait.sum());
    let ns = |time: u128| u64::try_from(time).unwrap_or(u64::MAX);
    TimeRange {
        least_ns: ns(least.min(most)),
        most_ns: ns(most),
    }
}

#[cfg(test)]
mod tests;
