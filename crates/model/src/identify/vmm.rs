//! Identifies a process's VMM, runtime and VM name.
//!
//! The input is only what the process was started with. KVM proves that the process *is*
//! a VMM, so this module cannot turn another process into one. An unknown VMM is
//! [`Vmm::Other`] and is measured like any other.
//!
//! ```text
//! file, argv[0], comm ─► known name? ──no─► style of the options? ─no─► Other
//!                           └──────────┬──────────┘
//!                       the VMM's own syntax of a name
//! ```

use serde::{Deserialize, Serialize};

use crate::facts::ProcessFact;

/// The longest VM name that is kept, bytes: that of a Kubernetes object (RFC 1123
/// subdomain). libvirt and QEMU have no limit.
const MAX_NAME: usize = 253;

/// Runtimes that a VMM process can prove by its arguments.
pub const RUNTIMES: [&str; 3] = ["kata", "kubevirt", "libvirt"];

/// A virtual machine monitor that runs KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Vmm {
    /// QEMU, with any runtime.
    Qemu,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// Firecracker, jailed or not.
    Firecracker,
    /// Dragonball, which runs inside the process of Kata's shim (runtime-rs).
    Dragonball,
    /// openEuler's `StratoVirt`.
    StratoVirt,
    /// kvmtool (`lkvm`).
    Kvmtool,
    /// crosvm.
    Crosvm,
    /// Any other VMM.
    Other,
}

impl Vmm {
    /// All VMMs.
    pub const ALL: [Self; 8] = [
        Self::Qemu,
        Self::CloudHypervisor,
        Self::Firecracker,
        Self::Dragonball,
        Self::StratoVirt,
        Self::Kvmtool,
        Self::Crosvm,
        Self::Other,
    ];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Firecracker => "firecracker",
            Self::Dragonball => "dragonball",
            Self::StratoVirt => "stratovirt",
            Self::Kvmtool => "kvmtool",
            Self::Crosvm => "crosvm",
            Self::Other => "other",
        }
    }
}

/// Identity of a VMM process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// VMM of the process.
    pub vmm: Vmm,
    /// Name of its VM: no control characters, at most 253 bytes, not empty. Not
    /// necessarily unique.
    pub name: Option<String>,
    /// One of [`RUNTIMES`] if the arguments prove it.
    pub runtime: Option<&'static str>,
    /// NUMA nodes of the guest, which CPUID does not contain. Known only for QEMU
    /// (`-numa node`, hw/core/numa.c), whose arguments define all nodes.
    pub guest_nodes: Option<u32>,
    /// Id of the sandbox if Kata started the VMM. It can have any form, because `ctr run`
    /// takes it from its user.
    pub sandbox_id: Option<String>,
    /// vCPUs at boot; more can have been plugged in since. Known only for QEMU (`-smp`,
    /// hw/core/machine-smp.c).
    pub boot_vcpus: Option<u32>,
}

/// Identifies a process by its executable, its arguments and its name.
pub fn identify(process: &ProcessFact) -> Identity {
    let args = process.args.get(1..).unwrap_or_default();
    let vmm = by_file(process)
        .or_else(|| by_options(args))
        .unwrap_or(Vmm::Other);
    let name = match vmm {
        Vmm::Qemu => option(args, &["-name", "--name"]).and_then(qemu_name),
        Vmm::CloudHypervisor => kata_id(args).map(str::to_owned),
        Vmm::Firecracker => owned(option(args, &["--id"]).or_else(|| kata_id(args))),
        Vmm::Dragonball => owned(option(args, &["-id", "--id"])),
        Vmm::StratoVirt => owned(option(args, &["-name", "--name"])),
        Vmm::Kvmtool | Vmm::Crosvm => owned(option(args, &["--name"])),
        Vmm::Other => owned(option(args, &["--name", "-name"]).or_else(|| option(args, &["--id"]))),
    };
    let runtime = runtime_of(vmm, args, name.as_deref());
    Identity {
        vmm,
        sandbox_id: (runtime == Some("kata"))
            .then(|| sandbox_id(vmm, args, name.as_deref()))
            .flatten()
            .map(str::to_owned),
        runtime,
        guest_nodes: (vmm == Vmm::Qemu && !args.is_empty()).then(|| qemu_nodes(args)),
        boot_vcpus: (vmm == Vmm::Qemu).then(|| qemu_boot_vcpus(args)).flatten(),
        name: name.and_then(|name| clean(&name)),
    }
}

