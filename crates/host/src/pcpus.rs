//! Time that host CPUs spent in interrupts.

use virtlens_model::facts::{PcpuTimes, Pcpus};

use crate::error::Error;
use crate::node::STAT_FILE;
use crate::root::{HostRoot, read};

/// Reads the times of all online CPUs. The kernel also counts every interrupt of the host
/// for this file, which takes up to some milliseconds on hosts with many devices and CPUs.
///
/// # Errors
/// If `/proc/stat` cannot be read or parsed.
pub fn pcpus(root: &HostRoot) -> Result<Pcpus, Error> {
    let path = root.proc("stat");
    let bytes = read(&path, STAT_FILE)?;
    let expected = "lines of CPUs with eight times";
    parse_pcpus(&bytes).ok_or_else(|| Error::unparsable(&path, expected, &bytes))
}

/// Parses the lines of single CPUs in `/proc/stat`: user, nice, system, idle, iowait, irq,
/// softirq and steal (`show_stat`, `fs/proc/stat.c`). Guest time, which follows, is part of
/// user time. `None` if a line is invalid or there is none.
pub fn parse_pcpus(stat: &[u8]) -> Option<Pcpus> {
    let text = std::str::from_utf8(stat).ok()?;
    let cpus = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let cpus = cpus.filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let pcpus: Option<Pcpus> = cpus.map(parse_pcpu).collect();
    pcpus.filter(|pcpus| !pcpus.is_empty())
}

fn parse_pcpu(line: &str) -> Option<(u32, PcpuTimes)> {
    let mut words = line.split_ascii_whitespace();
    let cpu = words.next()?.parse().ok()?;
    let mut times = [0u64; 8];
    for time in &mut times {
        *time = words.next()?.parse().ok()?;
    }
    let [.., hard, soft, steal] = times;
    let all = times.into_iter().fold(0, u64::saturating_add);
    let times = PcpuTimes {
        all,
        hard,
        soft,
        steal,
    };
    Some((cpu, times))
}

#[cfg(test)]
mod tests {
    use virtlens_model::facts::PcpuTimes;

    use super::parse_pcpus;

    #[test]
    fn each_online_cpu_has_its_times() {
        let stat = b"cpu  5 0 7 90 1 2 3 4 1 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n\
                     cpu3 0 0 0 50 0 1 2 0 0 0\nintr 5 0\nctxt 9\nbtime 17\n";
        let pcpus = parse_pcpus(stat).expect("it is valid");
        assert_eq!(pcpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let times = PcpuTimes {
            all: 36,
            hard: 6,
            soft: 7,
            steal: 8,
        };
        assert_eq!(pcpus[&0], times, "guest time is part of user time");
    }

    #[test]
    fn invalid_stat_file_is_refused() {
        for stat in [
            "",
            "cpu  1 2 3 4 5 6 7 8\n",
            "cpu0 1 2 3\n",
            "cpu0 1 2 3 4 5 6 7 -8\n",
            "cpux 1 2 3 4 5 6 7 8\n",
        ] {
            assert_eq!(parse_pcpus(stat.as_bytes()), None, "{stat}");
        }
        let most = format!("cpu0 {}\n", "18446744073709551615 ".repeat(8));
        let pcpus = parse_pcpus(most.as_bytes()).expect("it is valid");
        assert_eq!(pcpus[&0].all, u64::MAX, "it does not overflow");
    }
}
