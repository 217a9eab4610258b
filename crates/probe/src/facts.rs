//! Features of this kernel for BPF programs. Facts only; [`crate::plan`] draws the
//! conclusions.

pub(crate) mod vhost;

use std::path::Path;

use virtlens_abi::map::VhostFields;

use crate::btf::{Btf, Kind};
use crate::loader::Loader;
use crate::sys;

/// Features of this kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub struct KernelFacts {
    /// This process may load BPF programs: it is root, or has `CAP_BPF` and
    /// `CAP_PERFMON` (or `CAP_SYS_ADMIN`).
    pub may_load: bool,
    /// A seccomp filter refuses bpf(2) although the process may load programs.
    pub bpf_filtered: bool,
    /// The kernel provides type information (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// `kernel_lockdown(7)`: "none", "integrity", "confidentiality", or empty if the
    /// kernel has no lockdown.
    pub lockdown: String,
    /// `task_struct.preempt_notifiers` (`CONFIG_PREEMPT_NOTIFIERS`, which KVM
    /// selects).
    pub preempt_notifiers: bool,
    /// `struct kvm_vcpu` is in the kernel's type information, mostly also if KVM is a
    /// module, or in the module's.
    pub kvm_types: bool,
    /// Only the module's type information has it (`/sys/kernel/btf/kvm`).
    pub kvm_types_in_module: bool,
    /// This process may read type information of modules: libbpf looks it up by id
    /// (`bpf_btf_get_next_id`), for which the kernel requires `CAP_SYS_ADMIN`.
    pub may_read_modules: bool,
    /// The vendor part of KVM is built into the kernel: the kernel's type information has
    /// `struct vcpu_svm` or `struct vcpu_vmx`.
    pub kvm_built_in: bool,
    /// Task iterators (v5.8).
    pub task_iter: bool,
    /// Task storage (v5.11; for tracing programs v5.13).
    pub task_storage: bool,
    /// This process is in the host's pid namespace: task iterators walk the pid namespace
    /// of their opener (`kernel/bpf/task_iter.c`,
    /// `bpf_iter_attach_task`/`init_seq_pidns`).
    pub host_pids: bool,
    /// Number of possible CPUs (`possible`).
    pub possible_cpus: usize,
    /// Number of online CPUs.
    pub online_cpus: usize,
    /// One more than the highest possible CPU number, for the length of an affinity mask:
    /// some hosts skip numbers.
    pub cpu_numbers: usize,
    /// Programs can be attached to kernel functions (`fentry`): the kernel has the
    /// trampolines (v5.5 on x86), and nothing forbids it.
    pub fentry: bool,
    /// Programs can prefetch, and read a vCPU's counters without helper calls: the kernel
    /// has `bpf_rdonly_cast` (v6.2).
    pub read_ahead: bool,
    /// Programs can iterate over tasks themselves: the kernel has `bpf_iter_task_new`
    /// (v6.7), and accepts tasks as arguments of global functions (v6.9, detected by a
    /// map type that was added in the same version, arenas: 317460317a02).
    pub task_walk: bool,
    /// Offset of the worker in `struct kvm_pit`, bytes: the kernel thread of a VM's
    /// timer. `None` if neither the kernel's type information nor the KVM module's has
    /// it.
    pub pit_worker: Option<u32>,
    /// Field offsets of vhost devices in the kernel's type information. `None` if vhost
    /// is a module, which may be loaded later: [`vhost::of_module`] reads its type
    /// information.
    pub vhost: Option<VhostFields>,
    /// The kernel has the scheduler's throttling functions: always with
    /// `CONFIG_CFS_BANDWIDTH`.
    pub throttle_functions: bool,
    /// A program that writes to a ring buffer may sleep (`PREEMPT_RT` without
    /// 8b62645b09f8, "bpf: Use `raw_spinlock_t` in ringbuf").
    pub ring_sleeps: bool,
}

