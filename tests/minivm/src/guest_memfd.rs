//! Guest memory in a `guest_memfd`.

use std::fs::File;
use std::os::fd::FromRawFd as _;

use anyhow::Context;
use kvm_bindings::{KVM_MEM_GUEST_MEMFD, kvm_create_guest_memfd, kvm_userspace_memory_region2};
use kvm_ioctls::VmFd;
use rustix::fs::{FallocateFlags, fallocate};

use crate::memory::Mapping;
use crate::vm::Slot;

/// The guest-physical address of this memory: above the firmware.
const ADDRESS: u64 = 4 << 30;

/// The file of a memslot. Like QEMU, the slot also has memory that the VMM shares with the
/// guest; KVM uses it for pages that the guest has not made private.
pub(crate) struct GuestMemfd(File);

impl GuestMemfd {
    /// Creates a file of `bytes`, without pages, and its memslot.
    pub(crate) fn create(vm: &VmFd, bytes: u64) -> anyhow::Result<Self> {
        let arguments = kvm_create_guest_memfd {
            size: bytes,
            ..Default::default()
        };
        let fd = vm
            .create_guest_memfd(arguments)
            .context("KVM_CREATE_GUEST_MEMFD: needs Linux 6.18 for an ordinary VM")?;
        // SAFETY: a descriptor that was created above and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        let shared = Mapping::new(bytes, false)?;
        let region = kvm_userspace_memory_region2 {
            slot: Slot::Private as u32,
            flags: KVM_MEM_GUEST_MEMFD,
            guest_phys_addr: ADDRESS,
            memory_size: bytes,
            userspace_addr: shared.address(),
            guest_memfd: u32::try_from(fd)?,
            ..Default::default()
        };
        // SAFETY: the mapping is never unmapped, and slots do not overlap.
        unsafe { vm.set_user_memory_region2(region) }.context("KVM_SET_USER_MEMORY_REGION2")?;
        Ok(Self(file))
    }

    /// Allocates the pages of a range, or frees them.
    pub(crate) fn change(&self, offset: u64, len: u64, allocates: bool) -> anyhow::Result<()> {
        let mode = if allocates {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
        };
        fallocate(&self.0, mode, offset, len).with_context(|| format!("fallocate at {offset}"))
    }
}
