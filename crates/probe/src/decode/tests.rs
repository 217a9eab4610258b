mod cgroups;
mod files;
mod memory;
mod slept;

use proptest::prelude::{any, proptest};
use virtlens_abi as abi;
use virtlens_model::facts::ThreadKind;
use virtlens_model::vocab::{CgroupId, Comm, ExitCounts, Owner, Switches, VmKey};
use zerocopy::{FromZeros, IntoBytes};

use super::{Buffer, Decoder, OpenFiles};
use crate::Error;

/// Records in the format of the programs.
#[derive(Default)]
struct Stream(Buffer);

impl Stream {
    fn push(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.0.fill(bytes.len());
        self
    }

    fn cgroup(&mut self, id: u64, parent: u64, name: Option<&str>) -> &mut Self {
        let mut record = abi::record::CgroupRecord::new_zeroed();
        record.head = head(abi::record::RECORD_CGROUP, size_of_val(&record));
        (record.id, record.parent) = (id, parent);
        (record.quota_ns, record.period_ns) = (abi::UNKNOWN, 100_000_000);
        self.push(record.as_bytes());
        if let Some(text) = name {
            let mut record = abi::record::CgroupNameRecord::new_zeroed();
            record.head = head(abi::record::RECORD_CGROUP_NAME, size_of_val(&record));
            record.id = id;
            record.name[..text.len()].copy_from_slice(text.as_bytes());
            self.push(record.as_bytes());
        }
        self
    }

    fn level(&mut self, id: u64, stalled_ns: [u64; 7]) -> &mut Self {
        let mut record = abi::record::LevelRecord::new_zeroed();
        record.head = head(abi::record::RECORD_LEVEL, size_of_val(&record));
        (record.id, record.stalled_ns) = (id, stalled_ns);
        record.memory_events = if id == 32 {
            [abi::UNKNOWN; 4]
        } else {
            [5, 6, 7, 8]
        };
        self.push(record.as_bytes())
    }

    fn vm(&mut self, tgid: u32, vcpus: u32) -> &mut Self {
        let mut record = abi::record::VmRecord::new_zeroed();
        record.head = head(abi::record::RECORD_VM, size_of_val(&record));
        record.owner = abi::Owner {
            id: 500,
            tgid,
            pad: 0,
        };
        record.vcpus = vcpus;
        record.mmu = abi::record::MmuStats {
            pages: if vcpus == 2 {
                [3, 2, 1]
            } else {
                [abi::UNKNOWN; 3]
            },
            nx_splits: 4,
            tlb_flushes: 5,
        };
        self.push(record.as_bytes())
    }

    fn thread(
        &mut self,
        flags: u32,
        mask: &[u64],
        vcpu: Option<abi::record::VcpuRecord>,
    ) -> &mut Self {
        let mut record = abi::record::ThreadRecord::new_zeroed();
        let more = if vcpu.is_some() {
            size_of::<abi::record::VcpuRecord>()
        } else {
            0
        };
        record.head = head(
            abi::record::RECORD_THREAD,
            size_of_val(&record) + more + size_of_val(mask),
        );
        record.owner = abi::Owner {
            id: 500,
            tgid: 7,
            pad: 0,
        };
        (record.tid, record.tgid, record.flags) = (9, 7, flags);
        (record.run_ns, record.wait_ns, record.cgroup) = (1234, 56, 30);
        (record.timeslices, record.involuntary_switches) = (78, 9);
        record.comm = Comm::new("CPU 0/KVM").0;
        self.push(record.as_bytes());
        if let Some(vcpu) = vcpu {
            self.push(vcpu.as_bytes());
        }
        self.push(mask.as_bytes())
    }
}

fn head(kind: u32, size: usize) -> abi::record::RecordHead {
    abi::record::RecordHead {
        kind,
        size: u32::try_from(size).expect("small"),
    }
}

fn vcpu(exits: u64) -> abi::record::VcpuRecord {
    let mut vcpu = abi::record::VcpuRecord::new_zeroed();
    (vcpu.id, vcpu.index, vcpu.instance) = (2, 1, 0xffff);
    (vcpu.exits, vcpu.io_exits) = (exits, 3);
    (vcpu.halt_wait_ns, vcpu.pf_taken) = (abi::UNKNOWN, abi::UNKNOWN);
    vcpu
}

