//! Chrome's trace events: an older format that more viewers read. Times are µs.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde_json::{Value, json};
use virtlens_model::timeline::{Actor, Doing, Piece, Slice, Track};

use super::title::Title;

/// The processes that are none: the host's CPUs, and the VM's own tracks.
const PCPUS: u32 = u32::MAX;
const VM: u32 = u32::MAX - 1;
/// A vCPU's guest is drawn as a thread of its own, by this much above its own id:
/// more than a tid can be.
const GUEST: u64 = 1 << 32;

/// The end of a file.
pub(super) const END: &[u8] = b"\n]}\n";

/// One event.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    pid: u32,
    tid: u64,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Of an instant: how wide it is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

/// Writes Chrome's trace events.
pub(super) struct Chrome {
    title: Title,
    threads: FxHashMap<u32, (u32, String)>,
    named: FxHashSet<(u32, u64)>,
    is_empty: bool,
}

impl Chrome {
    pub(super) fn new(title: Title, out: &mut Vec<u8>) -> Self {
        let mut this = Self {
            title,
            threads: FxHashMap::default(),
            named: FxHashSet::default(),
            is_empty: true,
        };
        out.extend_from_slice(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        this.name("process_name", PCPUS, 0, "host CPUs", out);
        let vm = this.title.vm.clone();
        this.name("process_name", VM, 0, &vm, out);
        this
    }

    pub(super) fn write(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Actor(actor) => self.actor(actor, out),
            Piece::Slice(slice) => self.slice(slice, out),
            Piece::Count {
                time_ns,
                counter,
                value,
            } => {
                let (name, unit) = self.title.counter(*counter);
                let event = Event {
                    ts: Some(self.micros(*time_ns)),
                    args: Some(json!({ unit: value })),
                    ..event("C", VM, 0, &name)
                };
                self.put(&event, out);
            }
            Piece::Note { time_ns, text } => {
                let event = Event {
                    ts: Some(self.micros(*time_ns)),
                    s: Some("p"),
                    ..event("i", VM, 0, text)
                };
                self.put(&event, out);
            }
        }
    }

    fn actor(&mut self, actor: &Actor, out: &mut Vec<u8>) {
        let (process, tid) = (actor.process, u64::from(actor.tid));
        if self.named.insert((process, 0)) {
            let name = self.title.process(process);
            self.name("process_name", process, 0, &name, out);
        }
        self.name("thread_name", process, tid, &actor.title(), out);
        self.threads.insert(actor.tid, (process, actor.title()));
    }

    fn slice(&mut self, slice: &Slice, out: &mut Vec<u8>) {
        let (pid, tid) = self.place(slice.track, out);
        let name = match slice.what {
            Doing::Thread(tid) => self.threads.get(&tid).map(|(_, name)| name.clone()),
            _ => None,
        };
        let name = name.unwrap_or_else(|| slice.what.name().into_owned());
        let peer = slice.peer.map(|peer| {
            let text = format!("{} ({})", peer.name, peer.tid);
            json!({ "ran there last": text })
        });
        let event = Event {
            ts: Some(self.micros(slice.from_ns)),
            dur: Some(micros(slice.took_ns())),
            args: peer,
            ..event("X", pid, tid, &name)
        };
        self.put(&event, out);
    }

    /// The process and thread as which a track is drawn; named the first time.
    fn place(&mut self, track: Track, out: &mut Vec<u8>) -> (u32, u64) {
        let of_thread = |tid: &u32| self.threads.get(tid).cloned().unwrap_or_default();
        let (pid, tid, name) = match track {
            Track::Thread(tid) => return (of_thread(&tid).0, tid.into()),
            Track::Guest(tid) => {
                let (process, name) = of_thread(&tid);
                (process, GUEST + u64::from(tid), format!("{name} guest"))
            }
            Track::Pcpu(pcpu) => (PCPUS, u64::from(pcpu) + 1, format!("p{pcpu}")),
            Track::Quota(group) => (VM, group.0, self.title.quota(group)),
        };
        if self.named.insert((pid, tid)) {
            self.name("thread_name", pid, tid, &name, out);
        }
        (pid, tid)
    }

    fn name(&mut self, what: &'static str, pid: u32, tid: u64, name: &str, out: &mut Vec<u8>) {
        let event = Event {
            args: Some(json!({ "name": name })),
            ..event("M", pid, tid, what)
        };
        self.put(&event, out);
    }

    fn put(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let first = std::mem::take(&mut self.is_empty);
        out.extend_from_slice(if first { b"\n" } else { b",\n" });
        serde_json::to_writer(out, event).expect("plain values, and a vector grows");
    }

    /// Since the beginning: more digits than a number of this format has would be
    /// needed to count from the boot of the host.
    fn micros(&self, monotonic_ns: u64) -> f64 {
        micros(monotonic_ns.saturating_sub(self.title.began.monotonic_ns))
    }
}

fn event<'a>(ph: &'static str, pid: u32, tid: u64, name: &'a str) -> Event<'a> {
    Event {
        ph,
        pid,
        tid,
        name,
        ts: None,
        dur: None,
        s: None,
        args: None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "no trace lasts for months")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
