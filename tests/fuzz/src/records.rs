//! The stream that the BPF programs write in a pass.

use virtlens_abi as abi;
use virtlens_model::facts::Facts;
use virtlens_probe::decode::{Buffer, Decoder, OpenFiles};

/// The first byte of `data` is the length of affinity masks, the second the position at
/// which the stream is split into two reads; the rest is the stream.
pub fn records(data: &[u8]) {
    let [mask_words, cut, stream @ ..] = data else {
        return;
    };
    let mask_words = usize::from(*mask_words) % (abi::MASK_WORDS_MAX + 1);
    let whole = buffer(stream);
    let mut decoder = Decoder::default();
    let first = decoder.pass(whole.bytes(), mask_words);
    if let Ok((facts, nameless)) = &first {
        check(facts, *nameless, whole.bytes());
    }
    let vms: Vec<_> = decoder.guests().map(|(vm, _)| vm).collect();
    for vm in vms {
        decoder.forget(vm);
    }
    assert_eq!(decoder.guests().count(), 0);

    // The kernel ends a read between two records, so two reads give the same stream.
    let at = cut_near(whole.bytes(), usize::from(*cut) * 8);
    let (head, tail) = whole.bytes().split_at(at);
    let mut decoder = Decoder::default();
    decoder.begin(false);
    let fed = decoder
        .feed(head, mask_words)
        .and_then(|()| decoder.feed(tail, mask_words));
    assert_eq!(fed.is_ok(), first.is_ok(), "cut at {at}");
    if let Ok((facts, _)) = first {
        let (in_two, _) = decoder.end();
        assert_eq!(in_two.threads, facts.threads);
        assert_eq!(in_two.cgroups, facts.cgroups);
        decoder.recycle(in_two);
    }

    let mut files = OpenFiles::default();
    if files.feed(whole.bytes()).is_ok() {
        let found = files.into_vms();
        let workers = found.values().map(|one| one.vhost_devices.len());
        let smallest = size_of::<abi::record::VhostWorkerRecord>();
        assert!(workers.sum::<usize>() * smallest <= whole.bytes().len());
        let smallest = size_of::<abi::record::VcpuFdRecord>();
        let ran = found.values().map(|one| one.ran().count());
        assert!(ran.sum::<usize>() * smallest <= whole.bytes().len());
    }
}

/// Fills a buffer as a reader does.
fn buffer(stream: &[u8]) -> Buffer {
    let mut buffer = Buffer::default();
    for part in stream.chunks(100) {
        buffer.room(part.len())[..part.len()].copy_from_slice(part);
        buffer.fill(part.len());
    }
    assert_eq!(buffer.bytes(), stream);
    buffer
}

/// The end of the first record that ends at `wanted` or later.
pub(crate) fn cut_near(stream: &[u8], wanted: usize) -> usize {
    let mut at = 0;
    while at < wanted {
        let size = stream
            .get(at + 4..at + 8)
            .and_then(|size| size.try_into().ok());
        let size = size.map_or(0, |size| u32::from_le_bytes(size) as usize);
        if size == 0 || size > stream.len() - at {
            return at;
        }
        at += size;
    }
    at
}

fn check(facts: &Facts, nameless: usize, stream: &[u8]) {
    let smallest = size_of::<abi::record::RecordHead>();
    let records = stream.len() / smallest;
    assert!(facts.threads.len() + facts.cgroups.len() + nameless <= records);
    for cgroup in &facts.cgroups {
        assert!(cgroup.path.starts_with('/'), "{:?}", cgroup.path);
    }
    let mut ids: Vec<u64> = facts.cgroups.iter().map(|cgroup| cgroup.id.0).collect();
    ids.sort_unstable();
    assert!(ids.is_sorted_by(|a, b| a < b), "each cgroup once");
    assert!(facts.vms.iter().all(|vm| vm.vcpus > 0));
}
