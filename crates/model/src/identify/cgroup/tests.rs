mod pod_forms;

use pod_forms::PODS;
use proptest::prelude::*;

use super::{Location, machine_name, overhead_paths, pod_of_stray};
use crate::vocab::Scope::{self, Machine, Overhead, Sandbox};

const UID: &str = "0c9bd2a1-7a4e-4f53-9c1b-2f6d1f0e8a77";
const UNDERSCORED: &str = "0c9bd2a1_7a4e_4f53_9c1b_2f6d1f0e8a77";
const STATIC: &str = "9f1c3a5e7b2d4c6f8a0b1d3e5f7a9c2b";
const ID: &str = "d7dfb4a21fe1703a8537e60d5af248af729315d187b24a538102d14874c8117d";
const OTHER_ID: &str = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e";

fn locate(path: &str) -> Location {
    super::locate(path, None)
}

fn levels(path: &str) -> Vec<(usize, Scope)> {
    super::levels(path, None)
}

#[test]
fn sandbox_with_custom_name_is_identified_by_vmm_id() {
    for (path, id, root) in [
        (
            "/default/kata_demo1",
            Some("demo1"),
            Some("/default/kata_demo1"),
        ),
        (
            "/default/kata_demo1/x",
            Some("demo1"),
            Some("/default/kata_demo1"),
        ),
        ("/default/kata_demo2", Some("demo1"), None),
        ("/default/kata_demo1", None, None),
        ("/default/kata_../x", Some("../x"), None),
    ] {
        let location = super::locate(path, id);
        assert_eq!(location.root.as_deref(), root, "{path} {id:?}");
        let is_sandbox = super::levels(path, id)[0].1 == Sandbox;
        assert_eq!(is_sandbox, root.is_some(), "{path} {id:?}");
    }
}

/// Expands `{uid}` and the other placeholders in a path to the names above.
fn fill(path: &str) -> String {
    path.replace("{uid}", UID)
        .replace("{u_id}", UNDERSCORED)
        .replace("{static}", STATIC)
        .replace("{id}", ID)
        .replace("{other}", OTHER_ID)
}

/// The levels of a path as text, each with its scope.
fn named_levels(path: &str) -> Vec<(String, Scope)> {
    let text = |(end, scope)| (path[..end].to_owned(), scope);
    levels(path).into_iter().map(text).collect()
}

#[test]
fn every_form_of_pod_cgroup_is_recognized() {
    for (path, uid, id, kata, scopes) in PODS {
        let path = fill(path);
        let location = locate(&path);
        assert_eq!(location.uid.as_deref(), Some(*uid), "{path}");
        assert_eq!(location.sandbox_id.as_deref(), *id, "{path}");
        assert_eq!(location.runtime, kata.then_some("kata"), "{path}");
        assert!(!location.overhead, "{path}");

        let levels = named_levels(&path);
        let found: Vec<Scope> = levels.iter().map(|(_, scope)| *scope).collect();
        assert_eq!(found, *scopes, "{path}");
        assert_eq!(
            location.root.as_deref(),
            Some(levels[0].0.as_str()),
            "{path}"
        );
        assert_eq!(levels[levels.len() - 1].0, path);
    }
}

#[test]
fn systemd_unit_name_as_directory_is_the_sandbox() {
    let name = fill("kubepods-burstable-pod{u_id}.slice:cri-containerd:{id}");
    for (before, runtime) in [
        ("/", Some("kata")),
        ("/system.slice/containerd.service/", None),
    ] {
        let path = format!("{before}{name}");
        let location = locate(&path);
        assert_eq!(location.uid.as_deref(), Some(UID));
        assert_eq!(location.root.as_deref(), Some(path.as_str()));
        assert_eq!(location.sandbox_id.as_deref(), Some(ID));
        assert_eq!(location.runtime, runtime, "{path}");
        assert_eq!(location.is_stray, runtime.is_some(), "{path}");
        assert_eq!(named_levels(&path), [(path.clone(), Sandbox)]);
    }
    let crio = fill("/kubepods-pod{static}.slice:crio:{id}");
    assert_eq!(locate(&crio).uid.as_deref(), Some(STATIC));
}

