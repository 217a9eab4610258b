//! Parser of cgroup paths: pod, sandbox and VM.
//!
//! Paths start at the root of the hierarchy of the cpu controller, v1 or v2. Any number
//! of levels can precede the known part: a `--cgroup-root`, the node's container (kind),
//! a nested kubelet.
//!
//! ```text
//! …/kubepods/burstable/pod<uid>/kata_<sandbox>            cgroupfs driver
//! …/kubepods-burstable-pod<uid>.slice/crio-<id>.scope     systemd driver
//!   └─ Pod ─────────────────────────┘ └─ Sandbox or Container
//! /kata_overhead/<sandbox>                                Overhead
//! /machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/…  Machine
//! ```
//!
//! Forms are strict: a path that only looks similar is not recognized. Sources of the
//! forms: Kubernetes v1.36 `pkg/kubelet/cm/` (`cgroup_manager_linux.go`,
//! `pod_container_manager_linux.go`), Kata 4.1 `src/runtime/pkg/resourcecontrol` and
//! `src/runtime-rs/crates/resource/src/cgroups`, libvirt 11.3
//! `src/util/{vircgroup,virsystemd}.c`.

mod forms;
mod unit;

use std::sync::Arc;

pub use unit::unit_name;

use self::forms::{
    Anchor, Kind, anchor, components, cri_id, is_id, kata_id, machine, unescape, unmade,
};
use crate::vocab::Scope;

/// The owner of a cgroup's threads, as far as its path identifies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// Uid of the pod with dashes, or the 32 hex digits of a static pod's uid.
    pub uid: Option<Arc<str>>,
    /// Path of the cgroup that holds the whole VM: the pod's, libvirt's scope, or Kata's
    /// sandbox outside a pod. `None` if the path names none of these, and for overhead
    /// cgroups.
    pub root: Option<String>,
    /// CRI id of the sandbox or container.
    pub sandbox_id: Option<String>,
    /// "kata" or "libvirt" if the path alone proves the runtime.
    pub runtime: Option<&'static str>,
    /// Whether this is a Kata overhead cgroup; `sandbox_id` names the sandbox.
    pub overhead: bool,
    /// Whether the cgroup is outside the pod of its VM, and thus outside the pod's
    /// limits.
    pub is_stray: bool,
}

/// Parses a cgroup path. `sandbox_id` is the sandbox id from the arguments of the VM's
/// VMM, if any. It is needed because a tenant can choose a name outside a pod that looks
/// like Kata's, and an id that was set by hand can look like any name.
pub fn locate(path: &str, sandbox_id: Option<&str>) -> Location {
    let Some(Anchor { root, below, kind }) = anchor(path, sandbox_id) else {
        return Location {
            sandbox_id: components(path)
                .filter_map(|(_, name)| cri_id(name))
                .last()
                .map(str::to_owned),
            ..Location::default()
        };
    };
    let root = Some(root.to_owned());
    match kind {
        Kind::Pod { uid } => {
            let below = || components(below).map(|(_, name)| name);
            let kata = below().next().and_then(kata_id);
            Location {
                uid: Some(uid.replace('_', "-").into()),
                root,
                sandbox_id: kata.or_else(|| below().find_map(cri_id)).map(str::to_owned),
                runtime: kata.map(|_| "kata"),
                ..Location::default()
            }
        }
        Kind::Unmade { uid, id, top } => Location {
            uid: Some(uid.replace('_', "-").into()),
            root,
            sandbox_id: Some(id.to_owned()),
            // Kata creates it at the top level (cgroups.go,
            // NewSandboxResourceController). A runc with a misconfigured driver creates
            // it below its own cgroup.
            runtime: top.then_some("kata"),
            overhead: false,
            is_stray: top,
        },
        Kind::Sandbox { id } => Location {
            root,
            sandbox_id: Some(id.to_owned()),
            runtime: Some("kata"),
            ..Location::default()
        },
        Kind::Overhead { id } => Location {
            sandbox_id: Some(id.to_owned()),
            runtime: Some("kata"),
            overhead: true,
            ..Location::default()
        },
        Kind::Machine => Location {
            root,
            runtime: Some("libvirt"),
            ..Location::default()
        },
    }
}

