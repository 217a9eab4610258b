//! The machine that QEMU emulates: its CPUs and their topology.

use std::time::Duration;

use serde::Deserialize;

/// Memory of a machine, the sum of its nodes.
const MEMORY_MIB: usize = 4096;

/// A machine of `kernels.toml`, or the default one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hardware {
    /// Name by which kernels refer to it.
    pub(crate) name: String,
    /// QEMU's `-smp`.
    smp: String,
    /// CPU features in addition to those of all machines, as in QEMU's `-cpu`.
    #[serde(default)]
    cpu: Vec<String>,
    /// The CPUs of each NUMA node; memory is divided evenly. Empty for a machine without
    /// nodes.
    #[serde(default)]
    nodes: Vec<String>,
    /// Further arguments of QEMU.
    #[serde(default)]
    args: Vec<String>,
    /// Time to boot, to start pods and to run the self-tests, s.
    #[serde(default = "usual_boot_s")]
    boot_s: u64,
}

/// Default for a machine of few CPUs.
fn usual_boot_s() -> u64 {
    150
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            smp: "2".to_owned(),
            cpu: Vec::new(),
            nodes: Vec::new(),
            args: Vec::new(),
            boot_s: usual_boot_s(),
        }
    }
}

impl Hardware {
    /// Deadline of boot, pods and self-tests; suites have their own deadlines.
    pub(crate) fn rig_deadline(&self) -> Duration {
        Duration::from_secs(self.boot_s)
    }

    /// QEMU's arguments for the machine.
    pub(crate) fn args(&self) -> Vec<String> {
        // Without five-level page tables: nested paging on them is emulated incorrectly
        // now and then.
        let cpu = ["max", "+svm", "-la57"].map(str::to_owned);
        let cpu = [&cpu[..], &self.cpu].concat().join(",");
        let memory = MEMORY_MIB.to_string();
        let mut args = ["-cpu", &cpu, "-smp", &self.smp, "-m", &memory]
            .map(str::to_owned)
            .to_vec();
        for (node, cpus) in self.nodes.iter().enumerate() {
            let size = MEMORY_MIB / self.nodes.len();
            args.extend([
                "-object".to_owned(),
                format!("memory-backend-ram,id=ram{node},size={size}M"),
                "-numa".to_owned(),
                format!("node,nodeid={node},cpus={cpus},memdev=ram{node}"),
            ]);
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_machine_has_two_cpus_and_no_nodes() {
        let args = Hardware::default().args();
        let expected = "-cpu max,+svm,-la57 -smp 2 -m 4096";
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn memory_is_divided_among_nodes() {
        let hardware: Hardware = toml::from_str(
            "name = 'm'\nsmp = '4,sockets=2'\ncpu = ['+topoext']\nnodes = ['0-1', '2-3']",
        )
        .expect("a machine");
        let args = hardware.args().join(" ");
        assert!(args.starts_with("-cpu max,+svm,-la57,+topoext -smp 4,sockets=2 "));
        let second = "-object memory-backend-ram,id=ram1,size=2048M \
                      -numa node,nodeid=1,cpus=2-3,memdev=ram1";
        assert!(args.ends_with(second), "{args}");
    }
}
