//! Roles of threads: the table of thread and process names.
//!
//! ```text
//! KVM reports it as a vCPU ────────────────────────► vcpu
//! kernel worker named vhost-… ─────────────────────► vhost
//! in the VMM:  io_uring worker, or a name of its
//!              VMM's table ────────────────────────► iothread
//!              everything else ────────────────────► emulator
//! in the pod:  other kernel threads ───────────────► none
//!              a process named virtiofsd… ─────────► virtiofsd
//!              everything else ────────────────────► helper
//! ```
//!
//! A process chooses its thread names, so a name only decides between roles that the same
//! process can have, and never makes a vCPU.

use crate::facts::ThreadKind;
use crate::identify::vmm::Vmm;
use crate::vocab::{Comm, Role};

/// Everything that determines a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Kind of the thread by its kernel flags.
    pub kind: ThreadKind,
    /// Whether KVM reports that the thread runs a vCPU.
    pub is_vcpu: bool,
    /// Whether the thread belongs to the VMM process or is a kernel thread that uses its
    /// memory.
    pub in_vmm: bool,
    /// VMM of the VM.
    pub vmm: Vmm,
    /// Name of the thread.
    pub comm: Comm,
    /// Name of its process.
    pub process_comm: Comm,
}

/// The role of a thread; `None` is unattributed.
pub fn role_of(traits: &Traits) -> Option<Role> {
    let name = traits.comm.as_bytes();
    let kernel = matches!(traits.kind, ThreadKind::UserWorker | ThreadKind::Kthread);
    if traits.is_vcpu {
        return Some(Role::Vcpu);
    }
    // drivers/vhost/vhost.c: "vhost-%d" of the owner's pid, v5.10 to v7.3.
    if kernel && name.starts_with(b"vhost-") {
        return Some(Role::Vhost);
    }
    if traits.in_vmm {
        return Some(in_vmm(traits.kind, traits.vmm, name));
    }
    in_pod(traits.kind, name, traits.process_comm.as_bytes())
}

/// The role of a thread of the VMM that is neither a vCPU nor a vhost worker.
fn in_vmm(kind: ThreadKind, vmm: Vmm, name: &[u8]) -> Role {
    let io = match kind {
        ThreadKind::User => does_io(vmm, name),
        // iou-wrk-… and iou-sqp-…: the VMM uses io_uring for its guest's I/O.
        ThreadKind::IoWorker => true,
        // kvm-nx-lpage-recovery, a UserWorker since v6.12.107 (mmu.c).
        ThreadKind::UserWorker | ThreadKind::Kthread => false,
    };
    if io { Role::Iothread } else { Role::Emulator }
}

/// Whether the thread is KVM's worker that recovers huge pages, by its name
/// `kvm-nx-lpage-recovery` (`arch/x86/kvm/mmu/mmu.c`). Since v6.12 it is a thread of the
/// VMM, cloned from the vCPU thread that ran first. It inherits that thread's affinity
/// and cgroup, and pinning of emulator threads does not affect it.
pub fn is_nx_recovery(name: Comm) -> bool {
    name.as_bytes() == b"kvm-nx-lpage-re"
}

/// Whether the thread is the VM's timer, by its name `kvm-pit/<pid>` (`kvm_create_pit`,
/// `arch/x86/kvm/i8254.c`). It is a kernel thread in the root cgroup, and no setting of a
/// runtime moves it.
pub fn is_timer(name: Comm) -> bool {
    name.as_bytes().starts_with(b"kvm-pit/")
}

/// The role of a thread of the pod outside the VMM.
fn in_pod(kind: ThreadKind, name: &[u8], process: &[u8]) -> Option<Role> {
    match kind {
        // kvm-pit, and kvm-nx-lpage-recovery before v6.12: the owner is uncertain.
        ThreadKind::Kthread => None,
        // There were too many names to keep, so the process is unknown.
        _ if name.is_empty() && process.is_empty() => None,
        // virtiofsd 1.14 (main.rs) and QEMU's own before 8.0: both processes of the
        // sandbox have this name; their threads are named virtiofsd-backe, vring_worker
        // or anything else.
        _ if process.starts_with(b"virtiofsd") => Some(Role::Virtiofsd),
        _ => Some(Role::Helper),
    }
}

/// Whether the VMM gives this name to threads that do mostly I/O.
fn does_io(vmm: Vmm, name: &[u8]) -> bool {
    match vmm {
        // iothread.c (7.2 to 10.2): "IO %s" with the iothread's id; only with
        // debug-threads=on, which libvirt always sets and Kata does not. mon_iothread is
        // excluded: every VM with a QMP socket has it, and it serves the monitor
        // (monitor/monitor.c; seen on 7.2). `worker` is excluded: the pool of aio=threads
        // (util/thread-pool.c) creates and ends threads with the load, so they cannot be
        // numbered or pinned. Many such threads show that aio=threads is in use.
        Vmm::Qemu => name.starts_with(b"IO ") && name != b"IO mon_iothread",
        // v53: device id and queue number. virtio-devices/src/block.rs "{id}_q{n}" and
        // net.rs "{id}_qp{n}" with any id; the bare id for vhost_user/fs.rs,
        // vsock/device.rs and pmem.rs, whose default ids are in
        // vmm/src/device_manager.rs. "{id}_ctrl" only sets up queues.
        Vmm::CloudHypervisor => {
            queue(name, b"_q")
                || queue(name, b"_qp")
                || [&b"_fs"[..], b"_vsock", b"_pmem"]
                    .iter()
                    .any(|id| numbered(name, id))
        }
        // dbs_virtio_devices/src (Kata 4.1): block/device.rs "blk_iothread_q{n}";
        // fs/handler.rs "virtiofs-thread", the worker of inline virtio-fs, which needs no
        // virtiofsd. Other devices run in vmm_master.
        Vmm::Dragonball => queue(name, b"_q") || name == b"virtiofs-thread",
        // virtio/blk.c, virtio/net.c, disk/aio.c (2024). ioeventfd-worker and
        // threadpool-worker are excluded because they serve every device.
        Vmm::Kvmtool => matches!(
            name,
            b"virtio-blk-io" | b"virtio-net-rx" | b"virtio-net-tx" | b"disk-image-io"
        ),
        // devices/src/virtio (2026): block/asynchronous.rs, net.rs "v_net:{n}", fs/mod.rs
        // "v_fs:{tag}:{n}", p9.rs, pmem.rs, scsi/device.rs. Without --disable-sandbox
        // each device is a separate process: a helper.
        Vmm::Crosvm => {
            matches!(name, b"virtio_blk" | b"v_9p" | b"v_pmem")
                || numbered(name, b"v_net:")
                || numbered(name, b"v_scsi_req_")
                || name.starts_with(b"v_fs:")
        }
        // Firecracker has one thread for all devices (`firecracker` itself); StratoVirt
        // names its iothreads only after the user's ids
        // (machine_manager/src/event_loop.rs).
        Vmm::Firecracker | Vmm::StratoVirt | Vmm::Other => false,
    }
}

/// Whether the name is `prefix` followed by a number.
fn numbered(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Whether the name is an id, `mark` and a number: `_disk0_q1`.
fn queue(name: &[u8], mark: &[u8]) -> bool {
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (id, number) = name.split_at(name.len() - digits);
    !number.is_empty() && id.len() > mark.len() && id.ends_with(mark)
}

#[cfg(test)]
mod tests;