/// The levels of `path` that matter to its VM, outermost first: the length of the path up
/// to the level, bytes, and the level's scope.
///
/// A path of unknown form yields only the innermost level, as [`Scope::Machine`]; "/"
/// yields none. `sandbox_id`: see [`locate`].
pub fn levels(path: &str, sandbox_id: Option<&str>) -> Vec<(usize, Scope)> {
    let Some(Anchor { root, below, kind }) = anchor(path, sandbox_id) else {
        let innermost = components(path).last();
        return innermost
            .map(|(end, _)| (end, Scope::Machine))
            .into_iter()
            .collect();
    };
    let end = root.len();
    let (first, further) = match kind {
        Kind::Pod { .. } => (Scope::Pod, Scope::Container),
        Kind::Unmade { .. } | Kind::Sandbox { .. } => (Scope::Sandbox, Scope::Container),
        Kind::Overhead { .. } => (Scope::Overhead, Scope::Overhead),
        Kind::Machine => (Scope::Machine, Scope::Machine),
    };
    let in_pod = matches!(kind, Kind::Pod { .. });
    let in_machine = matches!(kind, Kind::Machine);
    let rest = components(below)
        .enumerate()
        .map(|(depth, (length, name))| {
            let sandbox = in_pod && depth == 0 && kata_id(name).is_some();
            let scope = match machine_part(name) {
                Some(part) if in_machine => part,
                _ if sandbox => Scope::Sandbox,
                _ => further,
            };
            (end + length, scope)
        });
    std::iter::once((end, first)).chain(rest).collect()
}

/// Scope of libvirt's cgroup for a part of a VM: `vcpu<n>`, `emulator` or `iothread<n>`
/// (`virCgroupNewThread`, `src/util/vircgroup.c`, 11.3).
fn machine_part(name: &str) -> Option<Scope> {
    let numbered = |prefix: &str| {
        let number = name.strip_prefix(prefix)?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(())
    };
    match name {
        "emulator" => Some(Scope::Emulator),
        _ if numbered("vcpu").is_some() => Some(Scope::Vcpu),
        _ if numbered("iothread").is_some() => Some(Scope::Iothread),
        _ => None,
    }
}

/// Whether the cgroup at `path` is the one at `outer` or below it.
pub fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Possible paths of the overhead cgroup of a Kata sandbox, from the root of the
/// hierarchy, most likely first; empty for an invalid id.
pub fn overhead_paths(sandbox_id: &str) -> Vec<String> {
    if !is_id(sandbox_id) {
        return Vec::new();
    }
    vec![
        // Both runtimes with cgroupfs; also the Go runtime with systemd.
        format!("/kata_overhead/{sandbox_id}"),
        // runtime-rs with systemd, which nests a slice at each dash.
        format!("/kata.slice/kata-overhead.slice/runtime-rs-{sandbox_id}.scope"),
        format!("/kata-overhead.slice/runtime-rs-{sandbox_id}.scope"),
        format!("/kata-overhead.slice:runtime-rs:{sandbox_id}"),
    ]
}

/// Path of the pod's cgroup for a VM in `path`, a top-level directory named like a unit
/// (`<slice>:<prefix>:<id>`). systemd nests a slice at each dash (systemd.slice(5)), and
/// the kubelet sets the pod's limit on the slice.
pub fn pod_of_stray(path: &str) -> Option<String> {
    let name = path.strip_prefix('/')?.split('/').next()?;
    if !matches!(unmade(name, true)?, Kind::Unmade { .. }) {
        return None;
    }
    let (slice, _) = name.split_once(':')?;
    let stem = slice.strip_suffix(".slice")?;
    let dashes = stem.match_indices('-').map(|(at, _)| at);
    let levels = dashes.chain([stem.len()]);
    let nested = levels.filter_map(|end| Some(format!("/{}.slice", stem.get(..end)?)));
    Some(nested.collect())
}

/// libvirt's name of the VM whose path is below its scope.
///
/// The name of the scope contains "qemu-1-NAME" (driver, id, name;
/// `virDomainDriverGenerateMachineName`) with systemd's escapes.
pub fn machine_name(path: &str) -> Option<String> {
    let name = components(path).find_map(|(_, name)| machine(name))?;
    let name = unescape(name);
    let (id, rest) = name.strip_prefix("qemu-")?.split_once('-')?;
    let numbered = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    (numbered && !rest.is_empty()).then(|| rest.to_owned())
}

#[cfg(test)]
mod tests;