impl KernelFacts {
    /// Probes the running kernel. `root` contains /proc and /sys.
    pub fn probe(root: &Path) -> Self {
        let mut facts = Self {
            may_load: has_capabilities(root, may_load),
            may_read_modules: has_capabilities(root, |set| has(set, CAP_SYS_ADMIN)),
            lockdown: lockdown(root),
            host_pids: host_pids(root),
            possible_cpus: sys::possible_cpus().unwrap_or(0),
            online_cpus: sys::online_cpus().unwrap_or(0),
            cpu_numbers: sys::cpu_numbers().unwrap_or(0),
            ..Self::default()
        };
        facts.bpf_filtered =
            facts.may_load && has_seccomp_filter(root) && !sys::kernel_answers_bpf();
        let types = std::fs::read(root.join("sys/kernel/btf/vmlinux"));
        if let Some(btf) = types.as_deref().ok().and_then(Btf::parse) {
            facts.btf = true;
            facts.preempt_notifiers = has_member(&btf, "task_struct", "preempt_notifiers");
            let of_makers = ["vcpu_svm", "vcpu_vmx"];
            facts.kvm_built_in = of_makers
                .iter()
                .any(|name| btf.find(Kind::Struct, name).is_some());
            let module = std::fs::read(root.join("sys/kernel/btf/kvm"));
            let module = module.as_deref().ok();
            let module = module.and_then(|bytes| Btf::parse_module(bytes, &btf));
            facts.find_kvm(&btf, module.as_ref());
            facts.vhost = vhost::in_kernel(&btf);
            facts.task_iter = btf.find(Kind::Struct, "bpf_iter__task").is_some();
            facts.task_storage = has_value(&btf, "bpf_map_type", "BPF_MAP_TYPE_TASK_STORAGE");
            facts.throttle_functions = ["throttle_cfs_rq", "unthrottle_cfs_rq"]
                .iter()
                .all(|name| btf.find(Kind::Func, name).is_some());
            facts.ring_sleeps = ring_sleeps(&btf);
            facts.read_ahead = btf.find(Kind::Func, "bpf_rdonly_cast").is_some();
            facts.task_walk = btf.find(Kind::Func, "bpf_iter_task_new").is_some()
                && has_value(&btf, "bpf_map_type", "BPF_MAP_TYPE_ARENA");
            let any = btf.find(Kind::Func, ANY_FUNCTION);
            facts.fentry = any.is_some_and(|any| sys::takes_fentry(any.id).is_ok());
        }
        facts
    }

    /// Looks for KVM's types in the kernel's type information, then in the KVM module's.
    fn find_kvm(&mut self, kernel: &Btf<'_>, module: Option<&Btf<'_>>) {
        let has_vcpu = |btf| has_member(btf, "kvm_vcpu", "preempt_notifier");
        let in_kernel = has_vcpu(kernel);
        self.kvm_types_in_module = !in_kernel && module.is_some_and(has_vcpu);
        self.kvm_types = in_kernel || self.kvm_types_in_module;
        let mut both = std::iter::once(kernel).chain(module);
        self.pit_worker = both.find_map(pit_worker);
    }

    /// Returns the facts that apply to programs loaded by `loader`: without KVM's types
    /// if only the module has them and they cannot be read.
    #[must_use]
    pub fn seen_by(mut self, loader: Loader) -> Self {
        if self.kvm_types_in_module && !(loader.reads_modules() && self.may_read_modules) {
            self.kvm_types = false;
        }
        self
    }
}

/// A function that every kernel has and no compiler inlines (fs/open.c).
const ANY_FUNCTION: &str = "vfs_fallocate";

fn has_member(btf: &Btf<'_>, name: &str, member: &str) -> bool {
    let found = btf.find(Kind::Struct, name);
    found.is_some_and(|found| found.members().any(|field| field.name == member))
}

fn pit_worker(btf: &Btf<'_>) -> Option<u32> {
    let pit = btf.find(Kind::Struct, "kvm_pit")?;
    let worker = pit.members().find(|field| field.name == "worker")?;
    Some(worker.offset_bits / 8)
}