#[test]
fn pod_of_stray_is_nested_at_each_dash() {
    for (stray, pod) in [
        (
            "/kubepods-burstable-pod{u_id}.slice:cri-containerd:{id}",
            Some("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{u_id}.slice"),
        ),
        (
            "/kubepods-pod{static}.slice:crio:{id}/below",
            Some("/kubepods.slice/kubepods-pod{static}.slice"),
        ),
        (
            "/kubelet-kubepods-pod{u_id}.slice:cri-containerd:{id}",
            Some("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{u_id}.slice"),
        ),
        ("/kata-overhead.slice:runtime-rs:{id}", None),
        (
            "/system.slice/kubepods-pod{u_id}.slice:cri-containerd:{id}",
            None,
        ),
        (
            "/kubepods.slice/kubepods-pod{u_id}.slice/cri-containerd-{id}.scope",
            None,
        ),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(pod_of_stray(&fill(stray)), pod.map(fill), "{stray}");
    }
}

#[test]
fn kata_sandbox_without_pod_is_recognized() {
    let path = fill("/default/kata_{id}");
    let location = locate(&path);
    assert_eq!(location.root.as_deref(), Some(path.as_str()));
    assert_eq!((location.uid, location.runtime), (None, Some("kata")));
    assert_eq!(location.sandbox_id.as_deref(), Some(ID));
    assert_eq!(named_levels(&path), [(path, Sandbox)]);
    assert_eq!(locate("/home/kata_notes").root, None);
}

#[test]
fn every_overhead_path_names_its_sandbox() {
    let paths = overhead_paths(ID);
    assert_eq!(paths[0], fill("/kata_overhead/{id}"));
    assert!(paths.contains(&fill(
        "/kata.slice/kata-overhead.slice/runtime-rs-{id}.scope"
    )));
    for path in paths {
        let location = locate(&path);
        assert!(location.overhead, "{path}");
        assert_eq!(location.sandbox_id.as_deref(), Some(ID), "{path}");
        assert_eq!((location.uid, location.root), (None, None), "{path}");
        assert_eq!(location.runtime, Some("kata"));
        assert_eq!(named_levels(&path), [(path, Overhead)]);
    }
    let below = "/kata_overhead/hello1/below";
    assert_eq!(locate(below).sandbox_id.as_deref(), Some("hello1"));
    assert_eq!(levels(below), [(21, Overhead), (below.len(), Overhead)]);
}

#[test]
fn invalid_sandbox_id_has_no_overhead_path() {
    for id in ["", "..", "a/b", "../etc", "-a", "a b", "é", &"a".repeat(77)] {
        assert!(overhead_paths(id).is_empty(), "{id}");
    }
}

#[test]
fn libvirt_scope_contains_machine_name() {
    let scope = r"/machine.slice/machine-qemu\x2d12\x2dweb\x2d01.scope";
    let manual = "/machine/qemu-3-db.libvirt-qemu";
    let partition = "/machine/prod.partition/qemu-3-db.libvirt-qemu";
    for (root, below, innermost, name) in [
        (scope, "/libvirt/emulator", Scope::Emulator, "web-01"),
        (scope, "/libvirt/vcpu0", Scope::Vcpu, "web-01"),
        (scope, "/libvirt/iothread1", Scope::Iothread, "web-01"),
        (scope, "/libvirt/vcpus", Machine, "web-01"),
        (scope, "/vcpu11", Scope::Vcpu, "web-01"),
        (scope, "", Machine, "web-01"),
        (manual, "/emulator", Scope::Emulator, "db"),
        (partition, "/vcpu0", Scope::Vcpu, "db"),
    ] {
        let path = format!("{root}{below}");
        let location = locate(&path);
        assert_eq!(location.root.as_deref(), Some(root));
        assert_eq!(location.runtime, Some("libvirt"));
        assert_eq!((location.uid, location.sandbox_id), (None, None));
        let levels = named_levels(&path);
        assert_eq!(levels[0], (root.to_owned(), Machine));
        assert_eq!(levels[levels.len() - 1], (path.clone(), innermost));
        assert_eq!(levels.len(), 1 + below.matches('/').count());
        assert_eq!(machine_name(&path).as_deref(), Some(name));
    }
    assert_eq!(
        locate(r"/machine.slice/machine-lxc\x2d1\x2dbox.scope").root,
        None
    );
    assert_eq!(
        machine_name(r"/machine.slice/machine-qemu\x2dold.scope"),
        None
    );
    assert_eq!(
        machine_name(r"/machine.slice/machine-qemu\x2d1\x2da\xe4\xzz\x+a\x.scope").as_deref(),
        Some("a\u{fffd}\\xzz\\x+a\\x")
    );
}

