//! Command line options: settings from before the VM starts.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Parser;

use crate::cpuid::{Topology, Vendor};

/// A minimal KVM VMM for tests, with configurable threads, topology and load.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_long_help = COMMANDS)]
pub(crate) struct Args {
    /// Number of vCPUs at start [default: all of the topology, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) vcpus: Option<u32>,

    /// Initial mode of every vCPU: halt, spin, exit, pause, duty:PERCENT, tick:MS
    ///
    /// A halted vCPU blocks in the kernel, inside the `KVM_RUN` call. A paused vCPU
    /// waits in user space before its first `KVM_RUN` call. `exit` spins too, but every
    /// second instruction (CPUID) causes an exit that the kernel handles.
    #[arg(long, value_name = "MODE", default_value = "halt")]
    pub(crate) start: Mode,

    /// CPUID topology of the guest: `sockets=S,dies=D,cores=C,threads=T` or none
    ///
    /// Missing keys default to 1. vCPU ids are then the APIC ids, with gaps because each
    /// level's width is rounded up to a power of two. `none` sets no CPUID.
    #[arg(long, value_name = "SHAPE", default_value = "none", value_parser = parse_shape)]
    pub(crate) topology: Shape,

    /// CPU vendor whose CPUID leaves describe the topology
    #[arg(long, value_enum, default_value_t = Vendor::Intel)]
    pub(crate) vendor: Vendor,

    /// vCPU ids without a topology: the first id, and the distance between ids
    #[arg(long, value_name = "BASE[:STRIDE]", default_value = "0:1")]
    pub(crate) vcpu_ids: VcpuIds,

    /// Name of vCPU threads; {} is replaced by the index; `same` keeps the process's name
    #[arg(long, value_name = "NAME", default_value = "CPU {}/KVM")]
    pub(crate) vcpu_name: String,

    /// Name of the process (its main thread) [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,

    /// Additional idle helper threads; repeatable; {} as above
    #[arg(long = "thread", value_name = "NAME=COUNT")]
    pub(crate) threads: Vec<Helpers>,

    /// Create the kernel's timer chip (PIT), with 5000 interrupts per second
    #[arg(long)]
    pub(crate) pit: bool,

    /// Size of guest memory, with suffix K, M or G
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = parse_bytes)]
    pub(crate) mem: u64,

    /// Back guest memory with a shared memfd (as for vhost-user) instead of anonymous memory
    #[arg(long)]
    pub(crate) memfd: bool,

    /// Size of further guest memory in a `guest_memfd`, with suffix K, M or G [default: none]
    ///
    /// Only the guest can use it, as with a confidential VM. No page is allocated before the
    /// command `guest-memfd allocate`.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) guest_memfd: Option<u64>,

    /// Maximum halt polling time of a vCPU, µs [default: the host's]
    #[arg(long, value_name = "US")]
    pub(crate) halt_poll_us: Option<u32>,

    /// Create a vhost-net device with a new tap interface of this name
    #[arg(long, value_name = "TAP")]
    pub(crate) vhost_net: Option<String>,

    /// Ignored; present as in the command line of a VMM
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Ignored; present as in the command line of a VMM
    #[arg(long, value_name = "N")]
    pub(crate) smp: Option<u32>,

    /// Ignored; present as in the command line of a VMM
    #[arg(long, value_name = "SOCKET")]
    pub(crate) qmp: Option<String>,

    /// Continue after the end of stdin and of the parent process, until SIGTERM
    #[arg(long)]
    pub(crate) detach_stdin: bool,

    /// Exit after this time; the end of stdin is ignored
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) for_seconds: Option<u32>,
}

