//! Calls of bpf(2) that are needed after an object is loaded: the same for every loader,
//! and without an allocation for each element of a map.
//!
//! Each call uses a separate part of `union bpf_attr` (`include/uapi/linux/bpf.h`); the
//! kernel treats missing bytes at the end of the union as zeroes.

pub(crate) mod map;
pub(crate) mod mapping;
pub(crate) mod ring;
pub(crate) mod stream;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};
use zerocopy::{FromBytes, IntoBytes};

/// `enum bpf_cmd`.
#[derive(Clone, Copy)]
enum Command {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgLoad = 5,
    ObjPin = 6,
    ObjGet = 7,
    ProgRun = 10,
    ObjInfo = 15,
    RawTracepointOpen = 17,
    MapLookupBatch = 24,
    LinkCreate = 28,
    IterCreate = 33,
}

/// The time since boot, ns, by the clock of a task's start time.
pub(crate) fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// `BPF_PROG_TYPE_TRACING`, `enum bpf_prog_type`.
const TRACING: u32 = 26;
/// `enum bpf_attach_type`.
const TRACE_FENTRY: u32 = 24;
const TRACE_ITER: u32 = 28;

/// Statistics of a program (`struct bpf_prog_info` up to its last field of v5.12).
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProgramRuns {
    before: [u64; 24],
    /// Run time, ns: counted only while `kernel.bpf_stats_enabled` is 1.
    pub(crate) run_ns: u64,
    /// Number of runs, likewise.
    pub(crate) runs: u64,
    /// Number of missed runs, because the CPU was already running the program:
    /// 9ed9e9ba2337 ("bpf: Count the number of times recursion was prevented", v5.12).
    pub(crate) misses: u64,
}

#[repr(C)]
struct Pin {
    path: u64,
    fd: u32,
    flags: u32,
}

#[repr(C)]
struct InfoByFd {
    fd: u32,
    len: u32,
    buffer: u64,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    pad: u32,
}

/// `union bpf_iter_link_info` of a task iterator (since v6.1). Older kernels have a smaller
/// union, and refuse bytes beyond it that are not 0.
#[repr(C)]
struct IterTask {
    tid: u32,
    tgid: u32,
    pidfd: u32,
}

/// Without the last fields, which are for other program types.
#[repr(C)]
#[derive(Default)]
struct ProgRun {
    program: u32,
    result: u32,
    data_sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_size: u32,
    context_size_out: u32,
    context: u64,
}

#[repr(C)]
struct IterCreate {
    link: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    version_and_flags: [u32; 2],
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    types: u32,
    func_record: u32,
    funcs: u64,
    func_count: u32,
    line_record: u32,
    lines: u64,
    line_count: u32,
    attach_type_id: u32,
}

fn bpf<A>(command: Command, attributes: &mut A) -> io::Result<i32> {
    // SAFETY: the kernel gets the size of `attributes` and accesses only `attributes` and
    // the addresses in it, which the callers took from references that they hold.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attributes),
            size_of::<A>(),
        )
    };
    i32::try_from(result)
        .ok()
        .filter(|result| *result >= 0)
        .ok_or_else(io::Error::last_os_error)
}

/// Whether the kernel, and not a seccomp filter, answers bpf(2) for a process that may use it:
/// an unknown command without attributes fails with EINVAL there (`__sys_bpf`,
/// kernel/bpf/syscall.c).
pub(crate) fn kernel_answers_bpf() -> bool {
    // Commands have small numbers; the upper half of the word may become flags.
    let unknown = libc::c_long::from(u16::MAX);
    // SAFETY: the kernel reads no attributes, because their size is 0.
    let result = unsafe { libc::syscall(libc::SYS_bpf, unknown, 0, 0, 0, 0) };
    result >= 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Like [`bpf`], for commands that return a descriptor.
fn open<A>(command: Command, attributes: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: this descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<()>().expose_provenance() as u64
}

/// Reads the information about an object, as much as fits in `info`.
fn info<I>(fd: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    let mut attributes = InfoByFd {
        fd: number(fd),
        len: u32::try_from(size_of::<I>()).unwrap_or(0),
        buffer: address(std::ptr::from_mut(info)),
    };
    bpf(Command::ObjInfo, &mut attributes).map(drop)
}

/// Returns the number of a program's runs, its run time, and its missed runs.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn program_runs(program: BorrowedFd<'_>) -> io::Result<ProgramRuns> {
    let mut runs = ProgramRuns::default();
    info(program, &mut runs)?;
    Ok(runs)
}

/// Tests whether the kernel accepts a program at the entry of the function with this BTF
/// id, by loading a program that does nothing. It is not attached.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn takes_fentry(function_id: u32) -> io::Result<()> {
    // r0 = 0; exit (include/uapi/linux/bpf.h)
    let instructions = [0x0000_00b7_u64, 0x0000_0095];
    let mut attributes = ProgLoad {
        kind: TRACING,
        instruction_count: 2,
        instructions: address(&raw const instructions),
        license: address(c"GPL".as_ptr()),
        attach_type: TRACE_FENTRY,
        attach_type_id: function_id,
        ..ProgLoad::default()
    };
    open(Command::ProgLoad, &mut attributes).map(drop)
}

/// The attach point of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// As given by its type information: `tp_btf`, `fentry`, `fexit`.
    Typed,
    /// The tracepoint of this name, with words as arguments: `raw_tp`.
    Raw(CString),
    /// None: the program runs when its iterator is opened and read: `iter`.
    Iterator,
}

