//! Finds the processes that hold KVM's file descriptors.
//!
//! A VM exists as long as a process holds its descriptors, whether its vCPUs run, halt or
//! are paused. The kernel alone sets the link names (`anon_inode_getfd("kvm-vcpu:%d")`,
//! `virt/kvm/kvm_main.c`, v5.10 to v6.18): a process cannot give its own files a link
//! that starts with anything but "/" or a name that the kernel made.

use std::collections::BTreeSet;
use std::fs;

use crate::error::{Error, Losses};
use crate::process;
use crate::root::{HostRoot, numbered};

/// Limit on the descriptors inspected in one VMM (4096 vCPUs, KVM's own limit, and some
/// for its devices).
const MAX_FDS: usize = 16_384;

/// Limit on the descriptors searched for the first KVM descriptor in an unknown process.
/// They are listed in order, and a VMM creates its VM before its devices. The limit keeps
/// the cost below a second for a proxy with a million sockets.
const SEARCHED_FDS: usize = 4096;

/// Limit on the listed processes (`PID_MAX_LIMIT`, include/linux/threads.h).
const MAX_PROCESSES: usize = 4 << 20;

/// Type of a KVM file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmLink {
    /// A VM.
    Vm,
    /// A vCPU, with its `vcpu_id`.
    Vcpu(u32),
}

/// The KVM descriptors that a process holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmFds {
    /// Whether the process holds a VM.
    pub has_vm: bool,
    /// Ids of the vCPUs that the process holds. A second VM in the same process adds only
    /// ids that differ.
    pub vcpu_ids: BTreeSet<u32>,
    /// Whether the process holds more descriptors than were inspected.
    pub is_cut: bool,
}

impl VmFds {
    /// Number of vCPUs.
    pub fn vcpus(&self) -> u32 {
        u32::try_from(self.vcpu_ids.len()).unwrap_or(u32::MAX)
    }
}

/// Result of a scan of all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmScan {
    /// Processes that hold a VM or vCPUs, by process id.
    pub vms: Vec<(u32, VmFds)>,
    /// Kernel threads named `vhost-N` and `kvm-pit/N`.
    pub kthreads: Vec<u32>,
    /// Live processes that could not be inspected.
    pub unread: BTreeSet<u32>,
    /// Count of what could not be inspected.
    pub losses: Losses,
}

/// Number of vCPUs whose descriptors a process holds.
///
/// # Errors
/// If the process is gone, or its descriptors cannot be read.
pub fn vcpu_fds(root: &HostRoot, pid: u32) -> Result<u32, Error> {
    Ok(vm_fds(root, pid)?.vcpus())
}

/// Returns the KVM descriptors of a process.
///
/// # Errors
/// If the process is gone, or its descriptors cannot be read.
pub fn vm_fds(root: &HostRoot, pid: u32) -> Result<VmFds, Error> {
    let (numbers, is_cut) = numbered(&root.proc_of(pid, "fd"), MAX_FDS)?;
    let mut fds = VmFds {
        is_cut,
        ..VmFds::default()
    };
    for fd in numbers {
        match kvm_link(root, pid, fd)? {
            Some(KvmLink::Vm) => fds.has_vm = true,
            Some(KvmLink::Vcpu(id)) => {
                fds.vcpu_ids.insert(id);
            }
            None => {}
        }
    }
    Ok(fds)
}

/// Scans all processes of the host for VMs.
///
/// Costs a directory read for each process and a link read for each file descriptor, so
/// it is for occasional use, not for every reading.
///
/// # Errors
/// If /proc cannot be listed.
pub fn vm_processes(root: &HostRoot) -> Result<VmScan, Error> {
    let mut scan = VmScan::default();
    let (pids, _) = numbered(&root.proc(""), MAX_PROCESSES)?;
    for pid in pids {
        match look_at(root, pid) {
            Ok(Found::Vm(fds)) => scan.vms.push((pid, fds)),
            Ok(Found::Kthread) => scan.kthreads.push(pid),
            Ok(Found::Nothing) => {}
            Ok(Found::TooMany) => scan.losses.over_limit += 1,
            Err(error) => {
                scan.losses.count(&error);
                if !error.is_gone() {
                    scan.unread.insert(pid);
                }
            }
        }
    }
    Ok(scan)
}

enum Found {
    Vm(VmFds),
    Kthread,
    Nothing,
    /// No KVM descriptor among the inspected ones, and more exist.
    TooMany,
}

fn look_at(root: &HostRoot, pid: u32) -> Result<Found, Error> {
    let (numbers, is_cut) = numbered(&root.proc_of(pid, "fd"), SEARCHED_FDS)?;
    if numbers.is_empty() {
        // True of every kernel thread and of few user processes.
        let comm = process::comm(root, pid)?;
        let names = [&b"vhost-"[..], b"kvm-pit/"];
        let is_vms = names.iter().any(|name| comm.as_bytes().starts_with(name));
        return Ok(if is_vms {
            Found::Kthread
        } else {
            Found::Nothing
        });
    }
    for fd in numbers {
        if kvm_link(root, pid, fd)?.is_some() {
            return vm_fds(root, pid).map(Found::Vm);
        }
    }
    Ok(if is_cut {
        Found::TooMany
    } else {
        Found::Nothing
    })
}

/// Type of a descriptor; `None` if it was closed meanwhile.
fn kvm_link(root: &HostRoot, pid: u32, fd: u32) -> Result<Option<KvmLink>, Error> {
    let path = root.proc(format!("{pid}/fd/{fd}"));
    match fs::read_link(&path).map_err(|source| Error::io(&path, source)) {
        Ok(link) => Ok(parse_kvm_link(link.as_os_str().as_encoded_bytes())),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses the target of a /proc/PID/fd link. `kvm-vcpu-stats:N` (since v5.14) does not
/// count: a monitoring agent may hold it.
pub fn parse_kvm_link(target: &[u8]) -> Option<KvmLink> {
    let name = target.strip_prefix(b"anon_inode:")?;
    if name == b"kvm-vm" {
        return Some(KvmLink::Vm);
    }
    let id = std::str::from_utf8(name.strip_prefix(b"kvm-vcpu:")?).ok()?;
    id.parse().ok().map(KvmLink::Vcpu)
}

#[cfg(test)]
mod tests {
    use super::{KvmLink, parse_kvm_link};

    #[test]
    fn only_kvm_fd_links_are_recognized() {
        assert_eq!(parse_kvm_link(b"anon_inode:kvm-vm"), Some(KvmLink::Vm));
        assert_eq!(
            parse_kvm_link(b"anon_inode:kvm-vcpu:17"),
            Some(KvmLink::Vcpu(17))
        );
        for other in [
            &b"anon_inode:kvm-vcpu-stats:0"[..],
            b"anon_inode:kvm-vcpu:",
            b"anon_inode:kvm-vcpu:-1",
            b"anon_inode:[eventfd]",
            b"/tmp/anon_inode:kvm-vcpu:0",
            b"/dev/kvm",
            b"\xff",
        ] {
            assert_eq!(
                parse_kvm_link(other),
                None,
                "{}",
                String::from_utf8_lossy(other)
            );
        }
    }
}
