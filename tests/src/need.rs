//! Requirements of a test on its host, and the bookkeeping of skips.
//!
//! ```no_run
//! # use virtlens_tests::need;
//! if !need::all("a_burn_is_seen", [need::root(), need::kvm()]) {
//!     return;
//! }
//! ```
//! A test that cannot run prints a message, and may only be skipped where that is
//! expected: `VIRTLENS_ALLOWED_SKIPS` lists the allowed skips (names of needs or of
//! tests, separated by commas, or `all`). Any other skip is a failure.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// A need that this host does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Short name, as in the list of allowed skips.
    pub need: &'static str,
    /// The attempted check and its error.
    pub cause: String,
}

/// Whether a test can run. If not, prints one line and counts the skip; panics if the
/// skip is not allowed.
pub fn all<const N: usize>(test: &str, needs: [Result<(), Missing>; N]) -> bool {
    let Some(missing) = needs.into_iter().find_map(Result::err) else {
        return true;
    };
    SKIPPED.fetch_add(1, Ordering::Relaxed);
    let Missing { need, cause } = missing;
    // Inside tests/vm its runner decides, by the skips that kernels.toml lists for the
    // test's name, which is the thread's name.
    if env::var_os("VIRTLENS_VM").is_some() {
        let thread = thread::current();
        let name = thread.name().unwrap_or(test);
        println!("VMTEST SKIP {name} needs {need}: {cause}");
        return false;
    }
    // Not eprintln: the test harness captures its output for a passing test.
    let line = format!("SKIPPED: {test}: needs {need}: {cause}\n");
    std::io::stderr()
        .lock()
        .write_all(line.as_bytes())
        .expect("stderr can be written");
    let list = env::var("VIRTLENS_ALLOWED_SKIPS").unwrap_or_default();
    assert!(
        is_allowed(&list, test, need),
        "{test} needs {need}: {cause}; provide it, or allow the skip with \
         VIRTLENS_ALLOWED_SKIPS={need}"
    );
    false
}

/// Reports a part of a test that this host leaves out. Bypasses the test harness, which
/// captures the output of a passing test; `make test` repeats the line in its summary.
pub fn left_out(what: &str, why: &str) {
    let line = format!("NOT RUN: {what}: {why}\n");
    let written = std::io::stderr().lock().write_all(line.as_bytes());
    written.expect("stderr can be written");
}

/// Number of skipped tests of this process.
pub fn skipped() -> usize {
    SKIPPED.load(Ordering::Relaxed)
}

fn is_allowed(list: &str, test: &str, need: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|entry| entry == "all" || entry == test || entry == need)
}

/// A need of one suite: `met`, or the cause of its absence.
///
/// # Errors
/// [`Missing`] if it is not met, as in all functions of this module.
pub fn that(need: &'static str, met: bool, cause: &str) -> Result<(), Missing> {
    if met {
        Ok(())
    } else {
        Err(Missing {
            need,
            cause: cause.to_owned(),
        })
    }
}

/// Needs root, in the user namespace of the host.
///
/// # Errors
/// Another user runs this.
pub fn root() -> Result<(), Missing> {
    let uid = geteuid();
    that("root", uid.is_root(), &format!("runs as uid {uid}"))
}

/// Needs a /dev/kvm that can be opened.
///
/// # Errors
/// It is absent or forbidden.
pub fn kvm() -> Result<(), Missing> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.map(drop).map_err(|error| Missing {
        need: "kvm",
        cause: format!("/dev/kvm: {error}"),
    })
}

