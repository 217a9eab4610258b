//! A snapshot as bytes: its difference to the snapshot before it, compressed.
//!
//! ```text
//! new texts, new structs │ layout: the node, each VM │ runs │ lengths │ bits
//! ```

use rustc_hash::FxHashMap;
use virtlens_model::snapshot::{Snapshot, Vm};

use crate::bits;
use crate::delta::{self, Reading, Streams};
use crate::dictionary::{Dictionary, Numbered};
use crate::flat::Flat;
use crate::flatten::{Unsupported, flatten};
use crate::rebuild::{Unknown, rebuild};
use crate::varint::{Bytes, put, put_len};

/// Level of compression: higher ones take longer, and shorten differences by a few percent.
const LEVEL: i32 = 1;

/// Most tokens and cells of all values of a snapshot: several times those of 2000 large VMs.
/// A damaged frame must not take all memory.
const MAX_VALUES: usize = 1 << 24;

/// Longest frame before compression, bytes: more than a key frame of 2000 large VMs.
pub(crate) const MAX_FRAME: usize = 64 << 20;

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
    /// Values of snapshots before, whose memory is used again.
    spare: Vec<Flat>,
    streams: Streams,
    body: Vec<u8>,
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
            spare: Vec::new(),
            streams: Streams::default(),
            body: Vec::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            known: (0, 0),
        })
    }

    /// Forgets all snapshots and texts: the next frame is complete.
    pub(crate) fn restart(&mut self) {
        self.names = Numbered::default();
        self.known = (0, 0);
        self.index.clear();
        self.before.node.clear();
        self.spare.append(&mut self.before.vms);
    }

    /// Length of all texts so far, bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.names.bytes
    }

    /// The frame of the next snapshot, appended to `out`.
    pub(crate) fn encode(&mut self, snapshot: &Snapshot, out: &mut Vec<u8>) -> Result<(), Error> {
        let now = self.flat(snapshot)?;
        self.streams.clear();
        delta::write(&self.before.node, &now.node, &mut self.streams);
        put_len(&mut self.streams.layout, now.vms.len());
        let mut index = FxHashMap::default();
        let (mut expected, none) = (0, Flat::default());
        for (at, (vm, flat)) in snapshot.vms.iter().zip(&now.vms).enumerate() {
            let identity = identity(vm);
            let before = self.index.get(&identity).copied();
            // 0: new; 1: the one behind the last one; otherwise two more than its number.
            let reference = match before {
                None => 0,
                Some(before) if before == expected => 1,
                Some(before) => before as u64 + 2,
            };
            put(&mut self.streams.layout, reference);
            expected = before.map_or(expected, |before| before + 1);
            let before = before.and_then(|before| self.before.vms.get(before));
            delta::write(before.unwrap_or(&none), flat, &mut self.streams);
            index.insert(identity, at);
        }
        self.index = index;
        self.write_body();
        self.spare.append(&mut self.before.vms);
        self.before = now;
        let len = self.body.len();
        put_len(out, len);
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(len), 0);
        let written = self
            .compressor
            .compress_to_buffer(&self.body, out.split_at_mut(start).1)?;
        out.truncate(start + written);
        Ok(())
    }

    fn flat(&mut self, snapshot: &Snapshot) -> Result<Parts, Unsupported> {
        let mut now = Parts::default();
        flatten(&snapshot.without_vms(), &mut self.names, &mut now.node)?;
        for vm in &snapshot.vms {
            let mut flat = self.spare.pop().unwrap_or_default();
            flat.clear();
            flatten(vm, &mut self.names, &mut flat)?;
            now.vms.push(flat);
        }
        Ok(now)
    }

    /// Writes new names and both streams.
    fn write_body(&mut self) {
        let body = &mut self.body;
        body.clear();
        let dictionary = &self.names.dictionary;
        let (texts, structs) = self.known;
        let texts = dictionary.texts().get(texts..).unwrap_or_default();
        let structs = dictionary.structs().get(structs..).unwrap_or_default();
        put_len(body, texts.len());
        for text in texts {
            put_len(body, text.len());
            body.extend_from_slice(text);
        }
        put_len(body, structs.len());
        for fields in structs {
            put_len(body, fields.len());
            fields.iter().for_each(|field| put(body, (*field).into()));
        }
        let Streams {
            layout,
            runs,
            cells,
        } = &mut self.streams;
        for stream in [&layout[..], &runs[..], &cells.lengths[..]] {
            put_len(body, stream.len());
            body.extend_from_slice(stream);
        }
        body.extend_from_slice(cells.finish());
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
        let body = decompressed(frame).ok_or(Unreadable::Damaged)?;
        self.apply_body(&body)
    }

    /// Applies the next frame, which is not compressed.
    ///
    /// # Errors
    ///
    /// If it is damaged. After an error the decoder is of no use.
    pub fn apply_body(&mut self, body: &[u8]) -> Result<(), Unreadable> {
        self.read(body).ok_or(Unreadable::Damaged)
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

    fn read(&mut self, body: &[u8]) -> Option<()> {
        let mut bytes = Bytes(body);
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
        let (layout, runs, lengths) = (stream()?, stream()?, stream()?);
        let mut streams = Reading {
            layout,
            runs,
            cells: bits::Reading::of(lengths, bytes.0),
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
        let is_read = streams.layout.0.is_empty() && streams.runs.0.is_empty();
        (is_read && streams.cells.is_empty()).then_some(())
    }
}

fn decompressed(frame: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Bytes(frame);
    let len = usize::try_from(bytes.number()?).ok()?;
    if len > MAX_FRAME {
        return None;
    }
    let body = zstd::bulk::decompress(bytes.0, len).ok()?;
    (body.len() == len).then_some(body)
}