/// Whether writing to a ring buffer may sleep (`struct bpf_ringbuf`,
/// `kernel/bpf/ringbuf.c`): its lock is a `spinlock_t`, which with `PREEMPT_RT` contains
/// an `rt_mutex` named `lock`, and otherwise an anonymous union
/// (`include/linux/spinlock_types.h`).
fn ring_sleeps(btf: &Btf<'_>) -> bool {
    let lock = btf.find(Kind::Typedef, "spinlock_t").map(|lock| lock.id);
    let ring = btf.find(Kind::Struct, "bpf_ringbuf");
    let has_lock = ring.is_some_and(|ring| {
        let mut members = ring.members();
        members.any(|field| field.name == "spinlock" && Some(field.type_id) == lock)
    });
    has_lock && has_member(btf, "spinlock", "lock")
}

fn has_value(btf: &Btf<'_>, name: &str, value: &str) -> bool {
    let found = btf.find(Kind::Enum, name);
    found.is_some_and(|found| found.values().any(|one| one == value))
}

/// `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF` (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

fn has(set: u64, capability: u32) -> bool {
    set >> capability & 1 == 1
}

fn may_load(set: u64) -> bool {
    has(set, CAP_SYS_ADMIN) || has(set, CAP_BPF) && has(set, CAP_PERFMON)
}

fn has_capabilities(root: &Path, enough: impl FnOnce(u64) -> bool) -> bool {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    parse_capabilities(&status).is_some_and(enough)
}

/// Whether a seccomp filter applies to this process: `Seccomp: 2` (proc(5)). Without one, a
/// refusal has another cause, such as a user namespace.
fn has_seccomp_filter(root: &Path) -> bool {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let mut modes = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"));
    modes.next().is_some_and(|mode| mode.trim() == "2")
}

/// The effective capabilities in a `/proc/PID/status`.
fn parse_capabilities(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn lockdown(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("sys/kernel/security/lockdown"));
    parse_lockdown(&text.unwrap_or_default()).to_owned()
}

/// The word in brackets: `none [integrity] confidentiality`.
fn parse_lockdown(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(word, _)| word)
}

/// The initial pid namespace: its inode is `PROC_PID_INIT_INO`
/// (`include/linux/proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

