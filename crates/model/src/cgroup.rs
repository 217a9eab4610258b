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

mod unit;

use std::sync::Arc;

use crate::snapshot::Scope;

pub use unit::unit_name;

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

/// The first level of a path that is known, and what it is.
struct Anchor<'a> {
    /// The path up to and with this level.
    root: &'a str,
    /// What of it is behind that.
    below: &'a str,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// A pod's cgroup; the uid is as it stands in the path.
    Pod { uid: &'a str },
    /// A directory with the *name* of a systemd unit yet to be made,
    /// `<slice>:<prefix>:<id>`, where a runtime took it for a cgroupfs path.
    Unmade {
        uid: &'a str,
        id: &'a str,
        top: bool,
    },
    /// Kata's cgroup of a sandbox outside of any pod (nerdctl, ctr).
    Sandbox { id: &'a str },
    /// Kata's cgroup for what is no vCPU.
    Overhead { id: &'a str },
    /// libvirt's cgroup of one VM.
    Machine,
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

/// The parts of a path between slashes, each with the length of the path up
/// to its end, bytes.
fn components(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    path.split_inclusive('/').filter_map(move |part| {
        let name = part.strip_suffix('/').unwrap_or(part);
        let length = end + name.len();
        end += part.len();
        (!name.is_empty()).then_some((length, name))
    })
}

/// The outermost level that is of a known form.
fn anchor<'p>(path: &'p str, sandbox_id: Option<&str>) -> Option<Anchor<'p>> {
    let (mut grandparent, mut parent) = ("", "");
    components(path).find_map(|(end, name)| {
        let found = cgroupfs_pod(grandparent, parent, name)
            .or_else(|| slice_pod(name).map(|uid| Kind::Pod { uid }))
            .or_else(|| unmade(name, parent.is_empty()))
            .or_else(|| overhead(parent, name).map(|id| Kind::Overhead { id }))
            .or_else(|| {
                let id = name.strip_prefix("kata_")?;
                let is_its = is_cri_id(id) || (is_id(id) && sandbox_id == Some(id));
                is_its.then_some(Kind::Sandbox { id })
            })
            .or_else(|| machine(name).map(|_| Kind::Machine));
        (grandparent, parent) = (parent, name);
        let (root, below) = path.split_at_checked(end)?;
        found.map(|kind| Anchor { root, below, kind })
    })
}

/// `pod<uid>` below `kubepods` or one of its two levels.
fn cgroupfs_pod<'a>(grandparent: &str, parent: &str, name: &'a str) -> Option<Kind<'a>> {
    let qos = matches!(parent, "burstable" | "besteffort");
    let kubepods = if qos { grandparent } else { parent };
    let uid = name.strip_prefix("pod").filter(|uid| is_uid(uid, b'-'))?;
    (kubepods == "kubepods").then_some(Kind::Pod { uid })
}

/// The uid in `[<parents>-]kubepods[-<qos>]-pod<uid>.slice`; systemd names a
/// slice after all its parents, and the kubelet writes `_` for `-` within a
/// name (`ConvertCgroupNameToSystemd`).
fn slice_pod(name: &str) -> Option<&str> {
    let (parents, pod) = name.strip_suffix(".slice")?.rsplit_once('-')?;
    let parents = parents
        .strip_suffix("-burstable")
        .or_else(|| parents.strip_suffix("-besteffort"))
        .unwrap_or(parents);
    let before = parents.strip_suffix("kubepods")?;
    let whole = before.is_empty() || before.ends_with('-');
    let uid = pod.strip_prefix("pod").filter(|uid| is_uid(uid, b'_'))?;
    whole.then_some(uid)
}

/// `<slice>:<prefix>:<id>` as one directory: a pod's or Kata's overhead.
fn unmade(name: &str, top: bool) -> Option<Kind<'_>> {
    let (slice, unit) = name.split_once(':')?;
    let (prefix, id) = unit.split_once(':').filter(|(_, id)| is_id(id))?;
    if slice == "kata-overhead.slice" && prefix == "runtime-rs" {
        return Some(Kind::Overhead { id });
    }
    slice_pod(slice).map(|uid| Kind::Unmade { uid, id, top })
}

/// `kata_overhead/<id>` or `kata-overhead.slice/runtime-rs-<id>.scope`.
fn overhead<'a>(parent: &str, name: &'a str) -> Option<&'a str> {
    let id = match parent {
        "kata_overhead" => name,
        "kata-overhead.slice" => name.strip_prefix("runtime-rs-")?.strip_suffix(".scope")?,
        _ => return None,
    };
    is_id(id).then_some(id)
}

/// The name that libvirt's QEMU driver made for a VM: in the scope that
/// machined makes, or in the directory it makes itself without systemd.
fn machine(name: &str) -> Option<&str> {
    if let Some(name) = name.strip_suffix(".libvirt-qemu") {
        return (!name.is_empty()).then_some(name);
    }
    let name = name.strip_prefix("machine-")?.strip_suffix(".scope")?;
    let (driver, rest) = name.split_once(r"\x2d")?;
    (driver == "qemu" && !rest.is_empty()).then_some(name)
}

/// The id in Kata's `kata_<id>` (`RenameCgroupPath`, cgroups.go). It stands
/// right below the pod; deeper down a container may name its cgroups at will.
fn kata_id(name: &str) -> Option<&str> {
    name.strip_prefix("kata_").filter(|id| is_id(id))
}

/// The id in `<id>` (containerd, cgroupfs), `<runtime>-<id>` (CRI-O,
/// cgroupfs) and `<runtime>-<id>.scope` (systemd): cri-containerd, crio,
/// crio-conmon, docker …
fn cri_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    is_cri_id(id).then_some(id)
}

/// Whether it is an id as containerd, CRI-O and docker make them.
fn is_cri_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(is_hex)
}

/// Whether it can be the id of a sandbox that was named by hand (containerd
/// `pkg/identifiers`: at most 76 characters; Kata adds nothing).
fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    id.len() <= 76
        && id.bytes().all(plain)
        && id
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Whether it is a pod's uid: a UUID, or an MD5 sum for a static pod
/// (`pkg/kubelet/config/common.go`).
fn is_uid(uid: &str, separator: u8) -> bool {
    match uid.len() {
        32 => uid.bytes().all(is_hex),
        36 => uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == separator,
            _ => is_hex(byte),
        }),
        _ => false,
    }
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The text without systemd's `\xNN` escapes (systemd.unit(5)); what is no
/// escape stays.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once(r"\x") {
        bytes.extend_from_slice(plain.as_bytes());
        // `from_str_radix` takes a sign, which no escape has.
        let hex = escaped.split_at_checked(2);
        let hex = hex.filter(|(hex, _)| !hex.starts_with('+'));
        let byte = hex.and_then(|(hex, behind)| Some((u8::from_str_radix(hex, 16).ok()?, behind)));
        rest = if let Some((byte, behind)) = byte {
            bytes.push(byte);
            behind
        } else {
            bytes.extend_from_slice(br"\x");
            escaped
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