#[test]
fn halts_are_decoded_unless_unknown() {
    let mut stream = Stream::default();
    for (vcpu_id, last) in [(0, 9), (1, abi::UNKNOWN)] {
        let mut record = abi::record::HaltsRecord::new_zeroed();
        record.head = head(abi::record::RECORD_HALTS, size_of_val(&record));
        (record.owner.tgid, record.vcpu_id, record.instance) = (7, vcpu_id, 0xffff);
        record.counts[2][31] = last;
        stream.push(record.as_bytes());
    }
    let (facts, _) = Decoder::default()
        .pass(stream.0.bytes(), 1)
        .expect("it is whole");
    assert_eq!(facts.halts.len(), 1);
    let fact = facts.halts[0];
    assert_eq!(
        (fact.vcpu_id, fact.instance, fact.halts.wait[31]),
        (0, 0xffff, 9)
    );
}

#[test]
fn page_tables_are_decoded_unless_unknown() {
    let mut stream = Stream::default();
    stream.vm(7, 2).vm(8, 1);
    let (facts, _) = Decoder::default()
        .pass(stream.0.bytes(), 1)
        .expect("it is whole");
    let mmu: Vec<_> = facts.vms.iter().filter_map(|fact| fact.mmu).collect();
    let mapped = |at: usize| {
        mmu[at]
            .mapped_bytes
            .map(|mapped| mapped.by_size().map(|(_, bytes)| bytes))
    };
    assert_eq!(mapped(0), Some([3 << 12, 2 << 21, 1 << 30]));
    assert_eq!(mapped(1), None);
    assert_eq!((mmu[1].nx_splits, mmu[1].tlb_flushes), (4, 5));
}

#[test]
fn values_of_level_are_decoded_unless_unknown() {
    const NO: u64 = abi::UNKNOWN;
    let mut stream = Stream::default();
    stream
        .level(30, [1, 2, 3, 4, 5, 6, 0])
        .level(31, [1, NO, 3, 4, 5, 6, 7])
        .level(32, [NO; 7]);
    let mut decoder = Decoder::default();
    let (facts, _) = decoder.pass(stream.0.bytes(), 1).expect("it is whole");
    let of = |id| facts.levels[&CgroupId(id)].pressure;
    let values = |id| of(id).map(|pressure| pressure.values());
    let some = |ns: u64| (ns > 0).then_some(ns);
    assert_eq!(values(30), Some([1, 2, 3, 4, 5, 6, 0].map(some)));
    assert_eq!(values(31), Some([1, 0, 3, 4, 5, 6, 7].map(some)));
    assert_eq!(of(32), None);
    let events = |id| facts.levels[&CgroupId(id)].memory_events;
    assert_eq!(events(30).map(|events| events.values()), Some([5, 6, 7, 8]));
    assert_eq!(events(32), None);
    decoder.recycle(facts);
    let (facts, _) = decoder.pass(&[], 1).expect("it is whole");
    assert!(facts.levels.is_empty(), "each pass has its own");
}

#[test]
fn vcpu_thread_record_round_trips() {
    let mut stream = Stream::default();
    stream.thread(abi::record::THREAD_VCPU, &[0b1010, 1], Some(vcpu(10)));
    let (facts, nameless) = Decoder::default()
        .pass(stream.0.bytes(), 2)
        .expect("it is whole");
    let [thread] = &facts.threads[..] else {
        panic!("one thread: {facts:?}")
    };
    let vm = VmKey {
        start_ns: 500,
        tgid: 7,
    };
    assert_eq!(
        (thread.owner, thread.tid, thread.kind),
        (Owner::Vm(vm), 9, ThreadKind::User)
    );
    assert_eq!(
        (thread.cpu_ns, thread.wait_ns, thread.cgroup),
        (1234, Some(56), CgroupId(30))
    );
    let switches = Switches {
        timeslices: 78,
        involuntary: 9,
    };
    assert_eq!(thread.switches, Some(switches));
    assert_eq!(
        thread
            .affinity
            .as_ref()
            .expect("it was emitted")
            .to_string(),
        "1,3,64"
    );
    let vcpu = thread.vcpu.expect("it runs one");
    let stats = vcpu.stats.expect("KVM was believed");
    assert_eq!(
        (vcpu.id, vcpu.index, stats.counters.exits()),
        (2, Some(1), Some(ExitCounts([3, 0, 0, 0, 0, 0, 7])))
    );
    assert_eq!(
        (stats.counters.halt_wait_ns(), stats.counters.pf_taken()),
        (None, None),
        "unknown is absent"
    );
    assert_eq!((facts.vms.len(), nameless), (0, 0));
}

