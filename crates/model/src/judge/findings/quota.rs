//! CPU limits: whether they cap the VM, which roles are affected, and whether they fit
//! the VM.

use crate::identify::roles::is_timer;
use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::remedy::Setup;
use crate::judge::findings::text::{listed, percent, thousandths, time};
use crate::judge::interval::{Interval, LimitUse};
use crate::snapshot::{Check, Finding, Quota, RoleUse};
use crate::vocab::{Role, Scope};

/// Roles on which guest I/O depends.
const IO: [Role; 3] = [Role::Vhost, Role::Virtiofsd, Role::Iothread];

pub(super) fn judge(
    over: &Interval,
    bounds: &Bounds,
    setup: &Setup,
) -> impl Iterator<Item = Finding> {
    let unapplied = unapplied(over);
    // `unapplied` already reports that all threads are outside.
    let outside = match unapplied {
        Some(_) => None,
        None => outside(over, bounds, setup),
    };
    [
        capped(over, bounds, setup),
        unapplied,
        io_throttled(over, bounds, setup),
        too_many_vcpus(over, bounds, setup),
        both_ways(over),
        outside,
    ]
    .into_iter()
    .flatten()
}

/// Throttled share of a limit: the larger of its share of periods and its share of time.
/// A vCPU that is alone under a limit of 0.95 cores is throttled for at most the rest of
/// each period, 5 % of the time, but in every period. The share of time alone does not
/// show that it wanted more.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn throttled_share(over: &Interval, limit: &LimitUse) -> f64 {
    let of_periods = limit.throttled_periods as f64 / limit.periods.max(1) as f64;
    over.cores(over.throttled_ns(limit)).max(of_periods)
}

fn capped(over: &Interval, bounds: &Bounds, setup: &Setup) -> Option<Finding> {
    let worst = over
        .limits()
        .map(|limit| {
            let used = over.cores(limit.total_ns()) / limit.cores;
            (used, throttled_share(over, &limit), limit)
        })
        .filter(|(used, throttled, _)| {
            *used >= bounds.quota_used && *throttled >= bounds.quota_throttled
        })
        .max_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    let (used, throttled, limit) = worst?;
    let mut users: Vec<(Role, u64)> = Role::ALL
        .into_iter()
        .filter_map(|role| Some((role, limit.of(role)?)))
        .filter(|(_, ns)| over.cores(*ns) >= 0.005)
        .collect();
    users.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let users = users
        .iter()
        .map(|(role, ns)| format!("{} {:.2}", role.name(), over.cores(*ns)));
    let about = if limit.wall_ns.is_some() {
        ""
    } else {
        "up to "
    };
    let evidence = format!(
        "the {} used {:.2} of {:.2} cores ({}): {}; throttled for {about}{} of {}, in {} of {} periods",
        place_of(limit.now.scope),
        over.cores(limit.total_ns()),
        limit.cores,
        percent(used),
        listed(users),
        time(over.throttled_ns(&limit)),
        time(over.length_ns()),
        limit.throttled_periods,
        limit.periods,
    ) + &made_of(over, &limit);
    let of_vcpus = limit.of(Role::Vcpu).unwrap_or(0);
    let other_ns = limit.total_ns().saturating_sub(of_vcpus);
    let overhead_is_high = over.cores(other_ns) >= 0.1 * limit.cores;
    let remedy = setup.raise(limit.now.scope, &limit.now.cgroup, overhead_is_high);
    let excess = throttled / bounds.quota_throttled;
    Some(Finding::new(Check::QuotaCapped, evidence, excess).with(remedy))
}

/// A pod's limit on a cgroup without threads of the VM.
fn unapplied(over: &Interval) -> Option<Finding> {
    let vm = over.now;
    if vm.cgroup_layout != Some("stray") {
        return None;
    }
    let spec = vm.pod_spec.as_ref();
    let (cores, of) = match &vm.unapplied_limit {
        Some(limit) => (limit.cores, format!("the empty {}", limit.cgroup)),
        None => (
            thousandths(spec?.quota_millis()?),
            "the pod's spec".to_owned(),
        ),
    };
    let used = over.cores(over.cpu_ns());
    let evidence = format!(
        "the pod's limit of {cores:.2} cores ({of}) applies to no thread of its VM, which used \
         {used:.2} cores in {}",
        vm.cgroup.as_deref().unwrap_or("another cgroup")
    );
    let excess = (used / cores).max(1.0);
    Some(Finding::new(Check::LimitWithoutVm, evidence, excess))
}