const COMMANDS: &str = "\
Commands, one per line on stdin; each is answered by one JSON object on stdout,
{\"ok\":true,…} or {\"ok\":false,\"error\":…}. LIST is `all` or indexes such as 0,2-3.
  spin LIST | exit LIST | halt LIST | pause LIST
                                       set the mode of vCPUs; answered when it is in effect
  duty PERCENT LIST                    spin for this share of every 10 ms, halt for the rest
  burn vcpu LIST MS                    spin until the thread's CPU clock advanced by MS,
                                       then halt; reply: exact ns of each, when idle
  burn thread LIST MS                  the same in helper threads, in user space
  burn user INDEX MS                   the same for a vCPU in user space, which is then paused
  rename thread INDEX NAME             rename a helper thread
  rename process NAME                  rename the main thread
  plug [MODE]                          add a vCPU, or restart an unplugged one in a new thread
  unplug INDEX                         end a vCPU's thread; its kvm file stays, as in QEMU
  release                              end all vCPUs and close their files; the process stays
  spawn COUNT MS NAME                  start threads that burn MS each and exit; reply: the sum
  touch OFFSET LEN                     write each page of a range of guest memory
  madvise ADVICE OFFSET LEN COUNT      COUNT calls on ranges in a row; ADVICE: dontneed,
                                       willneed, free, remove
  punch OFFSET LEN COUNT               fallocate(PUNCH_HOLE) in the memfd, likewise
  log SLOT on | log SLOT off           KVM's log of the pages that the guest writes; SLOT: ram,
                                       firmware
  guest-memfd allocate OFFSET LEN      allocate pages of the guest_memfd
  guest-memfd punch OFFSET LEN         free them
  trim LEN COUNT                       COUNT times madvise dontneed on memory outside the guest's
  fork MS                              fork a child that keeps all files open for MS
  share MS                             start a child that shares the address space for MS
  exec                                 execute this program again in the same process;
                                       prints the ready line again
  flood on | flood off                 keep the vhost-net device's ring full of frames to
                                       send; off is answered when all are sent
  status                               all threads, modes, CPU clocks
  stats                                KVM's statistics (since Linux 5.14)
  quit                                 exit, as at the end of stdin and on SIGTERM
The first line {\"ready\":true,\"pid\":…,\"vcpus\":[…],\"threads\":[…]} is printed when every
thread is in its initial mode.

Exit status: 0 after quit, end of stdin, SIGTERM, --for; 1 failure; 2 usage error.";

/// Activity of a vCPU until the next order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Busy in the guest.
    Spin,
    /// Busy in the guest, with continuous exits.
    Exit,
    /// Halted in the guest: blocked in the kernel, inside `KVM_RUN`.
    Halt,
    /// Waiting in user space, outside `KVM_RUN`.
    Pause,
    /// Spin this percentage of every period, halt the rest.
    Duty(u8),
    /// Halted, and woken every so many milliseconds, as an idle guest is by its timers.
    Tick(u16),
}

impl FromStr for Mode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "spin" => Self::Spin,
            "exit" => Self::Exit,
            "halt" => Self::Halt,
            "pause" => Self::Pause,
            _ => match text.split_once(':') {
                Some(("duty", percent)) => Self::duty(percent)?,
                Some(("tick", ms)) => Self::tick(ms)?,
                _ => bail!(
                    "unknown mode {text:?}: use halt, spin, exit, pause, duty:PERCENT or tick:MS"
                ),
            },
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spin => f.write_str("spin"),
            Self::Exit => f.write_str("exit"),
            Self::Halt => f.write_str("halt"),
            Self::Pause => f.write_str("pause"),
            Self::Duty(percent) => write!(f, "duty:{percent}"),
            Self::Tick(ms) => write!(f, "tick:{ms}"),
        }
    }
}

impl Mode {
    /// Parses the percentage of a duty mode.
    pub(crate) fn duty(percent: &str) -> anyhow::Result<Self> {
        match percent.parse() {
            Ok(share @ 1..=99) => Ok(Self::Duty(share)),
            _ => bail!("duty {percent:?}: use 1 to 99 percent"),
        }
    }

    fn tick(ms: &str) -> anyhow::Result<Self> {
        match ms.parse() {
            Ok(ms @ 1..) => Ok(Self::Tick(ms)),
            _ => bail!("tick {ms:?}: use 1 to {} milliseconds", u16::MAX),
        }
    }
}

/// `--topology`: the shape, or no CPUID at all. A type alias, because clap reads an
/// `Option` as "the flag may be missing".
pub(crate) type Shape = Option<Topology>;

fn parse_shape(text: &str) -> anyhow::Result<Shape> {
    if text == "none" {
        Ok(None)
    } else {
        text.parse().map(Some)
    }
}

/// `--vcpu-ids`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VcpuIds {
    /// Id of the vCPU of index 0.
    pub(crate) base: u32,
    /// Distance between the ids of two consecutive vCPUs.
    pub(crate) stride: u32,
}

impl FromStr for VcpuIds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (base, stride) = text.split_once(':').unwrap_or((text, "1"));
        let ids = Self {
            base: parse_number(base)?,
            stride: parse_number(stride)?,
        };
        if ids.stride == 0 {
            bail!("a stride of 0 gives every vCPU the same id: use 1 or more");
        }
        Ok(ids)
    }
}

/// `--thread`: a group of idle helper threads.
#[derive(Clone, Debug)]
pub(crate) struct Helpers {
    /// Name of the threads, with {} for the index in the group.
    pub(crate) name: String,
    /// Number of threads.
    pub(crate) count: u32,
}

impl FromStr for Helpers {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, count) = text.rsplit_once('=').context("use NAME=COUNT")?;
        Ok(Self {
            name: name.to_owned(),
            count: parse_number(count)?,
        })
    }
}

/// Parses a plain number.
pub(crate) fn parse_number(text: &str) -> anyhow::Result<u32> {
    text.parse()
        .with_context(|| format!("{text:?} is not a number"))
}

/// Parses bytes, with an optional K, M or G (powers of 1024).
pub(crate) fn parse_bytes(text: &str) -> anyhow::Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    u64::from(parse_number(digits)?)
        .checked_shl(shift)
        .filter(|bytes| *bytes <= u64::MAX >> 1)
        .with_context(|| format!("{text:?} is too large"))
}
