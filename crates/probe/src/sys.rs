//! The few calls of bpf(2) that libbpf-rs does not wrap, or wraps at the cost
//! of an allocation for each element.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libbpf_rs::{MapCore, MapHandle, libbpf_sys};
use zerocopy::FromBytes;

/// Entries asked for at once.
const BATCH: usize = 2048;

/// A batch of a map's entries, kept between readings.
pub(crate) struct Batch<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for Batch<K, V> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<K, V> Batch<K, V>
where
    K: FromBytes + Copy,
    V: FromBytes + Copy,
{
    /// Reads the first `limit` entries of a map, in its own order (since v5.6:
    /// `BPF_MAP_LOOKUP_BATCH`).
    ///
    /// # Errors
    /// What the kernel said; or the map's keys and values are not as large as `K`
    /// and `V`.
    pub(crate) fn read(
        &mut self,
        map: &MapHandle,
        limit: usize,
        mut each: impl FnMut(&K, &V),
    ) -> io::Result<()> {
        let sizes = (map.key_size() as usize, map.value_size() as usize);
        if sizes != (size_of::<K>(), size_of::<V>()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut left = limit;
        if self.keys.is_empty() {
            self.keys = vec![K::new_zeroed(); BATCH];
            self.values = vec![V::new_zeroed(); BATCH];
        }
        // A hash map's cursor is a bucket number, an array's a key.
        let mut cursor = [0u64; 16];
        const { assert!(size_of::<K>() <= size_of::<[u64; 16]>()) };
        let mut started = false;
        while left > 0 {
            let mut count = u32::try_from(self.keys.len().min(left)).unwrap_or(u32::MAX);
            let from = if started {
                cursor.as_mut_ptr()
            } else {
                std::ptr::null_mut()
            };
            // SAFETY: keys and values have room for `count` elements of the
            // map's key and value size, which were compared; the cursor for a key.
            let result = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    map.as_fd().as_raw_fd(),
                    from.cast(),
                    cursor.as_mut_ptr().cast(),
                    self.keys.as_mut_ptr().cast(),
                    self.values.as_mut_ptr().cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            let error = io::Error::last_os_error();
            let end = result != 0 && error.raw_os_error() == Some(libc::ENOENT);
            // One bucket holds more than there is room for: ask for more.
            if result != 0 && error.raw_os_error() == Some(libc::ENOSPC) {
                let more = self.keys.len() * 2;
                self.keys = vec![K::new_zeroed(); more];
                self.values = vec![V::new_zeroed(); more];
                continue;
            }
            if result != 0 && !end {
                return Err(error);
            }
            self.keys
                .iter()
                .zip(&self.values)
                .take(count as usize)
                .for_each(|(k, v)| each(k, v));
            left = left.saturating_sub(count as usize);
            if end {
                break;
            }
            started = true;
        }
        Ok(())
    }
}

/// Whether the kernel takes a program at the entry of `function`: asked by
/// loading one that does nothing. It is not attached.
///
/// # Errors
/// What the kernel said, or that it has no such function.
pub(crate) fn takes_fentry(function: &CStr) -> io::Result<()> {
    let attach = libbpf_sys::BPF_TRACE_FENTRY;
    // SAFETY: `function` is a C string.
    let id = unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(function.as_ptr(), attach) };
    let id = u32::try_from(id).map_err(|_| io::Error::from_raw_os_error(-id))?;
    // r0 = 0; exit (include/uapi/linux/bpf.h)
    let instructions = [0x0000_00b7_u64, 0x0000_0095];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach,
        attach_btf_id: id,
        ..Default::default()
    };
    // SAFETY: two whole instructions, and options of the size they tell.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            std::ptr::null(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if program < 0 {
        return Err(io::Error::from_raw_os_error(-program));
    }
    // SAFETY: the kernel gave this descriptor to nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(program) });
    Ok(())
}

/// A program, by where it is pinned.
///
/// # Errors
/// What the kernel said.
pub(crate) fn pinned_program(place: &Path) -> io::Result<OwnedFd> {
    let place = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: a C string.
    let program = unsafe { libbpf_sys::bpf_obj_get(place.as_ptr()) };
    if program < 0 {
        return Err(io::Error::from_raw_os_error(-program));
    }
    // SAFETY: the kernel gave this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// How often a program ran and for how long, ns: kept by the kernel only
/// while `kernel.bpf_stats_enabled` is 1.
///
/// # Errors
/// What the kernel said.
pub(crate) fn program_cost(program: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = u32::try_from(size_of_val(&info)).expect("a small struct");
    // SAFETY: `info` is a zeroed bpf_prog_info of `size` bytes.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        Ok((info.run_cnt, info.run_time_ns))
    } else {
        Err(io::Error::last_os_error())
    }
}