/// Number of `-numa node` options; a guest without any has one node.
fn qemu_nodes(args: &[String]) -> u32 {
    let options = args
        .array_windows()
        .filter(|[option, _]| option.trim_start_matches('-') == "numa");
    let nodes = options.filter(|[_, value]| value.split(',').next() == Some("node"));
    u32::try_from(nodes.count()).unwrap_or(u32::MAX).max(1)
}

/// The first value of `-smp`, or its `cpus`. If both are missing, QEMU computes the
/// number from sockets and so on; this case is not handled.
fn qemu_boot_vcpus(args: &[String]) -> Option<u32> {
    let value = option(args, &["-smp", "--smp"])?;
    let mut parts = value.split(',');
    let first = parts.clone().next().and_then(|part| part.parse().ok());
    first.or_else(|| parts.find_map(|part| part.strip_prefix("cpus=")?.parse().ok()))
}

/// Identifies the VMM by the name of the executable, of `argv[0]` (Nix and others start
/// it through a wrapper or a loader), or of the process.
fn by_file(process: &ProcessFact) -> Option<Vmm> {
    let exe = process
        .exe
        .as_deref()
        .map(|exe| exe.strip_suffix(" (deleted)").unwrap_or(exe));
    let paths = [exe, process.args.first().map(String::as_str)];
    let named = paths.into_iter().flatten().find_map(|path| {
        let (_, file) = path.rsplit_once('/').unwrap_or(("", path));
        known(file.trim_start_matches('.'))
    });
    // The last resort: a comm is truncated to 15 bytes and can be set freely. All
    // containerd shims share the comm of the Kata shim, but this function runs only for
    // processes that are VMMs.
    named.or_else(|| match process.comm.as_str()? {
        "containerd-shim" if exe.is_none() => Some(Vmm::Dragonball),
        "cloud-hyperviso" => Some(Vmm::CloudHypervisor),
        comm => known(comm),
    })
}

/// The VMM whose executable has this name.
fn known(file: &str) -> Option<Vmm> {
    let vmm = match file {
        "qemu" | "qemu-kvm" | "kvm" => Vmm::Qemu,
        "lkvm" | "lkvm-static" | "kvmtool" => Vmm::Kvmtool,
        "crosvm" => Vmm::Crosvm,
        "stratovirt" => Vmm::StratoVirt,
        // A name with a version or variant suffix, as releases and Kata add.
        _ if file.starts_with("qemu-system-") || file.starts_with("qemu-kvm-") => Vmm::Qemu,
        _ if file.starts_with("cloud-hypervisor") => Vmm::CloudHypervisor,
        _ if file.starts_with("firecracker") => Vmm::Firecracker,
        _ if file.starts_with("containerd-shim-kata") => Vmm::Dragonball,
        _ => return None,
    };
    Some(vmm)
}

/// Identifies the VMM of a renamed executable by options that only this VMM has.
fn by_options(args: &[String]) -> Option<Vmm> {
    // Firecracker's src/firecracker/src/main.rs; Cloud Hypervisor's main.rs.
    if option(args, &["--api-sock"]).is_some() {
        return Some(Vmm::Firecracker);
    }
    if option(args, &["--api-socket"]).is_some() {
        return Some(Vmm::CloudHypervisor);
    }
    // QEMU's options have one dash and whole words (qemu-options.hx). One of them can
    // belong to any program; two of them, or a name in QEMU's syntax, identify QEMU.
    let words = [
        "-machine",
        "-accel",
        "-enable-kvm",
        "-smp",
        "-device",
        "-netdev",
        "-blockdev",
        "-chardev",
    ];
    let seen = words
        .iter()
        .filter(|word| args.iter().any(|arg| arg == *word))
        .count();
    let guest = option(args, &["-name"]).is_some_and(|name| name.starts_with("guest="));
    (guest || seen >= 2).then_some(Vmm::Qemu)
}

