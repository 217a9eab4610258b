//! Saturated and starved threads: workers and vCPUs.

use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::remedy::Setup;
use crate::judge::findings::text::{listed, percent, short_time, time};
use crate::judge::interval::{Interval, VcpuUse};
use crate::judge::ready::{co_stop, contended};
use crate::snapshot::{Check, Finding, Interrupts, Thread, TimeRange, Worker};
use crate::vocab::{Comm, Role};

pub(super) fn judge(
    over: &Interval,
    bounds: &Bounds,
    setup: &Setup,
) -> impl Iterator<Item = Finding> {
    let saturated = [
        (Check::VhostSaturated, Role::Vhost, bounds.vhost_busy),
        (
            Check::VirtiofsdSaturated,
            Role::Virtiofsd,
            bounds.virtiofsd_busy,
        ),
        (
            Check::IothreadSaturated,
            Role::Iothread,
            bounds.iothread_busy,
        ),
    ]
    .map(|(check, role, busy)| saturated(over, check, role, busy));
    let vcpus: Vec<VcpuUse> = over.vcpus().collect();
    saturated
        .into_iter()
        .chain([
            all_busy(over, &vcpus, bounds).map(|found| found.with(setup.more_vcpus())),
            starved(over, &vcpus, bounds),
            spinning(over, &vcpus, bounds),
            overhead(over, bounds),
            pool(over, bounds),
        ])
        .flatten()
}

fn saturated(over: &Interval, check: Check, role: Role, busy: f64) -> Option<Finding> {
    let mut workers: Vec<Worker> = over
        .workers()
        .filter(|worker| worker.role == role && over.cores(worker.cpu_ns) >= busy)
        .collect();
    workers.sort_by_key(|worker| std::cmp::Reverse(worker.cpu_ns));
    let most = over.cores(workers.first()?.cpu_ns);
    let parts = workers.iter().map(|worker| {
        let thread = match (worker.tid, worker.device) {
            (Some(tid), Some(device)) => format!(" (thread {tid}, {device})"),
            (Some(tid), None) => format!(" (thread {tid})"),
            (None, _) => String::new(),
        };
        format!(
            "{} worker {}{thread} used {:.2} of 1 core",
            role.name(),
            worker.worker,
            over.cores(worker.cpu_ns)
        )
    });
    Some(Finding::new(check, listed(parts), most / busy))
}

fn poll_ns(vcpu: &VcpuUse) -> u64 {
    vcpu.kvm
        .halt_poll_ns()
        .map_or(0, |poll| poll.success.saturating_add(poll.fail))
}

/// Share of the interval in which the vCPUs ran without polling.
fn busy(over: &Interval, vcpus: &[VcpuUse]) -> f64 {
    let busy = vcpus
        .iter()
        .map(|vcpu| over.cores(vcpu.cpu_ns.saturating_sub(poll_ns(vcpu))));
    busy.sum::<f64>() / count(vcpus).max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "there are a few")]
fn count<T>(things: &[T]) -> f64 {
    things.len() as f64
}

fn all_busy(over: &Interval, vcpus: &[VcpuUse], bounds: &Bounds) -> Option<Finding> {
    let share = busy(over, vcpus);
    let counts = over.now.vcpu_count;
    // An unseen vCPU may be idle; a parked vCPU cannot run.
    let are_all = counts.online.is_none() || usize::try_from(counts.usable()) == Ok(vcpus.len());
    (share >= bounds.vcpus_busy && !vcpus.is_empty() && are_all).then(|| {
        let evidence = match vcpus {
            [_] => format!("the VM's only vCPU ran for {} of the time", percent(share)),
            _ => format!(
                "the VM's {} vCPUs ran for {} of the time on average",
                vcpus.len(),
                percent(share)
            ),
        };
        let interrupts = interrupts(over, vcpus.iter().map(|vcpu| vcpu.id));
        let evidence = evidence + &interrupts.unwrap_or_default();
        Finding::new(Check::VcpusSaturated, evidence, share / bounds.vcpus_busy)
    })
}

fn starved(over: &Interval, vcpus: &[VcpuUse], bounds: &Bounds) -> Option<Finding> {
    let mut starved: Vec<(&VcpuUse, TimeRange)> = vcpus
        .iter()
        .filter_map(|vcpu| Some((vcpu, contended(over, vcpu)?)))
        .filter(|(_, wait)| over.cores(wait.least_ns) >= bounds.vcpu_wait)
        .collect();
    starved.sort_by_key(|(_, wait)| std::cmp::Reverse(wait.least_ns));
    let most = over.cores(starved.first()?.1.least_ns);
    let shown = starved.iter().take(4).map(|(vcpu, wait)| {
        // The mean includes throttling.
        let mean_ns = vcpu
            .mean_wait_ns()
            .filter(|_| wait.least_ns == wait.most_ns);
        let mean = mean_ns.map_or(String::new(), |mean_ns| {
            format!(", {} each time on average", short_time(mean_ns))
        });
        format!(
            "vCPU {} waited for a CPU for {} of {}{mean}",
            vcpu.id,
            time(wait.least_ns),
            time(over.length_ns())
        )
    });
    let rest = starved.len().saturating_sub(4);
    let rest = (rest > 0).then(|| format!("so did {rest} more"));
    let interrupts = interrupts(over, starved.iter().map(|(vcpu, _)| vcpu.id));
    let evidence = listed(shown.chain(rest))
        + &together(over).unwrap_or_default()
        + &interrupts.unwrap_or_default();
    Some(Finding::new(
        Check::VcpuStarved,
        evidence,
        most / bounds.vcpu_wait,
    ))
}

