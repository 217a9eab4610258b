//! What a cgroup's path tells: which pod, which sandbox, which VM.
//!
//! Paths start at the root of the hierarchy that controls the CPU, v1 or v2.
//! Any number of levels may stand before the part that is known: a
//! `--cgroup-root`, the node's own container (kind), a nested kubelet.
//!
//! ```text
//! …/kubepods/burstable/pod<uid>/kata_<sandbox>            cgroupfs driver
//! …/kubepods-burstable-pod<uid>.slice/crio-<id>.scope     systemd driver
//!   └─ Pod ─────────────────────────┘ └─ Sandbox or Container
//! /kata_overhead/<sandbox>                                Overhead
//! /machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/…  Machine
//! ```
//!
//! Forms are strict: a path that only looks similar says nothing. Where they
//! come from: Kubernetes v1.36 `pkg/kubelet/cm/` (`cgroup_manager_linux.go`,
//! `pod_container_manager_linux.go`), Kata 4.1 `src/runtime/pkg/resourcecontrol`
//! and `src/runtime-rs/crates/resource/src/cgroups`, libvirt 11.3
//! `src/util/{vircgroup,virsystemd}.c`.

mod forms;
mod unit;

use std::sync::Arc;

pub use unit::unit_name;

use self::forms::{
    Anchor, Kind, anchor, components, cri_id, is_id, kata_id, machine, unescape, unmade,
};
use crate::vocab::Scope;

/// What a path tells about whom its threads belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// The pod's uid with dashes, or the 32 hex digits that the kubelet gives
    /// a static pod.
    pub uid: Option<Arc<str>>,
    /// The path of the cgroup that holds the whole VM: the pod's, libvirt's
    /// scope, or Kata's sandbox where no pod encloses it. `None` where the
    /// path tells no such thing, and for overhead cgroups.
    pub root: Option<String>,
    /// The CRI id of the sandbox or container.
    pub sandbox_id: Option<String>,
    /// "kata" or "libvirt" where the path itself proves it.
    pub runtime: Option<&'static str>,
    /// Whether this is a Kata overhead cgroup; `sandbox_id` says whose.
    pub overhead: bool,
    /// Whether it lies outside of the pod whose VM it holds, and of its limits.
    pub is_stray: bool,
}

/// What the path tells. `sandbox_id` is that of the VM whose path it is, where its VMM
/// was told one: outside of a pod a name of a tenant's choice may look like Kata's, and so
/// may an id that was given by hand.
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
            // Kata puts it at the top (cgroups.go, NewSandboxResourceController).
            // A runc whose driver is misconfigured puts it below its own cgroup.
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

/// The levels of `path` that matter to its VM, outermost first: how many
/// bytes of the path lead to the level, and what the level is.
///
/// Of a path that is of no known form it is the innermost level alone, as
/// [`Scope::Machine`]; of "/" it is none. `sandbox_id`: see [`locate`].
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

/// What libvirt's cgroup of a part of a VM holds: `vcpu<n>`, `emulator` or
/// `iothread<n>` (`virCgroupNewThread`, `src/util/vircgroup.c`, 11.3).
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

/// Whether the cgroup at `path` is the one at `outer`, or lies below it.
pub fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where Kata may have put what is no vCPU of a sandbox, as paths from the
/// root of the hierarchy: most likely first, none for what is no id.
pub fn overhead_paths(sandbox_id: &str) -> Vec<String> {
    if !is_id(sandbox_id) {
        return Vec::new();
    }
    vec![
        // Both runtimes with cgroupfs; the Go runtime with systemd too.
        format!("/kata_overhead/{sandbox_id}"),
        // runtime-rs with systemd, which nests a slice at each dash.
        format!("/kata.slice/kata-overhead.slice/runtime-rs-{sandbox_id}.scope"),
        format!("/kata-overhead.slice/runtime-rs-{sandbox_id}.scope"),
        format!("/kata-overhead.slice:runtime-rs:{sandbox_id}"),
    ]
}

/// The cgroup of the pod whose VM strayed into `path`, a directory at the top with the
/// name of a unit (`<slice>:<prefix>:<id>`): systemd nests a slice at each dash
/// (systemd.slice(5)), and the kubelet sets the pod's limit there.
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

/// The name that libvirt gave the VM of a path below its scope.
///
/// "qemu-1-NAME" (driver, id, name; `virDomainDriverGenerateMachineName`)
/// stands in the scope's name with systemd's escapes.
pub fn machine_name(path: &str) -> Option<String> {
    let name = components(path).find_map(|(_, name)| machine(name))?;
    let name = unescape(name);
    let (id, rest) = name.strip_prefix("qemu-")?.split_once('-')?;
    let numbered = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    (numbered && !rest.is_empty()).then(|| rest.to_owned())
}

#[cfg(test)]
mod tests;
