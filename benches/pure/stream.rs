//! The stream of a task pass on a full node, without a kernel: VMs of eight vCPUs and
//! four other threads, each in a container of a separate pod.

use virtlens_abi as abi;
use zerocopy::IntoBytes;

/// Words of an affinity mask: a host of up to 128 CPUs.
pub(crate) const MASK_WORDS: usize = 2;

/// vCPUs per VM.
const VCPUS: u32 = 8;

/// Names of the other threads of a VM, as QEMU gives them; the first is the main thread.
const OTHERS: [&str; 4] = ["qemu-system-x86", "IO iothread0", "vnc_worker", "worker"];

/// The levels above the pods: id, id of the parent, name.
const UPPER: [(u64, u64, &str); 3] = [(1, 0, ""), (2, 1, "kubepods"), (3, 2, "burstable")];

/// The bytes of one pass over `vms` VMs. Only the first pass of a session contains the
/// cgroups' names.
pub(crate) fn pass(vms: u32, is_first: bool) -> Vec<u8> {
    let mut stream = Stream::default();
    for (id, parent, name) in UPPER {
        stream.cgroup(id, parent, is_first.then_some(name));
    }
    for vm in 0..vms {
        stream.vm(vm, is_first);
    }
    stream.bytes
}

/// The process id of a VM.
pub(crate) fn tgid(vm: u32) -> u32 {
    10_000 + vm * 100
}

fn owner(vm: u32) -> abi::Owner {
    abi::Owner {
        id: u64::from(vm) * 1_000_000,
        tgid: tgid(vm),
        pad: 0,
    }
}

#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
}

impl Stream {
    fn vm(&mut self, vm: u32, named: bool) {
        let pod = 1000 + u64::from(vm) * 2;
        let pod_name = format!("pod{vm:08x}-1111-2222-3333-444444444444");
        let container_name = format!("{vm:064x}");
        self.cgroup(pod, 3, named.then_some(&pod_name));
        self.cgroup(pod + 1, pod, named.then_some(&container_name));
        self.put(&abi::record::VmRecord {
            head: head::<abi::record::VmRecord>(abi::record::RECORD_VM, 0),
            owner: owner(vm),
            vcpus: VCPUS,
            pad: 0,
            mmu: abi::record::MmuStats {
                pages: [1000, 200, 0],
                nx_splits: 0,
                tlb_flushes: 30,
            },
            moves: [40, 7, 3, 0, 0],
        });
        for (nth, comm) in (0..).zip(OTHERS) {
            self.thread(vm, nth, comm, None);
        }
        for id in 0..VCPUS {
            self.thread(vm, 10 + id, &format!("CPU {id}/KVM"), Some(id));
        }
    }

    fn cgroup(&mut self, id: u64, parent: u64, name: Option<&str>) {
        let record = abi::record::CgroupRecord {
            head: head::<abi::record::CgroupRecord>(abi::record::RECORD_CGROUP, 0),
            id,
            parent,
            quota_ns: 400_000_000,
            period_ns: 100_000_000,
            burst_ns: 0,
            periods: 1000 + id,
            throttled_periods: id,
            throttled_ns: id * 1_000_000,
            memory_bytes: 1 << 30,
            memory_limit_bytes: abi::UNKNOWN,
        };
        self.put(&record);
        if let Some(name) = name {
            let record = abi::record::CgroupNameRecord {
                head: head::<abi::record::CgroupNameRecord>(abi::record::RECORD_CGROUP_NAME, 0),
                id,
                name: padded(name),
            };
            self.put(&record);
        }
    }

    fn thread(&mut self, vm: u32, nth: u32, comm: &str, vcpu: Option<u32>) {
        let times = u64::from(vm * 100 + nth + 1) * 1_234_567_891;
        let vcpu_bytes = vcpu.map_or(0, |_| size_of::<abi::record::VcpuRecord>());
        let record = abi::record::ThreadRecord {
            head: head::<abi::record::ThreadRecord>(
                abi::record::RECORD_THREAD,
                vcpu_bytes + MASK_WORDS * 8,
            ),
            owner: owner(vm),
            tid: tgid(vm) + nth,
            tgid: tgid(vm),
            start_ns: u64::from(vm) * 1_000_000 + u64::from(nth),
            run_ns: times,
            wait_ns: times / 7,
            guest_ns: vcpu.map_or(0, |_| times / 2),
            timeslices: times / 100_000,
            involuntary_switches: times / 300_000,
            cgroup: 1001 + u64::from(vm) * 2,
            pcpu: nth % 96,
            flags: vcpu.map_or(0, |_| abi::record::THREAD_VCPU),
            class_changes: 0,
            policy: 0,
            comm: padded(comm),
            leader_comm: padded(OTHERS[0]),
        };
        self.put(&record);
        if let Some(id) = vcpu {
            self.put(&vcpu_record(id, times));
        }
        self.put(&[u64::MAX >> 1; MASK_WORDS]);
    }

    fn put<T: IntoBytes + zerocopy::Immutable>(&mut self, record: &T) {
        self.bytes.extend_from_slice(record.as_bytes());
    }
}

fn vcpu_record(id: u32, times: u64) -> abi::record::VcpuRecord {
    abi::record::VcpuRecord {
        id,
        index: id,
        instance: 0xffff_8000_0000_0000 + times,
        halt_poll_success_ns: times / 100,
        halt_poll_fail_ns: times / 50,
        halt_wait_ns: times / 3,
        exits: times / 1000,
        io_exits: times / 10_000,
        mmio_exits: times / 20_000,
        halt_exits: times / 2000,
        irq_exits: times / 5000,
        irq_window_exits: times / 50_000,
        hypercalls: times / 100_000,
        pf_fixed: times / 40_000,
        pf_taken: times / 30_000,
        halt_wakeups: times / 3000,
        polls_attempted: times / 2500,
        polls_successful: times / 20_000,
        polls_invalid: 0,
        yields_attempted: 0,
        yields_successful: 0,
        preemptions_reported: times / 90_000,
        placed_ns: 0,
        preempted: 0,
        pad: 0,
    }
}

fn head<T>(kind: u32, more_bytes: usize) -> abi::record::RecordHead {
    let size = size_of::<T>() + more_bytes;
    abi::record::RecordHead {
        kind,
        size: u32::try_from(size).expect("a record is short"),
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}
