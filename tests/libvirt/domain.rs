//! The domains: their XML, threads and cgroups, read without the agent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;
use virtlens_tests::process::{comm, tids};
use virtlens_vmtest::plan::{PLAN_PATH, Plan, Pods};

use crate::DB;
use crate::manager::{DIR, Libvirt};

/// Where the machine mounts cgroup v2.
const ROOT: &str = "/sys/fs/cgroup";

/// The quotas of `db-01.xml`, by their names in `virsh schedinfo`, µs per period.
pub(crate) const USUAL_US: &[(&str, u64)] = &[
    ("vcpu_quota", 95_000),
    ("emulator_quota", 95_000),
    ("iothread_quota", 95_000),
    ("global_quota", 195_000),
];

/// The pins of `db-01.xml`: of vCPUs, of the emulator and of the iothread.
pub(crate) const VCPU_PINS: [(u32, u32); 2] = [(0, 0), (1, 1)];
pub(crate) const EMULATOR_PIN: u32 = 1;
pub(crate) const IOTHREAD_PIN: u32 = 0;

/// Defines both domains with the files of the rig.
pub(crate) fn define(libvirt: &Libvirt) {
    let plan = Plan::read(Path::new(PLAN_PATH)).expect("this suite runs in tests/vm");
    let Pods::Files(stage) = plan.pods else {
        panic!("the rig brings the files of a guest: {:?}", plan.pods)
    };
    let disk = File::create(format!("{DIR}/disk")).and_then(|disk| disk.set_len(64 << 20));
    disk.expect("/run can be written");
    let text = |path: &Path| path.display().to_string();
    let files = [
        ("@DIR@", DIR.to_owned()),
        ("@QEMU@", text(&stage.qemu)),
        ("@VIRTIOFSD@", text(&stage.virtiofsd)),
        ("@KERNEL@", text(&stage.guest_kernel)),
        ("@INITRD@", text(&stage.guest_initrd)),
    ];
    for (name, xml) in [
        ("db-01", include_str!("db-01.xml")),
        ("plain-b", include_str!("plain-b.xml")),
    ] {
        let xml = files
            .iter()
            .fold(xml.to_owned(), |xml, (mark, path)| xml.replace(mark, path));
        let file = format!("{DIR}/{name}.xml");
        fs::write(&file, xml).expect("/run can be written");
        libvirt.virsh(&format!("define {file}"));
    }
}

/// The threads of `db-01`, from QEMU's monitor and by their names.
pub(crate) struct Threads {
    pub(crate) vmm: u32,
    /// Indexed by vCPU.
    pub(crate) vcpus: Vec<u32>,
    pub(crate) iothreads: Vec<u32>,
    /// The kernel's `io_uring` workers.
    pub(crate) io_workers: Vec<u32>,
    pub(crate) vhost: Vec<u32>,
    /// Processes: the one that libvirt started, then its children.
    pub(crate) virtiofsd: Vec<u32>,
}

impl Threads {
    pub(crate) fn of(libvirt: &Libvirt) -> Self {
        let pid = fs::read_to_string(format!("/run/libvirt/qemu/{DB}.pid"));
        let pid = pid.expect("libvirt writes it").trim().to_owned();
        let vmm = pid.parse().expect("a pid is a number");
        let ids = |command| thread_ids(&libvirt.monitor(DB, command));
        Self {
            vmm,
            vcpus: ids("query-cpus-fast"),
            iothreads: ids("query-iothreads"),
            io_workers: tids_named(vmm, "iou-wrk-"),
            vhost: tids_named(vmm, &format!("vhost-{vmm}")),
            virtiofsd: processes_named("virtiofsd"),
        }
    }
}

fn thread_ids(list: &Value) -> Vec<u32> {
    let id = |item: &Value| u32::try_from(item["thread-id"].as_u64()?).ok();
    let list = list.as_array().expect("it is a list");
    list.iter().filter_map(id).collect()
}

/// The threads of a process with this prefix of their name.
fn tids_named(pid: u32, name: &str) -> Vec<u32> {
    let all = tids(pid).into_iter();
    let named = all.filter(|tid| comm(pid, *tid).is_some_and(|comm| comm.starts_with(name)));
    named.map(i32::cast_unsigned).collect()
}

/// Processes with this name, by ascending pid, which is the start order unless pids wrap.
fn processes_named(name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = pids.filter(|pid| comm(*pid, pid.cast_signed()).as_deref() == Some(name));
    let mut found: Vec<u32> = named.collect();
    found.sort_unstable();
    found
}

/// The cgroup of a thread according to `/proc`.
pub(crate) fn cgroup_of(tid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{tid}/cgroup")).expect("the thread lives");
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.expect("cgroup v2 is mounted").to_owned()
}

/// The parent of the cgroups of a domain's threads, which has the global limit.
pub(crate) fn global_cgroup(threads: &Threads) -> String {
    let vcpu = cgroup_of(threads.vcpus[0]);
    let above = vcpu.rsplit_once('/').expect("libvirt makes one for each");
    above.0.to_owned()
}

/// All limited cgroups among these and their ancestors, with the quota in µs per period.
pub(crate) fn limited_cgroups(of: &[u32]) -> BTreeMap<String, u64> {
    let mut limits = BTreeMap::new();
    for tid in of {
        let path = cgroup_of(*tid);
        for above in Path::new(&path).ancestors() {
            let above = above.to_str().expect("libvirt's paths are text");
            let text = fs::read_to_string(file(above, "cpu.max")).unwrap_or_default();
            let quota = text.split(' ').next().and_then(|us| us.parse().ok());
            limits.extend(quota.map(|us: u64| (above.to_owned(), us)));
        }
    }
    limits
}

/// Counters of `cpu.stat` of a cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuStat {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
    pub(crate) throttled_us: u64,
}

impl CpuStat {
    pub(crate) fn of(cgroup: &str) -> Self {
        let text = fs::read_to_string(file(cgroup, "cpu.stat")).expect("the cgroup is there");
        let value = |key: &str| -> u64 {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            let value = line.unwrap_or_else(|| panic!("{cgroup}: no {key} in {text}"));
            value.parse().expect("cpu.stat has numbers")
        };
        Self {
            periods: value("nr_periods"),
            throttled: value("nr_throttled"),
            throttled_us: value("throttled_usec"),
        }
    }
}

fn file(cgroup: &str, name: &str) -> PathBuf {
    Path::new(ROOT)
        .join(cgroup.trim_start_matches('/'))
        .join(name)
}
