//! Whether the node is short of memory, so that nothing more may be started on it.

use virtlens_host::{HostRoot, NodeMemory, memory_pressure, node_memory};

/// Part of the node's memory that must be available: a tenth.
const LEAST_AVAILABLE: u64 = 10;

/// Share of the last 10 s in which tasks may have waited for memory, %.
const MOST_PRESSURE: f64 = 10.0;

/// Why the node is short of memory; `None` if it is not.
pub(super) fn shortage(root: &HostRoot) -> Option<String> {
    let Some(memory) = node_memory(root) else {
        return Some("the memory of the node is unknown".to_owned());
    };
    shortage_of(memory, memory_pressure(root))
}

fn shortage_of(memory: NodeMemory, pressure: Option<f64>) -> Option<String> {
    let NodeMemory {
        total_bytes,
        available_bytes,
    } = memory;
    let (total_mib, available_mib) = (total_bytes >> 20, available_bytes >> 20);
    if available_bytes < total_bytes / LEAST_AVAILABLE {
        return Some(format!(
            "the node was short of memory: {available_mib} of {total_mib} MiB available"
        ));
    }
    let pressure = pressure.filter(|percent| *percent > MOST_PRESSURE)?;
    Some(format!(
        "the node was short of memory: tasks waited for it for {pressure:.0} % of 10 s"
    ))
}

#[cfg(test)]
mod tests {
    use virtlens_host::NodeMemory;

    use super::shortage_of;

    #[test]
    fn little_available_memory_and_pressure_are_a_shortage() {
        for (available_mib, pressure, is_short) in [
            (1000, None, false),
            (110, Some(9.0), false),
            (90, None, true),
            (900, Some(10.5), true),
        ] {
            let memory = NodeMemory {
                total_bytes: 1000 << 20,
                available_bytes: available_mib << 20,
            };
            let reason = shortage_of(memory, pressure);
            assert_eq!(reason.is_some(), is_short, "{reason:?}");
        }
    }
}
