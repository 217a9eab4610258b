//! Reads the cpu controller's files, v1 and v2: limits, throttling, CPU time.

use std::path::Path;

use virtlens_model::facts::Bandwidth;

use crate::cgroupfs::{CgroupVersion, Cgroups};
use crate::error::Error;
use crate::root::{parse_number, read_as};

impl Cgroups {
    /// Reads the CPU bandwidth control of a cgroup; `None` at the root and if the cpu
    /// controller is not enabled.
    ///
    /// # Errors
    /// If the cgroup is gone, or a file cannot be parsed.
    pub fn bandwidth(&self, path: &str) -> Result<Option<Bandwidth>, Error> {
        let dir = self.dir(&self.cpu, path)?;
        if path == "/" {
            return Ok(None);
        }
        let limit = match self.version {
            CgroupVersion::V1 => limit_v1(&dir),
            CgroupVersion::V2 => read_as(&dir.join("cpu.max"), "MAX PERIOD in µs", parse_cpu_max),
        };
        let (quota_ns, period_ns) = match limit {
            Err(error) if error.is_gone() && dir.is_dir() => return Ok(None),
            limit => limit?,
        };
        let burst = match self.version {
            CgroupVersion::V1 => "cpu.cfs_burst_us",
            CgroupVersion::V2 => "cpu.max.burst",
        };
        let burst_us = match read_as(&dir.join(burst), "a number of µs", parse_number) {
            // The file exists since v5.14.
            Err(error) if error.is_gone() => None,
            burst_us => Some(burst_us?),
        };
        let (periods, throttled_periods, throttled_ns) = read_as(
            &dir.join("cpu.stat"),
            "nr_periods, nr_throttled and throttled time",
            |bytes| {
                let stat = parse_cpu_stat(bytes);
                Some((stat.periods?, stat.throttled_periods?, stat.throttled_ns?))
            },
        )?;
        Ok(Some(Bandwidth {
            quota_ns,
            period_ns,
            burst_ns: burst_us.and_then(|us| us.checked_mul(1000)),
            periods,
            throttled_periods,
            throttled_ns,
        }))
    }

    /// Reads the CPU time of a cgroup and its descendants, ns: v1 `cpuacct.usage`, v2
    /// `usage_usec` of `cpu.stat`.
    ///
    /// On v1 it reads the same path in the cpuacct hierarchy. If cpuacct is mounted
    /// separately from cpu, the threads of the two cgroups can differ.
    ///
    /// # Errors
    /// If the cgroup is gone, cpuacct is not mounted, or the file cannot be parsed.
    pub fn usage_ns(&self, path: &str) -> Result<u64, Error> {
        let Some(accounting) = &self.accounting else {
            return Err(Error::NotMounted {
                mountinfo: self.root.proc("self/mountinfo"),
                controller: "cpuacct",
            });
        };
        let dir = self.dir(accounting, path)?;
        match self.version {
            CgroupVersion::V1 => {
                read_as(&dir.join("cpuacct.usage"), "a number of ns", parse_number)
            }
            CgroupVersion::V2 => read_as(&dir.join("cpu.stat"), "a usage_usec line", |bytes| {
                parse_cpu_stat(bytes).usage_ns
            }),
        }
    }
}

/// Reads the v1 quota and period, ns.
fn limit_v1(dir: &Path) -> Result<(Option<u64>, u64), Error> {
    let quota = dir.join("cpu.cfs_quota_us");
    let quota_ns = read_as(&quota, "a number of µs or -1", parse_quota_us)?;
    let period = dir.join("cpu.cfs_period_us");
    let period_ns = read_as(&period, "a number of µs", |bytes| {
        parse_number(bytes)?.checked_mul(1000)
    })?;
    Ok((quota_ns, period_ns))
}

/// The lines of a `cpu.stat` file that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStat {
    /// v2 `usage_usec` as ns: CPU time of the cgroup and its descendants.
    pub usage_ns: Option<u64>,
    /// `nr_periods`: periods with runnable threads.
    pub periods: Option<u64>,
    /// `nr_throttled`: periods in which the cgroup was throttled on at least one CPU.
    pub throttled_periods: Option<u64>,
    /// v1 `throttled_time`, v2 `throttled_usec` as ns: summed over CPUs.
    pub throttled_ns: Option<u64>,
}

