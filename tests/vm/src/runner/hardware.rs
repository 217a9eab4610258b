//! The machine that QEMU emulates: its CPUs and their topology.
//!
//! # The first CPU
//!
//! A nested guest that runs on it breaks now and then, or its host does. If any CPU restores its
//! FPU registers (FXRSTOR, XRSTOR), QEMU clears a flag in `hflags2` of the first CPU, by a read
//! and a write that are not atomic (`cpu_set_fpus` in `target/i386/tcg/fpu_helper.c` calls
//! `cpu_clear_ignne`). `hflags2` also says whether the CPU takes interrupts (`HF2_GIF_MASK`) and
//! whether it walks nested page tables (`HF2_NPT_MASK`). Both change when the CPU enters or
//! leaves a guest, and a change at the same moment is lost. Then the CPU takes no interrupt any
//! more, or the guest runs on the page tables of its host, or the host on those of the guest. A
//! CPU that enters no guest does not change these flags. Seen with QEMU 11.1.3.

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
    /// Whether the kernel keeps threads off the first CPU, except those that are bound to it.
    #[serde(default)]
    isolates_first_cpu: bool,
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
            smp: "3".to_owned(),
            cpu: Vec::new(),
            nodes: Vec::new(),
            isolates_first_cpu: true,
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

    /// Arguments of the kernel, each behind a blank.
    pub(crate) fn kernel_args(&self) -> &'static str {
        // No scheduling domain has this CPU (kernel/sched/isolation.c).
        if self.isolates_first_cpu {
            " isolcpus=0"
        } else {
            ""
        }
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
    fn default_machine_has_two_cpus_for_guests_and_no_nodes() {
        let hardware = Hardware::default();
        let expected = "-cpu max,+svm,-la57 -smp 3 -m 4096";
        assert_eq!(hardware.args().join(" "), expected);
        assert_eq!(hardware.kernel_args(), " isolcpus=0");
    }

    #[test]
    fn memory_is_divided_among_nodes() {
        let hardware: Hardware = toml::from_str(
            "name = 'm'\nsmp = '4,sockets=2'\ncpu = ['+topoext']\nnodes = ['0-1', '2-3']",
        )
        .expect("a machine");
        assert_eq!(hardware.kernel_args(), "");
        let args = hardware.args().join(" ");
        assert!(args.starts_with("-cpu max,+svm,-la57,+topoext -smp 4,sockets=2 "));
        let second = "-object memory-backend-ram,id=ram1,size=2048M \
                      -numa node,nodeid=1,cpus=2-3,memdev=ram1";
        assert!(args.ends_with(second), "{args}");
    }
}
