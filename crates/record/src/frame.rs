//! A snapshot as bytes: its difference to the snapshot before it.
//!
//! ```text
//! head, compressed: new texts, new structs │ layout: the node, each VM │ runs │ codes
//! bits
//! ```

use std::mem;

use rustc_hash::FxHashMap;
use virtlens_model::snapshot::{Snapshot, Vm};

use crate::bits;
use crate::delta::{Reading, Streams};
use crate::dictionary::{Dictionary, Numbered};
use crate::flat::Flat;
use crate::flatten::{Unsupported, flatten};
use crate::rebuild::{Unknown, rebuild};
use crate::update::Update;
use crate::varint::{Bytes, put, put_len};

/// Level of compression: higher ones take longer, and shorten differences by a few percent.
const LEVEL: i32 = 1;

/// Most tokens and cells of all values of a snapshot: several times those of 2000 large VMs.
/// A damaged frame must not take all memory.
const MAX_VALUES: usize = 1 << 24;

/// Longest head before compression, bytes: more than that of the complete frame of 2000 large
/// VMs.
const MAX_HEAD: usize = 64 << 20;

/// A snapshot without its VMs, and its VMs.
#[derive(Debug, Default)]
struct Parts {
    node: Flat,
    vms: Vec<Flat>,
}

/// The identity of a VM between two snapshots. Another VM with the same identity costs
/// bytes, not correctness.
type Identity = (u32, u64);

/// Makes frames of snapshots. The first one is complete, each other one a difference.
pub(crate) struct Encoder {
    names: Numbered,
    before: Parts,
    index: FxHashMap<Identity, usize>,
    streams: Streams,
    head: Vec<u8>,
    packed: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    known: (usize, usize),
}

impl Encoder {
    /// An encoder without a snapshot.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            names: Numbered::default(),
            before: Parts::default(),
            index: FxHashMap::default(),
            streams: Streams::default(),
            head: Vec::new(),
            packed: Vec::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            known: (0, 0),
        })
    }

    /// Forgets all snapshots and texts: the next frame is complete.
    pub(crate) fn restart(&mut self) {
        self.names = Numbered::default();
        self.known = (0, 0);
        self.index.clear();
        self.before = Parts::default();
    }

    /// Length of all texts so far, bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.names.bytes
    }

    /// The frame of the next snapshot, appended to `out`. After an error the encoder has to
    /// restart.
    pub(crate) fn encode(&mut self, snapshot: &Snapshot, out: &mut Vec<u8>) -> Result<(), Error> {
        self.streams.clear();
        let node = Update::of(&mut self.before.node, &mut self.streams);
        flatten(&snapshot.without_vms(), &mut self.names, node)?;
        put_len(&mut self.streams.layout, snapshot.vms.len());
        let mut index = FxHashMap::default();
        let mut vms = Vec::with_capacity(snapshot.vms.len());
        let mut expected = 0;
        for (at, vm) in snapshot.vms.iter().enumerate() {
            let identity = identity(vm);
            let before = self.index.remove(&identity);
            // 0: new; 1: the one behind the last one; otherwise two more than its number.
            let reference = match before {
                None => 0,
                Some(before) if before == expected => 1,
                Some(before) => before as u64 + 2,
            };
            put(&mut self.streams.layout, reference);
            expected = before.map_or(expected, |before| before + 1);
            let before = before.and_then(|before| self.before.vms.get_mut(before));
            let mut flat = before.map(mem::take).unwrap_or_default();
            let update = Update::of(&mut flat, &mut self.streams);
            flatten(vm, &mut self.names, update)?;
            vms.push(flat);
            index.insert(identity, at);
        }
        self.index = index;
        self.before.vms = vms;
        self.write_head();
        let bound = zstd::zstd_safe::compress_bound(self.head.len());
        self.packed.resize(bound, 0);
        let packed = self
            .compressor
            .compress_to_buffer(&self.head, &mut self.packed[..])?;
        put_len(out, self.head.len());
        put_len(out, packed);
        out.extend(self.packed.iter().take(packed));
        out.extend_from_slice(self.streams.cells.finish());
        Ok(())
    }

    /// Writes new names and the streams that compress.
    fn write_head(&mut self) {
        let head = &mut self.head;
        head.clear();
        let dictionary = &self.names.dictionary;
        let (texts, structs) = self.known;
        let texts = dictionary.texts().get(texts..).unwrap_or_default();
        let structs = dictionary.structs().get(structs..).unwrap_or_default();
        put_len(head, texts.len());
        for text in texts {
            put_len(head, text.len());
            head.extend_from_slice(text);
        }
        put_len(head, structs.len());
        for fields in structs {
            put_len(head, fields.len());
            fields.iter().for_each(|field| put(head, (*field).into()));
        }
        let Streams {
            layout,
            runs,
            codes,
            cells: _,
        } = &self.streams;
        for stream in [layout, runs, codes] {
            put_len(head, stream.len());
            head.extend_from_slice(stream);
        }
        self.known = (dictionary.texts().len(), dictionary.structs().len());
    }
}