/// Parses a `cpu.stat` file of either version (kernel/sched/core.c,
/// `cpu_cfs_stat_show` in ns, `cpu_extra_stat_show` in µs).
pub fn parse_cpu_stat(bytes: &[u8]) -> CpuStat {
    let mut stat = CpuStat::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut words = line.splitn(2, |byte| *byte == b' ');
        let (Some(key), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        let number = parse_number(value);
        let from_us = || number.and_then(|us| us.checked_mul(1000));
        match key {
            b"usage_usec" => stat.usage_ns = from_us(),
            b"nr_periods" => stat.periods = number,
            b"nr_throttled" => stat.throttled_periods = number,
            b"throttled_time" => stat.throttled_ns = number,
            b"throttled_usec" => stat.throttled_ns = from_us(),
            _ => {}
        }
    }
    stat
}

/// Parses a v2 `cpu.max` file ("max 100000") into quota and period, ns; no
/// quota = no limit.
pub fn parse_cpu_max(bytes: &[u8]) -> Option<(Option<u64>, u64)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let ns = |us: &str| us.parse::<u64>().ok()?.checked_mul(1000);
    let quota = match quota {
        "max" => None,
        us => Some(ns(us)?),
    };
    Some((quota, ns(period)?))
}

/// Parses a v1 `cpu.cfs_quota_us` file into ns; the inner `None` is "-1", no limit.
// The outer Option is `None` for unparsable text.
#[allow(
    clippy::option_option,
    reason = "no limit and unparsable are different results"
)]
pub fn parse_quota_us(bytes: &[u8]) -> Option<Option<u64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    match text.trim().parse::<i64>().ok()? {
        -1 => Some(None),
        us => Some(Some(u64::try_from(us).ok()?.checked_mul(1000)?)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CpuStat, parse_cpu_max, parse_cpu_stat, parse_quota_us};

    #[test]
    fn cpu_stat_of_v1_and_v2_parses_alike() {
        let v1 = b"nr_periods 10\nnr_throttled 3\nthrottled_time 7000\nnr_bursts 1\nwait_sum 5\n";
        let v2 = b"usage_usec 9\nuser_usec 4\nsystem_usec 5\nnr_periods 10\nnr_throttled 3\n\
            throttled_usec 7\nnr_bursts 0\n";
        let stat = CpuStat {
            usage_ns: None,
            periods: Some(10),
            throttled_periods: Some(3),
            throttled_ns: Some(7000),
        };
        assert_eq!(parse_cpu_stat(v1), stat);
        let usage_ns = Some(9000);
        assert_eq!(parse_cpu_stat(v2), CpuStat { usage_ns, ..stat });
    }

    #[test]
    fn invalid_number_is_absent() {
        let stat =
            parse_cpu_stat(b"nr_periods -1\nnr_throttled\nthrottled_usec 99999999999999999999\n");
        assert_eq!(stat, CpuStat::default());
    }

    #[test]
    fn cpu_max_of_max_means_no_limit() {
        assert_eq!(parse_cpu_max(b"max 100000\n"), Some((None, 100_000_000)));
        assert_eq!(
            parse_cpu_max(b"150000 50000\n"),
            Some((Some(150_000_000), 50_000_000))
        );
        assert_eq!(parse_cpu_max(b"max\n"), None);
        assert_eq!(parse_cpu_max(b"-1 100000\n"), None);
        assert_eq!(parse_quota_us(b"-1\n"), Some(None));
        assert_eq!(parse_quota_us(b"50000\n"), Some(Some(50_000_000)));
        assert_eq!(parse_quota_us(b"-2\n"), None);
        assert_eq!(parse_quota_us(b""), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_cpu_stat(&bytes);
            let _ = parse_cpu_max(&bytes);
            let _ = parse_quota_us(&bytes);
        }

        #[test]
        fn every_number_is_parsed(number in any::<u64>()) {
            let stat = parse_cpu_stat(format!("nr_periods {number}\n").as_bytes());
            prop_assert_eq!(stat.periods, Some(number));
        }
    }
}