#[test]
fn vm_without_vcpu_thread_is_decoded() {
    let mut stream = Stream::default();
    stream.vm(7, 4).vm(8, 1).vm(7, 4);
    let mut decoder = Decoder::default();
    let (facts, _) = decoder.pass(stream.0.bytes(), 1).expect("it is whole");
    let vms: Vec<_> = facts
        .vms
        .iter()
        .map(|one| (one.vm.tgid, one.vcpus))
        .collect();
    assert_eq!(vms, [(7, 4), (8, 1)], "each VM once");
    let held: Vec<_> = facts.held().collect();
    assert_eq!(held.len(), 2);
    decoder.recycle(facts);
    let (facts, _) = decoder.pass(&[], 1).expect("it is whole");
    assert!(facts.vms.is_empty(), "each pass has its own");
}

#[test]
fn implausible_vcpu_record_has_no_counters() {
    let mut stream = Stream::default();
    stream.thread(abi::record::THREAD_VCPU, &[], Some(vcpu(abi::UNKNOWN)));
    let mut half = vcpu(7);
    half.pf_fixed = abi::UNKNOWN;
    stream.thread(abi::record::THREAD_VCPU, &[], Some(half));
    let (facts, _) = Decoder::default()
        .pass(stream.0.bytes(), 0)
        .expect("it is whole");
    for thread in facts.threads.iter() {
        assert_eq!(thread.vcpu.expect("it is one").stats, None);
        assert_eq!(thread.affinity, None);
    }
}

#[test]
fn thread_kind_is_decoded_from_flags() {
    for (flags, kind) in [
        (0, ThreadKind::User),
        (abi::record::THREAD_USER_WORKER, ThreadKind::UserWorker),
        (
            abi::record::THREAD_USER_WORKER | abi::record::THREAD_IO_WORKER,
            ThreadKind::IoWorker,
        ),
        (
            abi::record::THREAD_KTHREAD | abi::record::THREAD_USER_WORKER,
            ThreadKind::Kthread,
        ),
    ] {
        let mut stream = Stream::default();
        stream.thread(flags, &[], None);
        let (facts, _) = Decoder::default()
            .pass(stream.0.bytes(), 0)
            .expect("it is whole");
        assert_eq!(facts.threads[0].kind, kind);
    }
}

#[test]
fn broken_stream_is_error_with_offset() {
    let mut stream = Stream::default();
    stream.thread(0, &[], None);
    let whole = stream.0.bytes().len();
    stream
        .push(head(abi::record::RECORD_THREAD, 16).as_bytes())
        .push(&[0; 8]);
    let broken = Decoder::default().pass(stream.0.bytes(), 0);
    assert!(
        matches!(broken, Err(Error::Record { offset, .. }) if offset == whole),
        "{broken:?}"
    );
}

proptest! {
    /// The decoder never panics or loops, whatever the bytes are.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        words in proptest::collection::vec(any::<u64>(), 0..200),
        kind in 0u32..16,
        size in 0usize..400,
        mask_words in 0usize..40,
    ) {
        let mut stream = Stream::default();
        stream.push(head(kind, size).as_bytes()).push(words.as_bytes());
        drop(Decoder::default().pass(stream.0.bytes(), mask_words));
        drop(OpenFiles::default().feed(stream.0.bytes()));
    }
}
