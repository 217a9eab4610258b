//! The oracle: every madvise and fallocate of one process.

use std::fs;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use virtlens_model::vocab::DiscardSum;

const NR_MADVISE: u32 = 28;
const NR_FALLOCATE: u32 = 285;
const DONTNEED: u32 = 4;
const WILLNEED: u32 = 3;
/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
const PUNCH: u32 = 3;

/// Counts all calls of a process from now on.
#[derive(Debug)]
pub struct Calls {
    object: Object,
    _link: Link,
}

/// Equal calls.
#[derive(Debug)]
struct Call {
    number: u32,
    what: u32,
    bytes: u64,
    in_ram: bool,
    count: u64,
}

impl Calls {
    /// Attaches without a process to watch.
    pub fn attach() -> Self {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));
        let open = ObjectBuilder::default()
            .open_memory(bytes)
            .expect("it is an object");
        let object = open.load().expect("the kernel takes the oracle");
        let link = object
            .progs_mut()
            .next()
            .expect("there is one program")
            .attach()
            .expect("it can be attached");
        Self {
            object,
            _link: link,
        }
    }

    /// Watches a process whose RAM is the mapping of `ram_bytes`.
    pub fn watch(&self, pid: u32, ram_bytes: u64) {
        let calls = self.map("calls");
        for key in calls.keys().collect::<Vec<_>>() {
            calls.delete(&key).expect("it is there");
        }
        let (start, end) = mapping(pid, ram_bytes);
        let target = [start, end, u64::from(pid)].map(u64::to_ne_bytes).concat();
        self.map("targets")
            .update(&0u32.to_ne_bytes(), &target, MapFlags::ANY)
            .expect("it has one entry");
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.expect("it has the map")
    }

    fn all(&self) -> Vec<Call> {
        let map = self.map("calls");
        let calls = map.keys().filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            let word = |at: usize| {
                u32::from_ne_bytes(key[at..at + 4].try_into().expect("4 bytes of the key"))
            };
            let long = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            Some(Call {
                number: word(0),
                what: word(4),
                bytes: long(&key[8..16]),
                in_ram: word(16) != 0,
                count: long(&value),
            })
        });
        calls.collect()
    }

    fn sum(&self, of: impl Fn(&Call) -> bool) -> (u64, u64) {
        let calls = self.all();
        let found = calls.iter().filter(|call| of(call));
        found.fold((0, 0), |(events, bytes), call| {
            (events + call.count, bytes + call.count * call.bytes)
        })
    }

    /// Number and bytes of calls that free RAM, for the lengths that `bytes` accepts:
    /// madvise for anonymous RAM, hole punches for RAM in a file.
    pub fn freed(&self, file: bool, bytes: impl Fn(u64) -> bool) -> (u64, u64) {
        self.sum(|call| {
            let frees = if file {
                call.number == NR_FALLOCATE && call.what == PUNCH
            } else {
                call.number == NR_MADVISE && call.what == DONTNEED && call.in_ram
            };
            frees && bytes(call.bytes)
        })
    }

    /// Number and bytes of calls that give RAM back to the guest.
    pub fn wanted(&self) -> (u64, u64) {
        self.sum(|call| call.number == NR_MADVISE && call.what == WILLNEED && call.in_ram)
    }

    /// Number of madvise calls outside of RAM.
    pub fn elsewhere(&self) -> u64 {
        let (events, _) = self.sum(|call| call.number == NR_MADVISE && !call.in_ram);
        events
    }
}

/// Number and bytes of the agent's sum.
pub fn pair(sum: DiscardSum) -> (u64, u64) {
    (sum.events, sum.bytes)
}

/// The readable and writable mapping of about this size. The kernel may have merged an
/// adjacent mapping into it.
fn mapping(pid: u32, bytes: u64) -> (u64, u64) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let ranges = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        rest.starts_with("rw").then_some((hex(start)?, hex(end)?))
    });
    ranges
        .filter(|(start, end)| end - start >= bytes)
        .min_by_key(|(start, end)| end - start)
        .unwrap_or_else(|| panic!("no mapping of {bytes} bytes:\n{maps}"))
}
