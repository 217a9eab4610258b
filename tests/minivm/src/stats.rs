//! KVM's binary statistics of a VM or a vCPU: `KVM_GET_STATS_FD`, since Linux 5.14
//! (Documentation/virt/kvm/api.rst, 4.133).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use anyhow::Context;

/// `_IO(KVMIO, 0xce)`, include/uapi/linux/kvm.h.
const KVM_GET_STATS_FD: libc::c_ulong = 0xaece;
/// `struct kvm_stats_header`: `name_size`, `num_desc`, `desc_offset`, `data_offset`.
const HEADER: [u64; 4] = [4, 8, 16, 20];
/// Size of `struct kvm_stats_desc` without the name, bytes.
const DESCRIPTOR_BYTES: usize = 16;

/// The values of each statistic, by its name.
pub(crate) type Stats = BTreeMap<String, Vec<u64>>;

/// Opens the statistics of a VM or vCPU; `None` if this kernel has none. For a vCPU the call
/// waits while it runs, so it precedes the first run.
pub(crate) fn open(kvm: &impl AsRawFd) -> anyhow::Result<Option<File>> {
    // SAFETY: the ioctl has no argument.
    let fd = unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_GET_STATS_FD) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL) => Ok(None),
            _ => Err(error).context("KVM_GET_STATS_FD"),
        };
    }
    // SAFETY: the kernel just created it.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
}

/// Reads all statistics of a file.
pub(crate) fn read(file: &File) -> anyhow::Result<Stats> {
    let [name_size, count, descriptors, data] = HEADER.map(|at| word(file, at));
    let (name_size, count) = (usize::try_from(name_size?)?, u64::from(count?));
    let (descriptors, data) = (u64::from(descriptors?), u64::from(data?));
    let mut stats = Stats::new();
    for index in 0..count {
        let mut bytes = vec![0; DESCRIPTOR_BYTES + name_size];
        let at = descriptors + index * bytes.len() as u64;
        file.read_exact_at(&mut bytes, at)
            .context("a descriptor cannot be read")?;
        let (head, name) = bytes.split_at(DESCRIPTOR_BYTES);
        let size = usize::from(u16::from_ne_bytes([head[6], head[7]]));
        let offset = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]);
        let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
        let mut values = vec![0; size * 8];
        match file.read_exact_at(&mut values, data + u64::from(offset)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error).context("values cannot be read"),
        }
        let (values, _) = values.as_chunks::<8>();
        let values = values.iter().map(|value| u64::from_ne_bytes(*value));
        stats.insert(String::from_utf8(name)?, values.collect());
    }
    Ok(stats)
}

fn word(file: &File, at: u64) -> anyhow::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at)
        .context("the header cannot be read")?;
    Ok(u32::from_ne_bytes(bytes))
}
