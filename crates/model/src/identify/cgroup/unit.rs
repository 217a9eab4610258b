//! Name of a VM that runs as a systemd service.

use super::forms::{anchor, components, unescape};

/// Units that run VMs for others, or a whole session: no VM is named after them.
const HOSTS_OF_VMS: [&str; 9] = [
    "containerd",
    "crio",
    "docker",
    "k3s",
    "kubelet",
    "libvirtd",
    "podman",
    "rke2-server",
    "virtqemud",
];

/// Name of a VM that runs in its own systemd service, from the cgroup path:
/// `web-01.service` and the instance `vm@web-01.service` both yield "web-01".
///
/// `None` below the cgroup of a pod, a sandbox or a libvirt VM, for services that run
/// several VMs, and for names that systemd-run generates (`run-u7`, `run-r<hex>`,
/// `run-p<pid>-i<id>`: src/run/run.c).
pub fn unit_name(path: &str) -> Option<String> {
    if anchor(path, None).is_some() {
        return None;
    }
    let services = components(path).filter_map(|(_, name)| name.strip_suffix(".service"));
    let unit = services.last()?;
    let (template, instance) = unit.split_once('@').unwrap_or((unit, unit));
    let is_made_up = unit.strip_prefix("run-").is_some_and(|rest| {
        let is_number = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'i');
        let number = rest.strip_prefix(['p', 'r', 'u']);
        number.is_some_and(|number| number.bytes().all(is_number))
    });
    let is_session = template == "user";
    let name = unescape(instance);
    let is_name = !name.is_empty() && !name.chars().any(char::is_control);
    let runs_others = HOSTS_OF_VMS.contains(&template);
    (is_name && !is_made_up && !is_session && !runs_others).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::unit_name;

    #[test]
    fn vm_in_systemd_service_has_service_name() {
        for (path, name) in [
            ("/system.slice/web-01.service", Some("web-01")),
            ("/system.slice/web-01.service/vcpus", Some("web-01")),
            ("/vms.slice/vms-a.slice/web_01.service", Some("web_01")),
            (r"/system.slice/my\x20vm.service", Some("my vm")),
            // An instance of a template.
            (
                r"/system.slice/system-fc.slice/fc@web\x2d01.service",
                Some("web-01"),
            ),
            // The innermost service counts: a user manager has services too.
            (
                "/user.slice/user-0.slice/user@0.service/app.slice/vm.service",
                Some("vm"),
            ),
            ("/user.slice/user-0.slice/user@0.service", None),
            ("/user.slice/user-0.slice/session-3.scope", None),
            ("/system.slice/libvirtd.service", None),
            ("/system.slice/containerd.service", None),
            ("/system.slice/run-u12.service", None),
            (
                "/system.slice/run-r5f0c3a7be1d24f0f9a3bb1b6a1cf61d3.service",
                None,
            ),
            ("/system.slice/run-p1234-i5678.service", None),
            ("/system.slice/run-up.service", Some("run-up")),
            ("/system.slice/.service", None),
            ("/system.slice/vm@.service", None),
            ("/", None),
            (
                r"/system.slice/node.service/machine.slice/machine-qemu\x2d1\x2dweb.scope",
                None,
            ),
        ] {
            assert_eq!(unit_name(path).as_deref(), name, "{path}");
        }
    }
}