/// Needs KVM to give an ordinary VM a `guest_memfd`, as it does since Linux 6.18; before that
/// only to VMs with private memory.
///
/// # Errors
/// KVM is missing, or gives an ordinary VM no `guest_memfd`.
pub fn guest_memfd() -> Result<(), Missing> {
    /// Of include/uapi/linux/kvm.h.
    const KVM_CREATE_VM: u32 = 0xae01;
    const KVM_CHECK_EXTENSION: u32 = 0xae03;
    const KVM_CAP_GUEST_MEMFD: libc::c_ulong = 234;
    kvm()?;
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let device = device.expect("it could be opened");
    let none: libc::c_ulong = 0;
    // SAFETY: both ioctls take a number and no memory.
    let vm = unsafe { libc::ioctl(device.as_raw_fd(), KVM_CREATE_VM.into(), none) };
    assert!(
        vm >= 0,
        "KVM_CREATE_VM: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: a descriptor that was created above and has no other owner.
    let vm = unsafe { OwnedFd::from_raw_fd(vm) };
    // The answer of /dev/kvm itself is about any kind of VM.
    // SAFETY: as above.
    let has = unsafe {
        libc::ioctl(
            vm.as_raw_fd(),
            KVM_CHECK_EXTENSION.into(),
            KVM_CAP_GUEST_MEMFD,
        )
    };
    that("guest_memfd", has > 0, "KVM_CAP_GUEST_MEMFD is 0")
}

/// Needs a /dev/fuse that can be opened, for a [`FaultyHost`](crate::FaultyHost).
///
/// # Errors
/// It is absent or forbidden.
pub fn fuse() -> Result<(), Missing> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| Missing {
        need: "fuse",
        cause: format!("/dev/fuse: {error}"),
    })
}

/// Needs permission for bpf(2): a map can be created.
///
/// # Errors
/// The kernel refuses, by capability, lockdown or configuration.
pub fn bpf() -> Result<(), Missing> {
    /// The head of `union bpf_attr` for `BPF_MAP_CREATE` (include/uapi/linux/bpf.h).
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_bytes: u32,
        value_bytes: u32,
        max_entries: u32,
    }
    // Up to v5.10 maps count as locked memory of the user; an agent's maps exceed the
    // default limit of a process.
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    // If it fails, the next call reports the error.
    setrlimit(Resource::Memlock, unlimited).ok();
    let (map_create, array) = (0, 2);
    let attr = MapCreate {
        map_type: array,
        key_bytes: 4,
        value_bytes: 8,
        max_entries: 1,
    };
    let size = size_of::<MapCreate>();
    // SAFETY: the kernel reads `size` bytes of a live struct, and takes the rest as zero.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, map_create, &raw const attr, size) };
    if fd < 0 {
        let cause = format!("bpf(BPF_MAP_CREATE): {}", std::io::Error::last_os_error());
        return Err(Missing { need: "bpf", cause });
    }
    let fd = i32::try_from(fd).expect("descriptors are ints");
    // SAFETY: a descriptor that was created above and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Needs the kernel's BTF.
///
/// # Errors
/// The kernel was built without `CONFIG_DEBUG_INFO_BTF`.
pub fn btf() -> Result<(), Missing> {
    let path = "/sys/kernel/btf/vmlinux";
    that("btf", Path::new(path).exists(), &format!("no {path}"))
}

/// Needs `qemu-system-x86_64` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn qemu() -> Result<(), Missing> {
    program("qemu", crate::qemu::PROGRAM)
}

/// Needs Debian's `promtool` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn promtool() -> Result<(), Missing> {
    program("promtool", crate::promtool::PROGRAM)
}

/// Needs the programs of a cluster's API server in `PATH`, as
/// `scripts/build-cluster-tools` builds them.
///
/// # Errors
/// One is missing.
pub fn api_server() -> Result<(), Missing> {
    use crate::api_server::{ETCD, KUBE_APISERVER, KUBECTL};
    [ETCD, KUBE_APISERVER, KUBECTL, "openssl"]
        .into_iter()
        .try_for_each(|name| program("api_server", name))
}

/// Needs the programs of a cluster with a node in `PATH`, as `scripts/test node` provides
/// them, beside those of [`api_server`] and [`containerd`]; and permission for tap devices.
///
/// # Errors
/// One is missing.
pub fn node() -> Result<(), Missing> {
    use crate::control_plane::{CONTROLLER_MANAGER, SCHEDULER};
    let programs = [CONTROLLER_MANAGER, SCHEDULER, "kubelet", "host-local", "ip"];
    let mut programs = programs.into_iter();
    programs.try_for_each(|name| program("node", name))?;
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.map(drop).map_err(|error| Missing {
        need: "node",
        cause: format!("/dev/net/tun: {error}"),
    })
}