/// Value of the last of these options, as `--option value` or `--option=value`.
///
/// QEMU accepts only the first form (7.2 refuses "-name=x" as unknown), so accepting the
/// second is harmless.
fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    let value_at = |(at, arg): (usize, &'a String)| -> Option<&'a str> {
        let rest = names.iter().find_map(|name| arg.strip_prefix(name))?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => args.get(at + 1).map(String::as_str),
            None => None,
        }
    };
    args.iter().enumerate().rev().find_map(value_at)
}

/// The guest's name in QEMU's `-name [guest=]NAME[,process=…][,…]`. A comma in a name is
/// doubled (`qemu_name_opts` in system/vl.c, `get_opt_value` in util/qemu-option.c).
fn qemu_name(value: &str) -> Option<String> {
    let mut guest = None;
    for (at, part) in split_commas(value).into_iter().enumerate() {
        match part.split_once('=') {
            Some(("guest", name)) => guest = Some(name.to_owned()),
            None if at == 0 => guest = Some(part),
            _ => {}
        }
    }
    guest
}

/// Splits at single commas and unescapes doubled commas.
fn split_commas(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(char) = chars.next() {
        if char == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(char);
        }
    }
    parts
}

/// The sandbox's id in a path that Kata passed to its VMM: `/run/vc/vm/<id>/…` (Go,
/// `VMStorePath`) or `/run/kata/<id>/…` (runtime-rs, `KATA_PATH`), below any prefix
/// (rootless).
fn kata_id(args: &[String]) -> Option<&str> {
    args.iter().find_map(|arg| {
        let (_, rest) = arg
            .split_once("/run/vc/vm/")
            .or_else(|| arg.split_once("/run/kata/"))?;
        let (id, _) = rest.split_once('/')?;
        (!id.is_empty()).then_some(id)
    })
}

/// Id of Kata's sandbox. QEMU's name contains it. Paths can also contain other ids, such
/// as that of a template (`/run/vc/vm/template/`, factory/template).
fn sandbox_id<'a>(vmm: Vmm, args: &'a [String], name: Option<&'a str>) -> Option<&'a str> {
    match vmm {
        Vmm::Qemu => name?.strip_prefix("sandbox-"),
        Vmm::Dragonball => name,
        _ => kata_id(args),
    }
}

/// The runtime, if the arguments prove it.
fn runtime_of(vmm: Vmm, args: &[String], name: Option<&str>) -> Option<&'static str> {
    let any = |marks: &[&str]| {
        args.iter()
            .any(|arg| marks.iter().any(|mark| arg.contains(mark)))
    };
    // `sandbox-<id>`: Go's qemu.go, runtime-rs' cmdline_generator.rs.
    let sandbox = name
        .and_then(|name| name.strip_prefix("sandbox-"))
        .is_some_and(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if sandbox || vmm == Vmm::Dragonball || any(&["/run/vc/", "/run/kata/"]) {
        return Some("kata");
    }
    if vmm != Vmm::Qemu {
        return None;
    }
    // The SMBIOS table and the volumes of virt-launcher.
    if any(&["manufacturer=KubeVirt", "/run/kubevirt"]) {
        return Some("kubevirt");
    }
    // The directory of one domain, of the system or of a session.
    any(&["/libvirt/qemu/domain-", "/libvirt/qemu/lib/domain-"]).then_some("libvirt")
}

fn owned(name: Option<&str>) -> Option<String> {
    name.map(str::to_owned)
}

/// Removes control characters and truncates to [`MAX_NAME`].
fn clean(name: &str) -> Option<String> {
    let mut name: String = name.chars().filter(|char| !char.is_control()).collect();
    name.truncate(name.floor_char_boundary(MAX_NAME));
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
