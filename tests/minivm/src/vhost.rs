//! A vhost-net device that always has packets to send while it is flooded. It simulates a
//! guest that sends continuously, without the CPU time of that guest.
//!
//! ```text
//! feeder ──available──▶ TX ring ──▶ the kernel's worker vhost-PID ──frames──▶ tap
//!        ◀────used─────
//! ```
//! The rings and the one frame are in separate memory, which only the worker knows: its
//! guest-physical address 0. Only the two indexes of the rings ever change: all entries
//! are 0, the descriptor of the frame.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::event::{EventfdFlags, eventfd};

use crate::helper::STACK_BYTES;
use crate::memory::Mapping;
use crate::tap;

/// Entries of the ring: the maximum that vhost accepts (`VHOST_SET_VRING_NUM`), tens of
/// milliseconds of work.
const ENTRIES: u16 = 1 << 15;

/// Interval between two refills of the ring, shorter than the ring lasts.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of intervals that a full ring may last: a minute.
const PAUSES: u32 = 12_000;

/// Offsets of the parts of a split ring in the mapping (virtio 1.2, 2.7), followed by the
/// frame with its header.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 16 * ENTRIES as u64;
const USED: u64 = AVAILABLE + 0x1_1000;
const FRAME: u64 = USED + 0x4_1000;
const BYTES: u64 = FRAME + 0x1000;

/// Offset of the index, after the flags, in both rings.
const INDEX: u64 = 2;

/// The transmit queue of vhost-net's two queues (`VHOST_NET_VQ_TX`).
const TX: u32 = 1;

/// `struct virtio_net_hdr` of a device without features.
const HEADER_BYTES: usize = 10;

/// The smallest frame: broadcast, from a local address, with the ethertype for
/// experiments (IEEE 802), which no protocol handles.
const FRAME_BYTES: usize = HEADER_BYTES + 60;
const FRAME_START: [u8; 14] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5,
];

/// `include/uapi/linux/vhost.h`.
const VHOST: u32 = 0xaf;

/// `struct vhost_memory` with one region.
#[repr(C)]
struct Table {
    regions: u32,
    padding: u32,
    guest_address: u64,
    bytes: u64,
    user_address: u64,
    flags: u64,
}

/// `struct vhost_vring_state`.
#[repr(C)]
struct RingState {
    queue: u32,
    value: u32,
}

/// `struct vhost_vring_file`.
#[repr(C)]
struct RingFile {
    queue: u32,
    fd: RawFd,
}

/// `struct vhost_vring_addr`.
#[repr(C)]
struct RingAddress {
    queue: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

/// A device, idle or flooded; its worker exists until the process ends.
pub(crate) struct Vhost {
    _device: File,
    _tap: File,
    kick: File,
    available: &'static AtomicU16,
    used: &'static AtomicU16,
    flood: Option<Flood>,
}

/// The thread that fills the ring; it ends when its sender is dropped.
struct Flood {
    end: Sender<()>,
    feeder: JoinHandle<()>,
}

impl Vhost {
    /// Creates an idle device whose other end is a new tap with this name. The worker is
    /// named after the calling thread.
    pub(crate) fn start(tap: &str) -> anyhow::Result<Self> {
        let tap = tap::create(tap)?;
        let memory = Mapping::new(BYTES, false)?;
        // Descriptor 0: address, length, no flags, no next.
        memory.write(DESCRIPTORS, &FRAME.to_ne_bytes())?;
        memory.write(DESCRIPTORS + 8, &u32::try_from(FRAME_BYTES)?.to_ne_bytes())?;
        memory.write(FRAME + HEADER_BYTES as u64, &FRAME_START)?;
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/vhost-net")
            .context("cannot open /dev/vhost-net: load the module vhost_net, and run as root")?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = File::from(eventfd(0, flags).context("cannot create an eventfd")?);
        let vhost = Self {
            available: memory.word(AVAILABLE + INDEX)?,
            used: memory.word(USED + INDEX)?,
            _device: device.try_clone()?,
            _tap: tap.try_clone()?,
            kick,
            flood: None,
        };
        set_up(&device, &memory, &vhost.kick, &tap)?;
        Ok(vhost)
    }

