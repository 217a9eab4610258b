//! Buffers for shown values, reused from reading to reading.

use crate::snapshot::{RoleUse, Thread, Vcpu, Vm};

/// Buffers of one VM from an earlier reading. They are reused because allocating them
/// costs as much as filling them.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) threads: Vec<Thread>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) roles: Vec<RoleUse>,
}

/// Empties the buffer, with a capacity for `count`. A much larger buffer, as a larger VM
/// leaves it, is reallocated.
pub(super) fn fitting<T>(room: &mut Vec<T>, count: usize) -> Vec<T> {
    let mut room = std::mem::take(room);
    room.clear();
    if room.capacity() > 2 * count {
        room = Vec::new();
    }
    room.reserve_exact(count);
    room
}

impl From<Vm> for Room {
    fn from(vm: Vm) -> Self {
        Self {
            threads: vm.threads,
            vcpus: vm.vcpus,
            roles: vm.roles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn room_for_a_large_vm_is_not_kept_by_a_small_one() {
        let mut room: Vec<u8> = vec![1; 64];
        assert_eq!(fitting(&mut room, 40).capacity(), 64, "it is used again");
        room = vec![1; 64];
        let fits = fitting(&mut room, 8);
        assert!(fits.is_empty() && fits.capacity() < 64);
    }
}