fn identity(vm: &Vm) -> Identity {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = rustc_hash::FxHasher::default();
    vm.vm.hash(&mut hasher);
    (vm.pid, hasher.finish())
}

/// A frame cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value has a type that recordings do not have.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The compressor failed.
    #[error("cannot compress: {0}")]
    Compress(#[from] std::io::Error),
}

/// A frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is damaged.
    #[error("the frame is damaged")]
    Damaged,
    /// Another version wrote it.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

/// Makes snapshots of frames, in the order in which they were written.
#[derive(Debug, Default)]
pub struct Decoder {
    names: Dictionary,
    before: Parts,
}

impl Decoder {
    /// Applies the next frame. After an error the decoder is of no use.
    pub(crate) fn apply(&mut self, frame: &[u8]) -> Result<(), Unreadable> {
        let (head, bits) = unpacked(frame).ok_or(Unreadable::Damaged)?;
        self.apply_unpacked(&head, bits)
    }

    /// Applies the next frame: its head, which is not compressed, and its bits.
    ///
    /// # Errors
    ///
    /// If it is damaged. After an error the decoder is of no use.
    pub fn apply_unpacked(&mut self, head: &[u8], bits: &[u8]) -> Result<(), Unreadable> {
        self.read(head, bits).ok_or(Unreadable::Damaged)
    }

    /// The snapshot of the frame that was applied last.
    ///
    /// # Errors
    ///
    /// If another version wrote it.
    pub fn snapshot(&self) -> Result<Snapshot, Unreadable> {
        let mut snapshot: Snapshot = rebuild(&self.before.node, &self.names)?;
        for vm in &self.before.vms {
            snapshot.vms.push(rebuild(vm, &self.names)?);
        }
        Ok(snapshot)
    }

    fn read(&mut self, head: &[u8], bits: &[u8]) -> Option<()> {
        let mut bytes = Bytes(head);
        for _ in 0..bytes.count()? {
            let len = bytes.count()?;
            self.names.add_text(bytes.take(len)?);
        }
        for _ in 0..bytes.count()? {
            let fields = (0..bytes.count()?).map(|_| u32::try_from(bytes.number()?).ok());
            let fields: Vec<u32> = fields.collect::<Option<_>>()?;
            self.names.add_struct(&fields);
        }
        let mut stream = || {
            let len = bytes.count()?;
            bytes.take(len).map(Bytes)
        };
        let (layout, runs, codes) = (stream()?, stream()?, stream()?);
        let mut streams = Reading {
            layout,
            runs,
            codes,
            cells: bits::Reading::of(bits),
        };
        let node = streams.next(&self.before.node)?;
        let mut values = node.tokens.len() + node.cells.len();
        let count = streams.layout.count()?;
        let (mut vms, mut expected, none) = (Vec::with_capacity(count), 0, Flat::default());
        for _ in 0..count {
            let before = match usize::try_from(streams.layout.number()?).ok()? {
                0 => &none,
                reference => {
                    let at = if reference == 1 {
                        expected
                    } else {
                        reference - 2
                    };
                    expected = at + 1;
                    self.before.vms.get(at)?
                }
            };
            let vm = streams.next(before)?;
            values += vm.tokens.len() + vm.cells.len();
            if values > MAX_VALUES {
                return None;
            }
            vms.push(vm);
        }
        self.before = Parts { node, vms };
        let rest = [bytes, streams.layout, streams.runs, streams.codes];
        let is_read = rest.iter().all(|left| left.0.is_empty());
        is_read.then_some(())
    }
}

/// The head, and the bits.
fn unpacked(frame: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut bytes = Bytes(frame);
    let len = usize::try_from(bytes.number()?).ok()?;
    if len > MAX_HEAD {
        return None;
    }
    let packed = bytes.count()?;
    let head = zstd::bulk::decompress(bytes.take(packed)?, len).ok()?;
    (head.len() == len).then_some((head, bytes.0))
}