/// Needs `helm` in `PATH`, as `scripts/build-cluster-tools` builds it.
///
/// # Errors
/// The program is missing.
pub fn helm() -> Result<(), Missing> {
    program("helm", "helm")
}

/// Needs `kubeconform` in `PATH`, as `scripts/build-cluster-tools` builds it.
///
/// # Errors
/// The program is missing.
pub fn kubeconform() -> Result<(), Missing> {
    program("kubeconform", "kubeconform")
}

/// Needs Debian's containerd and runc in `PATH`.
///
/// # Errors
/// One is missing.
pub fn containerd() -> Result<(), Missing> {
    let mut programs = ["containerd", "ctr", "runc"].into_iter();
    programs.try_for_each(|name| program("containerd", name))
}

/// Needs `systemd-analyze` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn systemd_analyze() -> Result<(), Missing> {
    program("systemd_analyze", "systemd-analyze")
}

/// Needs Debian's etcd, which is too old to stream lists; `VIRTLENS_OLD_ETCD` names it.
///
/// # Errors
/// The variable is not set, or the file does not exist.
pub fn old_etcd() -> Result<PathBuf, Missing> {
    let path = PathBuf::from(env::var_os("VIRTLENS_OLD_ETCD").unwrap_or_default());
    let there = that(
        "old_etcd",
        path.is_file(),
        "VIRTLENS_OLD_ETCD names no file",
    );
    there.map(|()| path)
}

/// Needs `curl` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn curl() -> Result<(), Missing> {
    program("curl", "curl")
}

/// Needs Debian's `prometheus` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn prometheus() -> Result<(), Missing> {
    program("prometheus", crate::prometheus::PROGRAM)
}

/// Needs Debian's `prometheus-alertmanager` in `PATH`.
///
/// # Errors
/// The program is missing.
pub fn alertmanager() -> Result<(), Missing> {
    program("alertmanager", "prometheus-alertmanager")
}

/// Needs `unshare` and the permission for a user and mount namespace.
///
/// # Errors
/// The kernel or the sandbox refuses one.
pub fn mount_namespace() -> Result<(), Missing> {
    let mut unshare = Command::new("unshare");
    let status = unshare
        .args(["--map-root-user", "--mount", "true"])
        .status();
    let works = status.is_ok_and(|status| status.success());
    that(
        "mount_namespace",
        works,
        "unshare --map-root-user --mount fails",
    )
}

fn program(need: &'static str, name: &str) -> Result<(), Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(name).is_file());
    that(need, found, &format!("no {name} in PATH"))
}

/// Needs a cgroup hierarchy with the cpu controller in which cgroups can be created.
///
/// # Errors
/// It is not mounted, or read-only.
pub fn cpu_cgroup() -> Result<(), Missing> {
    let missing = |cause| Missing {
        need: "cpu_cgroup",
        cause,
    };
    for dir in crate::cgroup::roots().map_err(missing)? {
        let probe = dir.join(format!("virtlens-need-{}", std::process::id()));
        // Two threads may check at the same time.
        match fs::create_dir(&probe) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(missing(format!("{}: {error}", probe.display())));
            }
            _ => drop(fs::remove_dir(&probe)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_is_allowed_by_need_test_or_all() {
        assert!(is_allowed("kvm, bpf", "some_test", "bpf"));
        assert!(is_allowed("some_test", "some_test", "bpf"));
        assert!(is_allowed("all", "some_test", "bpf"));
        assert!(!is_allowed("", "some_test", "bpf"));
        assert!(!is_allowed("kvm", "some_test", "bpf"));
    }

    #[test]
    fn met_need_skips_nothing() {
        assert!(all("met_need_skips_nothing", [that("sky", true, "")]));
        assert_eq!(skipped(), 0);
    }
}