#[test]
fn plain_cgroup_is_its_own_machine() {
    for path in [
        "/system.slice/vm@1.service",
        "/user.slice/user-1000.slice/session-2.scope",
        "/vms/a",
    ] {
        assert_eq!(locate(path), Location::default(), "{path}");
        assert_eq!(named_levels(path), [(path.to_owned(), Machine)]);
    }
    let docker = fill("/system.slice/docker-{id}.scope");
    assert_eq!(locate(&docker).sandbox_id.as_deref(), Some(ID));
    assert_eq!(locate(&docker).root, None);
    assert_eq!(named_levels("/a//b/"), [("/a//b".to_owned(), Machine)]);
    for nothing in ["/", "", "//"] {
        assert!(levels(nothing).is_empty());
        assert_eq!(locate(nothing), Location::default());
    }
}

#[test]
fn cgroup_similar_to_pod_is_not_a_pod() {
    for path in [
        "/home/podcast",
        "/kubepods/podcast",
        "/kubepods/burstable/podcast/{id}",
        "/kubepods",
        "/kubepods.slice/kubepods-burstable.slice",
        "/user/pod{uid}/{id}",
        "/burstable/pod{uid}",
        "/mykubepods/pod{uid}",
        "/kubepods/guaranteed/pod{uid}",
        "/kubepods/burstable/x/pod{uid}",
        // Separators of the other driver.
        "/kubepods/pod{u_id}",
        "/kubepods.slice/kubepods-pod{uid}.slice",
        // Other parents, other units.
        "/kubepods.slice/mykubepods-pod{u_id}.slice",
        "/kubepods.slice/kubepods-other-pod{u_id}.slice",
        "/kubepods.slice/kubepods-pod{u_id}.scope",
        "/kubepods-pod{u_id}.slice:cri-containerd",
        "/kubepods-pod{u_id}.slice:cri-containerd:../x",
        // Not hex, too short, too long, upper case.
        "/kubepods/pod0c9bd2a1-7a4e-4f53-9c1b-2f6d1f0e8a7g",
        "/kubepods/pod0c9bd2a1-7a4e-4f53-9c1b-2f6d1f0e8a7",
        "/kubepods/pod{uid}0",
        "/kubepods/pod{static}0",
        "/kubepods/pod0C9BD2A1-7A4E-4F53-9C1B-2F6D1F0E8A77",
    ] {
        let path = fill(path);
        assert_eq!(locate(&path).uid, None, "{path}");
        assert_eq!(locate(&path).root, None, "{path}");
    }
}

proptest! {
    #[test]
    fn arbitrary_path_does_not_panic(bytes: Vec<u8>) {
        let path = String::from_utf8_lossy(&bytes);
        check(&path);
    }

    #[test]
    fn mixed_known_path_parts_do_not_panic(
        parts in prop::collection::vec(
            r"(kubepods|burstable|pod|kata_|kata_overhead|kata-overhead|\.slice|\.scope|:|-|_|/|machine-qemu|\\x2d|\\x|\.libvirt-qemu|[0-9a-f]{8}|é|/)",
            0..24,
        )
    ) {
        check(&parts.concat());
    }
}

/// Checks the properties that hold for every path.
fn check(path: &str) {
    let location = locate(path);
    if let Some(uid) = &location.uid {
        assert!(matches!(uid.len(), 32 | 36));
        assert!(
            uid.bytes()
                .all(|byte| byte == b'-' || super::forms::is_hex(byte))
        );
    }
    if let Some(root) = &location.root {
        assert!(path.starts_with(root.as_str()));
    }
    assert!(location.sandbox_id.is_none_or(|id| id.len() <= 76));
    let levels = levels(path);
    assert!(levels.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(levels.iter().all(|(end, _)| path.is_char_boundary(*end)));
    assert!(levels.len() <= path.matches('/').count() + 1);
    let _ = machine_name(path);
    let _ = pod_of_stray(path);
}