/// Co-stop, as the end of a sentence; `None` if there is none or it is unknown.
fn together(over: &Interval) -> Option<String> {
    let range = co_stop(over).filter(|range| range.most_ns > 0)?;
    let (least, most) = (time(range.least_ns), time(range.most_ns));
    let for_time = if least == most {
        most
    } else {
        format!("{least} to {most}")
    };
    Some(format!(
        "; co-stop: {for_time} in which some vCPUs ran while others waited"
    ))
}

/// Interrupts on the host CPUs of the vCPU among `vcpus` that has most of them, as the end
/// of a sentence; `None` if they take less than 1 % of the time or are unknown.
fn interrupts(over: &Interval, vcpus: impl Iterator<Item = u32>) -> Option<String> {
    const SHOWN: f64 = 0.01;
    let all = |one: &Interrupts| one.hard + one.soft + one.steal;
    let topology = over.now.topology.as_deref()?;
    let shares = vcpus.filter_map(|id| topology.interrupts.iter().find(|one| one.vcpu == id));
    let most = shares.max_by(|a, b| all(&a.interrupts).total_cmp(&all(&b.interrupts)))?;
    let shares = most.interrupts;
    let parts = [
        ("hard interrupts", shares.hard),
        ("soft interrupts", shares.soft),
        ("steal", shares.steal),
    ];
    let parts = parts.into_iter().filter(|(_, share)| *share >= SHOWN / 2.0);
    let parts = parts.map(|(name, share)| format!("{name} {}", percent(share)));
    (all(&shares) >= SHOWN)
        .then(|| format!("; of the pCPUs of vCPU {}: {}", most.vcpu, listed(parts)))
}

fn spinning(over: &Interval, vcpus: &[VcpuUse], bounds: &Bounds) -> Option<Finding> {
    let sum =
        |part: fn(&VcpuUse) -> u64| over.cores(vcpus.iter().map(part).fold(0, u64::saturating_add));
    let cpu = sum(|vcpu| vcpu.cpu_ns);
    let polled = sum(poll_ns);
    let failed = sum(|vcpu| vcpu.kvm.halt_poll_ns().map_or(0, |poll| poll.fail));
    let share = polled / cpu;
    (cpu > 0.0 && share >= bounds.halt_poll && polled >= bounds.halt_poll_cores).then(|| {
        let evidence = format!(
            "vCPUs spent {polled:.2} of their {cpu:.2} cores ({}) on halt polling, {} of it without \
             a wake-up",
            percent(share),
            percent(failed / polled)
        );
        Finding::new(Check::HaltPollSpin, evidence, share / bounds.halt_poll)
    })
}

fn overhead(over: &Interval, bounds: &Bounds) -> Option<Finding> {
    let all = over.cores(over.cpu_ns());
    let vcpus = over.role(Role::Vcpu)?;
    let others = all - over.cores(vcpus.cpu_ns);
    let share = others / all;
    (all > 0.0 && share >= bounds.overhead && others >= bounds.overhead_cores).then(|| {
        let mut roles: Vec<_> = over
            .roles()
            .filter(|role| role.role != Role::Vcpu && over.cores(role.cpu_ns) >= 0.005)
            .collect();
        roles.sort_by_key(|role| std::cmp::Reverse(role.cpu_ns));
        let roles = roles
            .iter()
            .map(|role| format!("{} {:.2}", role.role.name(), over.cores(role.cpu_ns)));
        let evidence = format!(
            "threads other than vCPUs used {others:.2} of {all:.2} cores ({}): {}",
            percent(share),
            listed(roles)
        );
        Finding::new(Check::OverheadHigh, evidence, share / bounds.overhead)
    })
}

/// QEMU's threads for blocking I/O have this name if threads are named
/// (`util/thread-pool.c`).
fn pool(over: &Interval, bounds: &Bounds) -> Option<Finding> {
    let name = Comm::new("worker");
    let threads = over.now.threads.iter();
    let is_pooled = |thread: &&Thread| thread.name == name && thread.role == Some(Role::Emulator);
    let workers: Vec<_> = threads.filter(is_pooled).collect();
    let share = count(&workers) / bounds.pool_threads;
    (share >= 1.0 && over.now.vmm == "qemu").then(|| {
        let evidence = format!("QEMU has {} threads named worker", workers.len());
        Finding::new(Check::ThreadPoolIo, evidence, share)
    })
}
