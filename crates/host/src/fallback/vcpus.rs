//! Maps threads to vCPUs by the thread names that VMMs set.

use std::collections::{BTreeMap, BTreeSet};

use virtlens_model::facts::{ThreadFact, ThreadKind, VcpuFact};

/// Parses the number in a vCPU thread's name; `None` for names that no VMM gives a vCPU
/// thread.
///
/// | name | VMM | source |
/// |---|---|---|
/// | `CPU N/KVM` | QEMU with `debug-threads=on`, StratoVirt | accel/kvm/kvm-accel-ops.c (v7.2) |
/// | `vcpuN` | Cloud Hypervisor | vmm/src/cpu.rs |
/// | `fc_vcpu N` | Firecracker | src/vmm/src/vstate/vcpu.rs |
/// | `db_vcpuN` | Dragonball | vcpu_impl.rs |
/// | `kvm-vcpu-N` | kvmtool | builtin-run.c |
/// | `crosvm_vcpuN` | crosvm | src/crosvm/sys/linux/vcpu.rs |
pub fn vcpu_number(comm: &[u8]) -> Option<u32> {
    const PREFIXES: [&str; 5] = ["vcpu", "fc_vcpu ", "db_vcpu", "kvm-vcpu-", "crosvm_vcpu"];
    let comm = std::str::from_utf8(comm).ok()?;
    let digits = match comm.strip_prefix("CPU ") {
        Some(rest) => rest.strip_suffix("/KVM")?,
        None => PREFIXES
            .iter()
            .find_map(|prefix| comm.strip_prefix(prefix))?,
    };
    // `parse` accepts a sign, which no VMM writes.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(())?;
    digits.parse().ok()
}

/// Marks the threads of one VM that run vCPUs, by name.
///
/// QEMU names a thread by its dense `cpu_index`, while KVM's vCPU id is the APIC id,
/// which has gaps if the number of sockets or cores is not a power of two. Both rise
/// together, so if a name's number is not an id, the numbers are matched to the ids in
/// order.
pub(super) fn name_vcpus(threads: &mut [ThreadFact], ids: &BTreeSet<u32>) {
    let number = |thread: &ThreadFact| match thread.kind {
        ThreadKind::User => vcpu_number(thread.comm.as_bytes()),
        ThreadKind::UserWorker | ThreadKind::IoWorker | ThreadKind::Kthread => None,
    };
    let by_order = threads
        .iter()
        .filter_map(number)
        .any(|number| !ids.contains(&number));
    let in_order: Vec<u32> = ids.iter().copied().collect();
    let mut runners: BTreeMap<u32, &mut ThreadFact> = BTreeMap::new();
    for thread in threads {
        let id = number(thread).and_then(|number| {
            if by_order {
                in_order.get(number as usize).copied()
            } else {
                Some(number)
            }
        });
        let Some(id) = id else { continue };
        // A new thread has its creator's name until it gets its own.
        let is_copy =
            |known: &&mut ThreadFact| (known.start_ns, known.tid) < (thread.start_ns, thread.tid);
        if !runners.get(&id).is_some_and(is_copy) {
            runners.insert(id, thread);
        }
    }
    for (id, thread) in runners {
        thread.vcpu = Some(VcpuFact {
            charged_ns: None,
            id,
            index: None,
            stats: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::vcpu_number;

    #[test]
    fn every_vmm_names_its_vcpus() {
        for (comm, number) in [
            ("CPU 0/KVM", 0),
            ("CPU 1023/KVM", 1023),
            ("vcpu7", 7),
            ("fc_vcpu 3", 3),
            ("db_vcpu12", 12),
            ("kvm-vcpu-1", 1),
            ("crosvm_vcpu15", 15),
        ] {
            assert_eq!(vcpu_number(comm.as_bytes()), Some(number), "{comm}");
        }
        for comm in [
            "CPU 0/TCG",
            "CPU /KVM",
            "CPU +1/KVM",
            "vcpu",
            "vcpu1x",
            "vcpu-1",
            "fc_vcpu",
            "xvcpu1",
            "worker",
            "",
            "vcpu99999999999",
        ] {
            assert_eq!(vcpu_number(comm.as_bytes()), None, "{comm}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(comm in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = vcpu_number(&comm);
        }
    }
}