/// Attaches a program. It stays attached as long as the returned link or a pin of it
/// exists.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn attach(program: BorrowedFd<'_>, point: &AttachPoint) -> io::Result<OwnedFd> {
    let name: Option<&CStr> = match point {
        AttachPoint::Iterator => {
            let mut attributes = LinkCreate {
                program: number(program),
                kind: TRACE_ITER,
                ..LinkCreate::default()
            };
            return open(Command::LinkCreate, &mut attributes);
        }
        AttachPoint::Typed => None,
        AttachPoint::Raw(name) => Some(name),
    };
    let mut attributes = RawTracepoint {
        name: name.map_or(0, |name| address(name.as_ptr())),
        program: number(program),
        pad: 0,
    };
    open(Command::RawTracepointOpen, &mut attributes)
}

/// Attaches an iterator program to one process, so that it runs for its files or threads only.
///
/// # Errors
/// The error of the kernel: `E2BIG` or `EINVAL` before v6.1.
pub(crate) fn attach_to_process(program: BorrowedFd<'_>, tgid: u32) -> io::Result<OwnedFd> {
    let process = IterTask {
        tid: 0,
        tgid,
        pidfd: 0,
    };
    let mut attributes = LinkCreate {
        program: number(program),
        kind: TRACE_ITER,
        iter_info: address(&raw const process),
        iter_info_len: u32::try_from(size_of::<IterTask>()).unwrap_or(0),
        ..LinkCreate::default()
    };
    open(Command::LinkCreate, &mut attributes)
}

/// Starts a run of an attached iterator: reads return the output of the program.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn iterate(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = IterCreate {
        link: number(link),
        flags: 0,
    };
    open(Command::IterCreate, &mut attributes)
}

/// Runs a `syscall` program (since v5.14: 79a7f8bdb159), which reads and writes
/// `context`.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn run<C: IntoBytes + FromBytes>(
    program: BorrowedFd<'_>,
    context: &mut C,
) -> io::Result<()> {
    let mut attributes = ProgRun {
        program: number(program),
        context_size: u32::try_from(size_of::<C>()).unwrap_or(0),
        context: address(std::ptr::from_mut(context)),
        ..ProgRun::default()
    };
    bpf(Command::ProgRun, &mut attributes).map(drop)
}

/// Pins a map, program or link.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn pin(fd: BorrowedFd<'_>, place: &Path) -> io::Result<()> {
    let path = CString::new(place.as_os_str().as_bytes())?;
    let mut attributes = Pin {
        path: address(path.as_ptr()),
        fd: number(fd),
        flags: 0,
    };
    bpf(Command::ObjPin, &mut attributes).map(drop)
}

/// Opens a pinned object.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn pinned(place: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(place.as_os_str().as_bytes())?;
    let mut attributes = Pin {
        path: address(path.as_ptr()),
        fd: 0,
        flags: 0,
    };
    open(Command::ObjGet, &mut attributes)
}

/// Number of possible CPUs: a per-CPU map has a value for each of them.
///
/// # Errors
/// The list of CPUs cannot be read.
pub(crate) fn possible_cpus() -> io::Result<usize> {
    Ok(cpus()?.0)
}

/// One more than the highest possible CPU number: some hosts skip numbers.
///
/// # Errors
/// The list of CPUs cannot be read.
pub(crate) fn cpu_numbers() -> io::Result<usize> {
    Ok(cpus()?.1)
}

/// Number of possible CPUs, and one more than the highest number.
fn cpus() -> io::Result<(usize, usize)> {
    static KNOWN: OnceLock<(usize, usize)> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    // Always of the running kernel, also if another root for /sys is configured.
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let cpus = count_cpus(&text).ok_or(io::ErrorKind::InvalidData)?;
    Ok(*KNOWN.get_or_init(|| cpus))
}

/// Number of online CPUs.
///
/// # Errors
/// The list of CPUs cannot be read.
pub(crate) fn online_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let counted = count_cpus(&text).map(|(count, _)| count);
    counted.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns freed pages to the kernel: the allocator keeps those below any live
/// allocation.
#[cfg(feature = "aya")]
pub(crate) fn give_back_heap() {
    // SAFETY: it does not affect memory in use (malloc_trim(3); since glibc 2.8 also in
    // the middle of a heap).
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Number of CPUs in a list such as `0-3,8`, and one more than the highest number.
fn count_cpus(list: &str) -> Option<(usize, usize)> {
    let mut ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((last.checked_sub(first)?.checked_add(1)?, last + 1))
    });
    ranges.try_fold((0usize, 0), |(count, end), range| {
        let (more, its_end) = range?;
        Some((count.checked_add(more)?, its_end.max(end)))
    })
}

#[cfg(test)]
mod tests {
    use super::count_cpus;

    #[test]
    fn cpus_are_counted() {
        for (list, counted) in [
            ("0\n", (1, 1)),
            ("0-3", (4, 4)),
            ("0-1,4,6-7\n", (5, 8)),
            ("0,64-127\n", (65, 128)),
        ] {
            assert_eq!(count_cpus(list), Some(counted), "{list:?}");
        }
        for list in ["", "3-1", "a", "0-"] {
            assert_eq!(count_cpus(list), None, "{list:?}");
        }
    }
}
