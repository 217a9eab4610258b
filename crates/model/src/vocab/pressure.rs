//! Pressure stall information (PSI) of a cgroup.

use serde::{Deserialize, Serialize};

/// Number of values of a [`Pressure`].
pub const PRESSURES: usize = 7;

/// Time for which tasks of a cgroup were stalled on one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stalls {
    /// At least one task was stalled, ns.
    pub some_ns: Option<u64>,
    /// All tasks that were not idle were stalled at once, ns.
    pub full_ns: Option<u64>,
}

/// Time for which tasks of a cgroup were stalled, by resource, as in its pressure files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Pressure {
    /// Runnable, but not running (`cpu.pressure`; `full` since v5.13).
    pub cpu: Stalls,
    /// Waiting for memory: reclaim, refaults, swap (`memory.pressure`).
    pub memory: Stalls,
    /// Waiting for I/O (`io.pressure`).
    pub io: Stalls,
    /// Interrupted by hard and soft interrupts (`irq.pressure`; `full` only, since v6.1 if
    /// the kernel measures the time of interrupts).
    pub irq: Stalls,
}

impl Pressure {
    /// All values, with the names of their resource and kind.
    pub fn by_name(&self) -> [(&'static str, &'static str, Option<u64>); PRESSURES] {
        [
            ("cpu", "some", self.cpu.some_ns),
            ("cpu", "full", self.cpu.full_ns),
            ("memory", "some", self.memory.some_ns),
            ("memory", "full", self.memory.full_ns),
            ("io", "some", self.io.some_ns),
            ("io", "full", self.io.full_ns),
            ("irq", "full", self.irq.full_ns),
        ]
    }

    /// All values, in the order of [`Pressure::by_name`].
    pub fn values(&self) -> [Option<u64>; PRESSURES] {
        self.by_name().map(|(_, _, ns)| ns)
    }
}

impl From<[Option<u64>; PRESSURES]> for Pressure {
    /// From all values, in the order of [`Pressure::by_name`].
    fn from(values: [Option<u64>; PRESSURES]) -> Self {
        let [cpu, cpu_full, memory, memory_full, io, io_full, irq_full] = values;
        let stalls = |some_ns, full_ns| Stalls { some_ns, full_ns };
        Self {
            cpu: stalls(cpu, cpu_full),
            memory: stalls(memory, memory_full),
            io: stalls(io, io_full),
            irq: stalls(None, irq_full),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pressure;

    #[test]
    fn pressure_keeps_order_of_its_values() {
        let values = [1, 2, 3, 4, 5, 6, 7].map(Some);
        let pressure = Pressure::from(values);
        assert_eq!(pressure.values(), values);
        assert_eq!(pressure.memory.full_ns, Some(4));
        assert_eq!(pressure.by_name()[6], ("irq", "full", Some(7)));
    }
}