/// The parts from which kubelet computed the pod's limit, if they explain it.
#[expect(
    clippy::cast_precision_loss,
    reason = "thousandths of the cores of a host"
)]
fn made_of(over: &Interval, limit: &LimitUse) -> String {
    let spec = over.now.pod_spec.as_ref();
    let Some((spec, quota)) = spec.and_then(|spec| Some((spec, spec.quota_millis()?))) else {
        return String::new();
    };
    let cores = |millis: u64| format!("{:.2}", thousandths(millis));
    let is_this =
        limit.now.scope == Scope::Pod && (limit.cores * 1000.0 - quota as f64).abs() < 1.0;
    match (is_this, spec.cpu_overhead_millis, spec.cpu_limit_millis) {
        (true, Some(overhead), Some(limit)) if overhead > 0 => format!(
            "; the limit is {} of its containers and {} of its runtime class",
            cores(limit),
            cores(overhead)
        ),
        _ => String::new(),
    }
}

fn place_of(scope: Scope) -> &'static str {
    match scope {
        Scope::Pod => "pod",
        Scope::Sandbox => "sandbox's cgroup",
        Scope::Container => "container",
        Scope::Overhead => "overhead cgroup",
        Scope::Machine => "machine's cgroup",
        Scope::Vcpu => "vCPU's cgroup",
        Scope::Emulator => "emulator's cgroup",
        Scope::Iothread => "iothread's cgroup",
    }
}

fn io_throttled(over: &Interval, bounds: &Bounds, setup: &Setup) -> Option<Finding> {
    let is_throttled =
        |limit: &LimitUse| over.cores(over.throttled_ns(limit)) >= bounds.io_throttled;
    let mut stalled: Vec<(RoleUse, u64, &Quota)> = over
        .limits()
        .filter(is_throttled)
        .flat_map(|limit| {
            let throttled_ns = over.throttled_ns(&limit);
            let charged = over.roles().filter(move |role| {
                IO.contains(&role.role) && limit.of(role.role).is_some_and(|ns| ns > 0)
            });
            charged.filter_map(move |role| {
                let threads = u64::from(role.threads.max(1));
                let stalled_ns = role.wait_ns?.min(throttled_ns.saturating_mul(threads));
                Some((role, stalled_ns, limit.now))
            })
        })
        .filter(|(_, stalled_ns, _)| over.cores(*stalled_ns) >= bounds.io_throttled)
        .collect();
    stalled.sort_by_key(|(role, stalled_ns, _)| (role.role, std::cmp::Reverse(*stalled_ns)));
    stalled.dedup_by_key(|(role, ..)| role.role);
    let (_, worst_ns, limit) = *stalled
        .iter()
        .max_by_key(|(_, stalled_ns, _)| *stalled_ns)?;
    let roles: Vec<Role> = stalled.iter().map(|(role, ..)| role.role).collect();
    let remedy = setup.free_io(limit.scope, &limit.cgroup, &roles);
    let evidence = stalled.iter().map(|(role, stalled_ns, _)| {
        let hits = match role.throttle_hits {
            Some(hits) if hits > 0 => format!(" (running {hits} times when the quota ran out)"),
            _ => String::new(),
        };
        let threads = match role.threads {
            0 | 1 => format!("{} was", role.role.name()),
            more => format!("{more} threads of {} together were", role.role.name()),
        };
        format!(
            "{threads} runnable but did not run for {} of {} under a throttled limit{hits}",
            time(*stalled_ns),
            time(over.length_ns())
        )
    });
    let excess = over.cores(worst_ns) / bounds.io_throttled;
    Some(Finding::new(Check::IoThrottled, listed(evidence), excess).with(remedy))
}