    /// Starts sending more frames than the worker can process.
    pub(crate) fn flood(&mut self) -> anyhow::Result<()> {
        ensure!(
            self.flood.is_none(),
            "flooding is already on: use `flood off` first"
        );
        let (end, ended) = channel();
        let (available, used) = (self.available, self.used);
        let mut kick = self.kick.try_clone()?;
        let feeder = Builder::new()
            .name("feeder".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    // Up to one frame per entry may be in flight: vhost treats one more
                    // as an error (`vhost_get_vq_desc`).
                    let all = used.load(Ordering::Acquire).wrapping_add(ENTRIES);
                    available.store(all, Ordering::Release);
                    // A pending event has the same effect as two.
                    let _ = kick.write(&1u64.to_ne_bytes());
                }
            })
            .context("cannot start the feeder: raise the limit of processes (ulimit -u)")?;
        self.flood = Some(Flood { end, feeder });
        Ok(())
    }

    /// Ends the flood; returns once all frames are sent.
    pub(crate) fn calm(&mut self) -> anyhow::Result<()> {
        let flood = self.flood.take().context("flooding is not on")?;
        drop(flood.end);
        flood.feeder.join().ok().context("the feeder panicked")?;
        for _ in 0..PAUSES {
            if self.used.load(Ordering::Acquire) == self.available.load(Ordering::Acquire) {
                return Ok(());
            }
            sleep(PAUSE);
        }
        bail!("the vhost worker makes no progress: see the kernel's log")
    }
}

/// Gives the device its worker, memory, ring and tap; from then on it processes available
/// frames.
fn set_up(device: &File, memory: &Mapping, kick: &File, tap: &File) -> anyhow::Result<()> {
    let at = |offset: u64| memory.address() + offset;
    let state = |value| RingState { queue: TX, value };
    let file = |file: &File| RingFile {
        queue: TX,
        fd: file.as_raw_fd(),
    };
    let table = Table {
        regions: 1,
        padding: 0,
        guest_address: 0,
        bytes: memory.bytes(),
        user_address: memory.address(),
        flags: 0,
    };
    let address = RingAddress {
        queue: TX,
        flags: 0,
        descriptors: at(DESCRIPTORS),
        used: at(USED),
        available: at(AVAILABLE),
        log: 0,
    };
    set(device, libc::_IO(VHOST, 0x01), "SET_OWNER", &())?;
    set(
        device,
        libc::_IOW::<u64>(VHOST, 0x00),
        "SET_FEATURES",
        &0u64,
    )?;
    // The ioctl's number contains the size of the table's head, 8 bytes.
    set(
        device,
        libc::_IOW::<u64>(VHOST, 0x03),
        "SET_MEM_TABLE",
        &table,
    )?;
    let number = libc::_IOW::<RingState>(VHOST, 0x10);
    set(device, number, "SET_VRING_NUM", &state(ENTRIES.into()))?;
    let base = libc::_IOW::<RingState>(VHOST, 0x12);
    set(device, base, "SET_VRING_BASE", &state(0))?;
    let addresses = libc::_IOW::<RingAddress>(VHOST, 0x11);
    set(device, addresses, "SET_VRING_ADDR", &address)?;
    let kicks = libc::_IOW::<RingFile>(VHOST, 0x20);
    set(device, kicks, "SET_VRING_KICK", &file(kick))?;
    let backend = libc::_IOW::<RingFile>(VHOST, 0x30);
    set(device, backend, "NET_SET_BACKEND", &file(tap))
}

fn set<T>(device: &File, request: libc::Ioctl, name: &str, value: &T) -> anyhow::Result<()> {
    // SAFETY: each request reads its own structure, which `value` is. The memory and
    // files that it names stay mapped and open as long as the device exists.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const *value) };
    ensure!(
        failed == 0,
        "VHOST_{name}: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
