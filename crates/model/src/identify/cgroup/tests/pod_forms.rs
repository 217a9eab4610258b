//! All known forms of a pod's cgroup.

use super::{ID, STATIC, UID};
use crate::vocab::Scope::{self, Container, Pod, Sandbox};

/// A pod's path, the ids in it, whether it proves Kata, and the levels from the pod
/// downwards.
pub(super) type PodForm = (
    &'static str,
    &'static str,
    Option<&'static str>,
    bool,
    &'static [Scope],
);

pub(super) const PODS: &[PodForm] = &[
    // cgroupfs driver: QoS levels, no QoS level, a static pod.
    (
        "/kubepods/burstable/pod{uid}/{id}",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    ("/kubepods/besteffort/pod{uid}", UID, None, false, &[Pod]),
    (
        "/kubepods/pod{uid}/{id}",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods/pod{static}/{id}",
        STATIC,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods/burstable/pod{static}/{id}",
        STATIC,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    // CRI-O on cgroupfs.
    (
        "/kubepods/burstable/pod{uid}/crio-{id}",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    // systemd driver: containerd, CRI-O, its conmon, docker.
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{u_id}.slice/cri-containerd-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods.slice/kubepods-pod{u_id}.slice/cri-containerd-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{static}.slice/crio-{id}.scope",
        STATIC,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u_id}.slice/crio-conmon-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u_id}.slice/docker-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    // crun's child cgroup; KubeVirt's housekeeping below it.
    (
        "/kubepods.slice/kubepods-pod{u_id}.slice/crio-{id}.scope/container",
        UID,
        Some(ID),
        false,
        &[Pod, Container, Container],
    ),
    (
        "/kubepods.slice/kubepods-pod{u_id}.slice/crio-{id}.scope/container/housekeeping",
        UID,
        Some(ID),
        false,
        &[Pod, Container, Container, Container],
    ),
    (
        "/kubepods/pod{uid}/{id}/housekeeping",
        UID,
        Some(ID),
        false,
        &[Pod, Container, Container],
    ),
    // --cgroup-root, kind, minikube's docker driver.
    (
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{u_id}.slice/cri-containerd-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/docker/{other}/kubelet/kubepods/burstable/pod{uid}/{id}",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/system.slice/docker-{other}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{u_id}.slice/cri-containerd-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/docker/{other}/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u_id}.slice/crio-{id}.scope",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    (
        "/../../kubepods/pod{uid}/{id}",
        UID,
        Some(ID),
        false,
        &[Pod, Container],
    ),
    // Kata's sandbox.
    (
        "/kubepods/burstable/pod{uid}/kata_{id}",
        UID,
        Some(ID),
        true,
        &[Pod, Sandbox],
    ),
    (
        "/kubepods/pod{uid}/kata_hello1",
        UID,
        Some("hello1"),
        true,
        &[Pod, Sandbox],
    ),
    (
        "/kubelet/kubepods/besteffort/pod{uid}/kata_{id}/below",
        UID,
        Some(ID),
        true,
        &[Pod, Sandbox, Container],
    ),
    // A container with a cgroup namespace may name its own cgroups at will.
    (
        "/kubepods/pod{uid}/{id}/kata_{other}",
        UID,
        Some(ID),
        false,
        &[Pod, Container, Container],
    ),
];