/// Raised only if throttling is noticeable: Kata's Go runtime gives two vCPUs to each pod
/// with a limit of up to one core, and most of these pods are hardly throttled.
fn too_many_vcpus(over: &Interval, bounds: &Bounds, setup: &Setup) -> Option<Finding> {
    let counts = over.now.vcpu_count;
    let vcpus = counts.online.map(|_| counts.usable())?;
    let cores = over.now.vcpu_limit_cores?;
    let of_vcpus = over.limits().filter(|limit| limit.of(Role::Vcpu).is_some());
    let throttled_ns = of_vcpus.map(|limit| over.throttled_ns(&limit)).max()?;
    let ratio = f64::from(vcpus) / cores;
    let is_throttled = over.cores(throttled_ns) >= bounds.io_throttled;
    (ratio >= bounds.vcpus_per_quota && vcpus > 1 && is_throttled).then(|| {
        let evidence = format!(
            "{vcpus} vCPUs under a limit of {cores:.2} cores: {ratio:.1} vCPUs per core; throttled \
             for {} of {}",
            time(throttled_ns),
            time(over.length_ns())
        );
        let excess = ratio / bounds.vcpus_per_quota;
        let remedy = setup.fewer_vcpus(cores);
        Finding::new(Check::VcpusExceedQuota, evidence, excess).with(remedy)
    })
}

/// Decided by the pod's annotation. If it is missing or unknown, decided by the numbers
/// of vCPUs: Kata's Go runtime boots `default_vcpus` and plugs in more for the limit
/// (`src/runtime/pkg/oci/utils.go`, `CalculateSandboxSizing`). runtime-rs boots all vCPUs
/// at once, so the numbers show nothing.
fn both_ways(over: &Interval) -> Option<Finding> {
    let count = over.now.vcpu_count;
    let limit = over.binding()?;
    let spec = over.now.pod_spec.as_ref();
    if let Some(vcpus) = spec.and_then(|spec| spec.default_vcpus)
        && vcpus > 1.0
    {
        let evidence = format!(
            "the pod's annotation default_vcpus is {vcpus}, in addition to a limit of {:.2} cores",
            limit.cores
        );
        return Some(Finding::new(Check::DefaultVcpusWithLimit, evidence, 1.0));
    }
    let (boot, online) = count.boot.zip(count.online.map(|_| count.usable()))?;
    let is_both = over.now.runtime == Some("kata") && boot > 1 && online > boot;
    is_both.then(|| {
        let evidence = format!(
            "the VM booted with {boot} vCPUs and has {online} now, under a limit of {:.2} cores",
            limit.cores
        );
        Finding::new(Check::DefaultVcpusWithLimit, evidence, 1.0)
    })
}

fn outside(over: &Interval, bounds: &Bounds, setup: &Setup) -> Option<Finding> {
    let pod = over.limits().find(|limit| limit.now.scope == Scope::Pod);
    // The VM's timer is a kernel thread in the root cgroup, which no remedy moves.
    let timers = over.now.threads.iter().filter(|one| is_timer(one.name));
    let timer = (
        u32::try_from(timers.count()).unwrap_or(u32::MAX),
        over.threads_ns(is_timer),
    );
    let outside: Vec<(RoleUse, u64)> = over
        .roles()
        .filter_map(|role| {
            let (timers, timer_ns) = if role.role == Role::Emulator {
                timer
            } else {
                (0, 0)
            };
            let threads = role.outside_pod?.saturating_sub(timers);
            if threads == 0 {
                return None;
            }
            let role = RoleUse {
                threads: role.threads.saturating_sub(timers),
                cpu_ns: role.cpu_ns.saturating_sub(timer_ns),
                outside_pod: Some(threads),
                ..role
            };
            let outside_ns = match &pod {
                Some(pod) => role.cpu_ns.saturating_sub(pod.of(role.role).unwrap_or(0)),
                None if threads == role.threads => role.cpu_ns,
                // The role has threads inside and outside, and their shares are unknown.
                None => return None,
            };
            Some((role, outside_ns))
        })
        .collect();
    let sum_ns = outside
        .iter()
        .fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let cores = over.cores(sum_ns);
    (cores >= bounds.outside_cores).then(|| {
        let parts = outside.iter().map(|(role, ns)| {
            let threads = role.outside_pod.unwrap_or(0);
            let plural = if threads == 1 { "" } else { "s" };
            let (name, cores) = (role.role.name(), over.cores(*ns));
            format!("{threads} {name} thread{plural} with {cores:.2} cores")
        });
        let evidence = format!(
            "threads outside the pod's cgroup used {cores:.2} cores: {}",
            listed(parts)
        );
        let excess = cores / bounds.outside_cores;
        Finding::new(Check::ThreadsOutsidePod, evidence, excess).with(setup.take_in(cores))
    })
}