fn host_pids(root: &Path) -> bool {
    std::fs::read_link(root.join("proc/self/ns/pid"))
        .is_ok_and(|link| link.as_os_str() == INITIAL_PID_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::{KernelFacts, parse_capabilities, parse_lockdown, ring_sleeps};
    use crate::btf::{Btf, Kind};
    use crate::loader::Loader;

    /// Type information of kernels that differ in the member name of a `spinlock_t` and
    /// in the type of a ring buffer's lock.
    fn types(in_lock: &str, lock_of_ring: &str) -> Vec<u8> {
        let mut names = vec![0];
        let mut name = |text: &str| {
            let at = u32::try_from(names.len()).expect("few");
            names.extend(text.bytes().chain([0]));
            at
        };
        let info = |kind: Kind, entries: u32| (kind as u32) << 24 | entries;
        let of_ring = if lock_of_ring == "spinlock_t" { 3 } else { 4 };
        let words = [
            [name("rt_mutex_base"), info(Kind::Struct, 0), 8].to_vec(),
            [
                name("spinlock"),
                info(Kind::Struct, 1),
                8,
                name(in_lock),
                1,
                0,
            ]
            .to_vec(),
            [name("spinlock_t"), info(Kind::Typedef, 0), 2].to_vec(),
            [name("raw_spinlock_t"), info(Kind::Typedef, 0), 1].to_vec(),
            [
                name("bpf_ringbuf"),
                info(Kind::Struct, 1),
                8,
                name("spinlock"),
                of_ring,
                0,
            ]
            .to_vec(),
        ];
        type_information(&words.concat(), names)
    }

    /// Types with their names, in the format of `/sys/kernel/btf`.
    pub(super) fn type_information(words: &[u32], names: Vec<u8>) -> Vec<u8> {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let words: Vec<u8> = bytes(words);
        let lengths = [words.len(), names.len()].map(|len| u32::try_from(len).expect("few"));
        let magic = u32::from(0xeb9f_u16) | 1 << 16;
        let header: Vec<u8> = bytes(&[magic, 24, 0, lengths[0], lengths[0], lengths[1]]);
        [header, words, names].concat()
    }

    /// A structure with one field. Its name is at offset `names`, and its field's name
    /// follows.
    fn structure(names: usize, name: &str) -> [u32; 6] {
        let at = |offset| u32::try_from(names + offset).expect("few");
        let info = (Kind::Struct as u32) << 24 | 1;
        [at(0), info, 8, at(name.len() + 1), 1, 64]
    }

    /// KVM is a module, and no type of the kernel itself refers to a vCPU.
    #[test]
    fn kvm_types_in_the_module_alone_are_found_for_loaders_that_read_modules() {
        let kernel = type_information(&structure(1, "task_struct"), b"\0task_struct\0x\0".into());
        let kernel = Btf::parse(&kernel).expect("types");
        // The module's names continue after the kernel's.
        let base = b"\0task_struct\0x\0".len();
        let names = b"kvm_vcpu\0preempt_notifier\0".to_vec();
        let module = type_information(&structure(base, "kvm_vcpu"), names);
        let module = Btf::parse_module(&module, &kernel).expect("types");

        let mut facts = KernelFacts {
            may_read_modules: true,
            ..KernelFacts::default()
        };
        facts.find_kvm(&kernel, None);
        assert!(!facts.kvm_types, "KVM is not loaded");
        facts.find_kvm(&kernel, Some(&module));
        assert!(facts.kvm_types && facts.kvm_types_in_module);
        for loader in Loader::ALL {
            let seen = facts.clone().seen_by(*loader).kvm_types;
            assert_eq!(seen, loader.reads_modules(), "{loader}");
            let facts = KernelFacts {
                may_read_modules: false,
                ..facts.clone()
            };
            assert!(!facts.seen_by(*loader).kvm_types, "{loader}");
        }
    }

    #[test]
    fn kvm_types_of_the_kernel_are_seen_by_every_loader() {
        let names = b"\0kvm_vcpu\0preempt_notifier\0".to_vec();
        let kernel = type_information(&structure(1, "kvm_vcpu"), names);
        let kernel = Btf::parse(&kernel).expect("types");
        let mut facts = KernelFacts::default();
        facts.find_kvm(&kernel, None);
        assert!(!facts.kvm_types_in_module);
        for loader in Loader::ALL {
            assert!(facts.clone().seen_by(*loader).kvm_types, "{loader}");
        }
    }

    #[test]
    fn ring_sleeps_where_its_lock_is_an_rt_mutex() {
        let cases = [
            ("lock", "spinlock_t", true),
            ("lock", "raw_spinlock_t", false),
            ("", "spinlock_t", false),
        ];
        for (in_lock, of_ring, sleeps) in cases {
            let types = types(in_lock, of_ring);
            let btf = Btf::parse(&types).expect("types");
            assert_eq!(ring_sleeps(&btf), sleeps, "{in_lock:?}, {of_ring}");
        }
    }

    #[test]
    fn capabilities_are_read_from_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert_eq!(parse_capabilities(status), Some(0x1ff_ffff_ffff));
        assert_eq!(parse_capabilities("Name:\tx\n"), None);
        assert_eq!(parse_capabilities("CapEff:\tzz\n"), None);
    }

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(
            parse_lockdown("none [integrity] confidentiality\n"),
            "integrity"
        );
        assert_eq!(parse_lockdown("[none] integrity confidentiality\n"), "none");
        assert_eq!(parse_lockdown(""), "");
    }
}
