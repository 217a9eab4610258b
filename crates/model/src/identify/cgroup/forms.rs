//! Forms of cgroup names that orchestrators and runtimes use.

/// The outermost level of a path that has a known form.
pub(super) struct Anchor<'a> {
    /// The path up to and including this level.
    pub(super) root: &'a str,
    /// The rest of the path.
    pub(super) below: &'a str,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    /// A pod's cgroup; the uid as written in the path.
    Pod { uid: &'a str },
    /// A directory named like a systemd unit, `<slice>:<prefix>:<id>`: a runtime took a
    /// systemd cgroup path for a cgroupfs path.
    Unmade {
        uid: &'a str,
        id: &'a str,
        top: bool,
    },
    /// Kata's cgroup of a sandbox outside a pod (nerdctl, ctr).
    Sandbox { id: &'a str },
    /// Kata's cgroup of the threads that are not vCPUs.
    Overhead { id: &'a str },
    /// libvirt's cgroup of one VM.
    Machine,
}

/// The components of a path, each with the length of the path up to the end of the
/// component, bytes.
pub(super) fn components(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    path.split_inclusive('/').filter_map(move |part| {
        let name = part.strip_suffix('/').unwrap_or(part);
        let length = end + name.len();
        end += part.len();
        (!name.is_empty()).then_some((length, name))
    })
}

/// The outermost level that has a known form.
pub(super) fn anchor<'p>(path: &'p str, sandbox_id: Option<&str>) -> Option<Anchor<'p>> {
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

/// `pod<uid>` below `kubepods` or its `burstable` or `besteffort` level.
fn cgroupfs_pod<'a>(grandparent: &str, parent: &str, name: &'a str) -> Option<Kind<'a>> {
    let qos = matches!(parent, "burstable" | "besteffort");
    let kubepods = if qos { grandparent } else { parent };
    let uid = name.strip_prefix("pod").filter(|uid| is_uid(uid, b'-'))?;
    (kubepods == "kubepods").then_some(Kind::Pod { uid })
}

/// The uid in `[<parents>-]kubepods[-<qos>]-pod<uid>.slice`. systemd prefixes a slice
/// with the names of its parents, and the kubelet writes `_` for `-` inside a name
/// (`ConvertCgroupNameToSystemd`).
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
pub(super) fn unmade(name: &str, top: bool) -> Option<Kind<'_>> {
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

/// The name that libvirt's QEMU driver generated for a VM: in the scope that machined
/// creates, or in the directory that libvirt creates without systemd.
pub(super) fn machine(name: &str) -> Option<&str> {
    if let Some(name) = name.strip_suffix(".libvirt-qemu") {
        return (!name.is_empty()).then_some(name);
    }
    let name = name.strip_prefix("machine-")?.strip_suffix(".scope")?;
    let (driver, rest) = name.split_once(r"\x2d")?;
    (driver == "qemu" && !rest.is_empty()).then_some(name)
}

/// The id in Kata's `kata_<id>` (`RenameCgroupPath`, cgroups.go). It counts only directly
/// below the pod; deeper levels can be named by a container.
pub(super) fn kata_id(name: &str) -> Option<&str> {
    name.strip_prefix("kata_").filter(|id| is_id(id))
}

/// The id in `<id>` (containerd, cgroupfs), `<runtime>-<id>` (CRI-O, cgroupfs) and
/// `<runtime>-<id>.scope` (systemd): cri-containerd, crio, crio-conmon, docker …
pub(super) fn cri_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    is_cri_id(id).then_some(id)
}

/// Whether the id has the form that containerd, CRI-O and docker generate.
fn is_cri_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(is_hex)
}

/// Whether the text can be a sandbox id that was set by hand (containerd
/// `pkg/identifiers`: at most 76 characters; Kata adds nothing).
pub(super) fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    id.len() <= 76
        && id.bytes().all(plain)
        && id
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Whether the text is a pod's uid: a UUID, or an MD5 sum for a static pod
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

pub(super) const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Decodes systemd's `\xNN` escapes (systemd.unit(5)); an invalid escape is kept as is.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once(r"\x") {
        bytes.extend_from_slice(plain.as_bytes());
        // `from_str_radix` accepts a sign; an escape has none.
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
