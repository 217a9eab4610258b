//! Time that interrupts took on the host CPUs of vCPUs.
//!
//! An interrupt delays the thread that it interrupts. Whether its time is charged to that
//! thread depends on the kernel: not if the kernel measures it
//! (`CONFIG_IRQ_TIME_ACCOUNTING`), and otherwise it is, and the time here is sampled by the
//! tick.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::facts::{PcpuTimes, Pcpus};
use crate::snapshot::{Interrupts, VcpuInterrupts};

/// The times of the host's CPUs over a window.
#[derive(Debug, Default)]
pub(super) struct PcpuWindow(FxHashMap<u32, Interrupts>);

/// A share in steps of 0.1 %. `/proc/stat` counts in hundredths of a second (`nsec_to_clock_t` in
/// `show_stat`, fs/proc/stat.c, v6.12), so over the 10 s between two judgements its own steps are
/// as large. Short numbers are short in recordings.
fn rounded(share: f64) -> f64 {
    (share * 1e3).round() / 1e3
}

impl PcpuWindow {
    /// The window from `before` to `now`. A CPU that was offline at one end is left out.
    pub(super) fn between(before: &Pcpus, now: &Pcpus) -> Self {
        let shares = now.iter().filter_map(|(cpu, now)| {
            let shares = shares(before.get(cpu)?, now)?;
            Some((*cpu, shares))
        });
        Self(shares.collect())
    }

    /// The shares on the CPUs of a vCPU, weighted by the time that the vCPU ran on each
    /// (`residency_ns`), or those of its present CPU if that is not known. `None` if none
    /// of them is known.
    pub(super) fn of_vcpu(
        &self,
        id: u32,
        residency_ns: &[(u32, u64)],
        present: Option<u32>,
    ) -> Option<VcpuInterrupts> {
        let known = |(cpu, ns): (u32, u64)| Some((self.0.get(&cpu)?, ns));
        let ran = residency_ns.iter().copied();
        let mut parts: Vec<(&Interrupts, u64)> = ran.filter_map(known).collect();
        if parts.is_empty() {
            parts.extend(known((present?, 1)));
        }
        let all_ns = parts
            .iter()
            .fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        if all_ns == 0 {
            return None;
        }
        let mean = |part: fn(&Interrupts) -> f64| {
            let weighted = parts.iter().map(|(one, ns)| part(one) * ratio(*ns, all_ns));
            rounded(weighted.sum())
        };
        Some(VcpuInterrupts {
            vcpu: id,
            interrupts: Interrupts {
                hard: mean(|one| one.hard),
                soft: mean(|one| one.soft),
                steal: mean(|one| one.steal),
            },
        })
    }
}

/// The shares of one CPU; `None` if no time has passed.
fn shares(before: &PcpuTimes, now: &PcpuTimes) -> Option<Interrupts> {
    let all = now.all.saturating_sub(before.all);
    let share =
        |part: fn(&PcpuTimes) -> u64| ratio(part(now).saturating_sub(part(before)).min(all), all);
    (all > 0).then(|| Interrupts {
        hard: share(|times| times.hard),
        soft: share(|times| times.soft),
        steal: share(|times| times.steal),
    })
}

fn ratio(part: u64, all: u64) -> f64 {
    Duration::from_nanos(part).div_duration_f64(Duration::from_nanos(all))
}

#[cfg(test)]
mod tests {
    use super::PcpuWindow;
    use crate::facts::{PcpuTimes, Pcpus};
    use crate::snapshot::{Interrupts, VcpuInterrupts};

    fn pcpus(times: &[(u32, [u64; 4])]) -> Pcpus {
        let times = times.iter().map(|(cpu, [all, hard, soft, steal])| {
            let times = PcpuTimes {
                all: *all,
                hard: *hard,
                soft: *soft,
                steal: *steal,
            };
            (*cpu, times)
        });
        times.collect()
    }

    fn window() -> PcpuWindow {
        let before = pcpus(&[(0, [500, 10, 10, 0]), (1, [500, 0, 0, 0]), (2, [500; 4])]);
        let now = pcpus(&[
            (0, [1500, 20, 410, 0]),
            (1, [1500, 0, 0, 100]),
            (2, [500; 4]),
            (3, [1000, 0, 0, 0]),
        ]);
        PcpuWindow::between(&before, &now)
    }

    fn shown(vcpu: u32, [hard, soft, steal]: [f64; 3]) -> VcpuInterrupts {
        let interrupts = Interrupts { hard, soft, steal };
        VcpuInterrupts { vcpu, interrupts }
    }

    #[test]
    fn shares_are_weighted_by_residency() {
        let of = |ran: &[(u32, u64)], present| window().of_vcpu(7, ran, present);
        assert_eq!(of(&[(0, 5)], Some(1)), Some(shown(7, [0.01, 0.4, 0.0])));
        let both = of(&[(0, 1), (1, 1)], None);
        assert_eq!(both, Some(shown(7, [0.005, 0.2, 0.05])));
        assert_eq!(of(&[], Some(0)), Some(shown(7, [0.01, 0.4, 0.0])));
    }

    #[test]
    fn shares_of_unknown_cpus_are_absent() {
        assert_eq!(window().of_vcpu(7, &[], None), None);
        assert_eq!(window().of_vcpu(7, &[], Some(2)), None, "no time passed");
        assert_eq!(window().of_vcpu(7, &[], Some(3)), None, "it was offline");
        let first = PcpuWindow::between(&Pcpus::new(), &pcpus(&[(0, [9; 4])]));
        assert_eq!(first.of_vcpu(7, &[], Some(0)), None);
    }
}
