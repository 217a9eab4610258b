//! The table of thresholds of all findings.

use crate::snapshot::Check;

/// Unit of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A fraction, 0 to 1; shown as a percentage.
    Share,
    /// CPU time per wall time.
    Cores,
    /// A ratio of two values.
    Ratio,
    /// A number of items.
    Count,
}

/// One threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Name in the configuration file and in rules.
    pub name: &'static str,
    /// Default value.
    pub default: f64,
    /// Unit of the value.
    pub unit: Unit,
    /// Meaning of the threshold.
    pub meaning: &'static str,
}

impl Bound {
    /// Formats `value` with its unit.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Share => format!("{} %", (value * 1000.0).round() / 10.0),
            Unit::Cores => format!("{value} of a core"),
            Unit::Ratio => format!("{value} times"),
            Unit::Count => format!("{value}"),
        }
    }
}

macro_rules! bounds {
    ($($name:ident = $default:literal $unit:ident, $meaning:literal;)*) => {
        /// The thresholds of all checks.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Bounds {
            $(#[doc = $meaning] pub $name: f64,)*
        }

        impl Default for Bounds {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Bounds {
            /// All thresholds, with their defaults.
            pub const TABLE: &'static [Bound] = &[$(Bound {
                name: stringify!($name),
                default: $default,
                unit: Unit::$unit,
                meaning: $meaning,
            },)*];

            /// The value of the threshold of that name.
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// The threshold of that name, to be set.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

bounds! {
    quota_used = 0.90 Share, "Share of a CPU limit that is used, from which the VM is at its limit";
    quota_throttled = 0.25 Share, "Share of its periods or of the time throttled, from which a limit caps the VM";
    io_throttled = 0.10 Share, "Share of the time in which a throttled I/O thread could run but did not, or in which more vCPUs than the limit runs were throttled";
    vcpus_per_quota = 1.5 Ratio, "vCPUs for each core that the CPU limit allows";
    vhost_busy = 0.85 Cores, "CPU time of one vhost worker, from which it is saturated";
    virtiofsd_busy = 0.85 Cores, "CPU time of one virtiofsd thread, from which it is saturated";
    iothread_busy = 0.85 Cores, "CPU time of one iothread, from which it is saturated";
    vcpus_busy = 0.95 Share, "Share of the time that all vCPUs run, polling left out, from which the VM is too small";
    vcpu_wait = 0.10 Share, "Share of the time that a vCPU waits for a CPU, throttling left out";
    halt_poll = 0.20 Share, "Share of the vCPUs' CPU time that is spent on polling in HLT";
    halt_poll_cores = 0.10 Cores, "CPU time of polling, below which polling is ignored";
    overhead = 0.50 Share, "Share of the VM's CPU time that is not its vCPUs'";
    overhead_cores = 0.10 Cores, "CPU time of threads other than vCPUs, below which overhead is ignored";
    outside_cores = 0.05 Cores, "CPU time of threads outside the pod's cgroup";
    refault_per_minute = 0.20 Share, "Share of the guest's RAM that is reported as free and used again in a minute";
    kept_resident = 0.80 Share, "Share of the guest's RAM that is held by the host";
    kept_idle = 0.05 Share, "Share of the time that vCPUs run, up to which the VM is idle";
    pool_threads = 8.0 Count, "Threads of QEMU's pool for I/O";
}

impl Bounds {
    /// The rule of a check, with the configured thresholds.
    pub fn rule_of(&self, check: Check) -> String {
        let rule = check.about().rule.to_owned();
        Self::TABLE.iter().fold(rule, |rule, bound| {
            let value = self.get(bound.name).unwrap_or(bound.default);
            rule.replace(&format!("{{{}}}", bound.name), &bound.show(value))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Bounds;
    use crate::snapshot::Check;

    #[test]
    fn rules_name_thresholds_and_every_threshold_is_in_a_rule() {
        let mut used = BTreeSet::new();
        for check in Check::ALL {
            for part in check.about().rule.split('{').skip(1) {
                let (name, _) = part.split_once('}').expect("a brace that closes");
                assert!(Bounds::default().get(name).is_some(), "{name}");
                used.insert(name);
            }
            assert!(!Bounds::default().rule_of(check).contains('{'));
        }
        let all: BTreeSet<_> = Bounds::TABLE.iter().map(|bound| bound.name).collect();
        assert_eq!(used, all);
    }

    #[test]
    fn rule_shows_thresholds_as_they_are_set() {
        let mut bounds = Bounds::default();
        *bounds.get_mut("vhost_busy").expect("it is there") = 0.5;
        *bounds.get_mut("quota_used").expect("it is there") = 0.985;
        assert!(
            bounds
                .rule_of(Check::VhostSaturated)
                .contains("at least 0.5 of a core;")
        );
        assert!(
            bounds
                .rule_of(Check::QuotaCapped)
                .contains("at least 98.5 % of a CPU limit")
        );
        assert_eq!(bounds.get_mut("no_such"), None);
    }
}
