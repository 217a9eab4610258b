//! Which processes hold KVM's file descriptors.
//!
//! A VM exists exactly as long as someone holds its descriptors, whether its
//! vCPUs run, halt or are paused. Their names are the kernel's own
//! (`anon_inode_getfd("kvm-vcpu:%d")`, `virt/kvm/kvm_main.c`, v5.10 to v6.18): no
//! process can give a file of its own a link that does not begin with "/" or
//! with a name of the kernel's making.

use std::collections::BTreeSet;
use std::fs;

use crate::error::{Error, Losses};
use crate::process;
use crate::root::{HostRoot, numbered};

/// The most descriptors of one VMM that are looked at (4096 vCPUs, KVM's own
/// bound, and some for its devices).
const MAX_FDS: usize = 16_384;

/// How far into an unknown process's descriptors is looked for the first one
/// of KVM's. They are listed in order, and a VMM makes its VM before its
/// devices; a proxy with a million sockets must not cost a second.
const SEARCHED_FDS: usize = 4096;

/// The most processes listed (`PID_MAX_LIMIT`, include/linux/threads.h).
const MAX_PROCESSES: usize = 4 << 20;

/// What a file descriptor of KVM's is.
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
    /// Whether it holds a VM.
    pub has_vm: bool,
    /// The ids of the vCPUs that it holds. Those of a second VM in the same
    /// process count only where their ids differ.
    pub vcpu_ids: BTreeSet<u32>,
    /// It holds more descriptors than were looked at.
    pub is_cut: bool,
}

impl VmFds {
    /// How many vCPUs.
    pub fn vcpus(&self) -> u32 {
        u32::try_from(self.vcpu_ids.len()).unwrap_or(u32::MAX)
    }
}

/// What a look at every process found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmScan {
    /// Processes that hold a VM or vCPUs, by process id.
    pub vms: Vec<(u32, VmFds)>,
    /// Kernel threads named `vhost-N` and `kvm-pit/N`.
    pub kthreads: Vec<u32>,
    /// Processes that live, and could not be looked at.
    pub unread: BTreeSet<u32>,
    /// What could not be looked at.
    pub losses: Losses,
}

/// How many vCPUs a process holds descriptors of.
///
/// # Errors
/// When the process is gone, or its descriptors may not be read.
pub fn vcpu_fds(root: &HostRoot, pid: u32) -> Result<u32, Error> {
    Ok(vm_fds(root, pid)?.vcpus())
}

/// The KVM descriptors that a process holds.
///
/// # Errors
/// When the process is gone, or its descriptors may not be read.
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

/// Looks for VMs in every process of the host.
///
/// Costs a directory read for each process and a link read for each file
/// descriptor: for now and then, not for every reading.
///
/// # Errors
/// When /proc cannot be listed.
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
    /// Nothing among the descriptors that were looked at.
    TooMany,
}

fn look_at(root: &HostRoot, pid: u32) -> Result<Found, Error> {
    let (numbers, is_cut) = numbered(&root.proc_of(pid, "fd"), SEARCHED_FDS)?;
    if numbers.is_empty() {
        // As every kernel thread; few user processes have none.
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

/// What a descriptor is; one that was closed meanwhile is nothing.
fn kvm_link(root: &HostRoot, pid: u32, fd: u32) -> Result<Option<KvmLink>, Error> {
    let path = root.proc(format!("{pid}/fd/{fd}"));
    match fs::read_link(&path).map_err(|source| Error::io(&path, source)) {
        Ok(link) => Ok(parse_kvm_link(link.as_os_str().as_encoded_bytes())),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the target of a /proc/PID/fd link says. `kvm-vcpu-stats:N` (since
/// v5.14) is none: a monitoring agent may hold it.
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
    fn only_kvms_own_links_count() {
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
