//! Prefetching: memory is loaded into the CPU's caches before it is needed.
//!
//! Between two readings of a large node, caches and TLB lose the data of its VMs, and code that
//! works on one VM after the other would wait for each part of them. A prefetch does not wait: the
//! CPU loads the memory of the next VM while it works on the present one. A load would hold up all
//! instructions behind it, because the CPU retires them in order.

/// Bytes of a cache line of x86-64 and of most aarch64 CPUs. Others only load a line twice.
const LINE: usize = 64;

/// Prefetches a value, if there is one, without what it points to.
#[inline]
pub fn prefetch<T>(value: Option<&T>) {
    prefetch_slice(value.map_or(&[], std::slice::from_ref));
}

/// Prefetches adjacent values, without what they point to.
#[inline]
pub fn prefetch_slice<T>(values: &[T]) {
    let start = values.as_ptr().cast::<u8>();
    for offset in (0..size_of_val(values)).step_by(LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
}

#[inline]
fn prefetch_line(address: *const u8) {
    // SAFETY: a prefetch of any address changes no memory and causes no fault (Intel SDM,
    // PREFETCHh).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    // SAFETY: the same (Arm ARM, PRFM).
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::{prefetch, prefetch_slice};

    #[test]
    fn values_stay_as_they_are() {
        let values: Vec<u64> = (0..1000).collect();
        prefetch_slice(&values);
        prefetch_slice::<u64>(&[]);
        prefetch(values.last());
        prefetch::<u64>(None);
        assert!(values.iter().copied().eq(0..1000));
    }
}
