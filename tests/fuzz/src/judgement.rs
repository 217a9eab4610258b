//! All results of two readings of the BPF programs: VMs, their counters, placement,
//! findings, metrics and JSON.

use std::sync::Arc;

use virtlens_abi as abi;
use virtlens_export::{Agent, Format, Process, Scrape, Selection, encode};
use virtlens_model::facts::{
    Facts, PcpuTimes, Pcpus, ProcessFact, ResidencyFact, RetiredFact, ThreadClass, ThreadFact,
    VmPlacementFact,
};
use virtlens_model::fleet::Fleet;
use virtlens_model::judge::findings::{Bounds, Watch};
use virtlens_model::judge::window;
use virtlens_model::judge::window::Window;
use virtlens_model::snapshot::{API_VERSION, Node, Snapshot, Vm};
use virtlens_model::vocab::topology::host::{CpuFact, HostTopology};
use virtlens_model::vocab::{CpuSet, Owner};
use virtlens_probe::decode::{Buffer, Decoder};

use crate::records::cut_near;

/// The time between readings, ns.
const WINDOW_NS: u64 = 10_000_000_000;

/// `data` is as for [`crate::records::records`], but its two parts are two passes.
pub fn judgement(data: &[u8]) {
    let [mask_words, cut, stream @ ..] = data else {
        return;
    };
    let mask_words = usize::from(*mask_words) % (abi::MASK_WORDS_MAX + 1);
    let (first, second) = stream.split_at(cut_near(stream, usize::from(*cut) * 8));
    let mut agent = Judge::new();
    let mut before: Vec<Vm> = Vec::new();
    for pass in [first, second, second] {
        let mut buffer = Buffer::default();
        buffer.room(pass.len())[..pass.len()].copy_from_slice(pass);
        buffer.fill(pass.len());
        let Ok((facts, _)) = agent.decoder.pass(buffer.bytes(), mask_words) else {
            return;
        };
        let facts = complete(facts, &agent.decoder);
        let snapshot = agent.read(&facts);
        check(&before, &snapshot.vms);
        write(&snapshot);
        before.clone_from(&snapshot.vms);
    }
}

/// The agent's state from reading to reading.
struct Judge {
    decoder: Decoder,
    fleet: Fleet,
    host: Arc<HostTopology>,
    window: Window,
    watch: Watch,
    now_ns: u64,
}

impl Judge {
    fn new() -> Self {
        let mut fleet = Fleet::new(WINDOW_NS / 2);
        let host = Arc::new(host());
        fleet.set_host(Arc::clone(&host));
        Self {
            decoder: Decoder::default(),
            fleet,
            host,
            window: Window::default(),
            watch: Watch::new(Bounds::default()),
            now_ns: 0,
        }
    }

    fn read(&mut self, facts: &Facts) -> Arc<Snapshot> {
        self.now_ns += WINDOW_NS;
        let process = ProcessFact {
            exe: Some("/usr/bin/qemu-system-x86_64".to_owned()),
            args: ["qemu", "-name", "web", "-device", "virtio-balloon-pci"]
                .map(str::to_owned)
                .into(),
            ..ProcessFact::default()
        };
        for vm in self.fleet.unknown_vms(facts) {
            self.fleet.admit(vm, &process, facts);
        }
        self.fleet.follow(facts, |_| None);
        let (mut vms, _) = self.fleet.account(facts, self.now_ns);
        let bounds = |_: &Vm| window::CgroupBounds::default();
        let date = |ns: u64| ns.to_string();
        self.window.judge(
            &self.host,
            &vms,
            bounds,
            pcpus(self.now_ns),
            self.now_ns,
            date,
        );
        for vm in &mut vms {
            vm.topology = self.window.topology(vm);
        }
        self.watch.judge(&vms, self.now_ns);
        for vm in &mut vms {
            vm.findings = self.watch.findings(vm);
        }
        let snapshot = Arc::new(snapshot(vms, self.now_ns));
        self.watch.begin(&snapshot);
        snapshot
    }
}

/// The times of the host's CPUs: a quarter in interrupts, but for one CPU all of it.
fn pcpus(now: u64) -> Pcpus {
    let of = |cpu| PcpuTimes {
        all: now,
        hard: now / 8,
        soft: if cpu == 0 { now } else { now / 8 },
        steal: 0,
    };
    (0..8).map(|cpu| (cpu, of(cpu))).collect()
}

/// Two packages of two cores of two threads.
fn host() -> HostTopology {
    let online: CpuSet = (0..8).collect();
    let group = |cpu: u32, size: u32| Some((cpu / size * size..(cpu / size + 1) * size).collect());
    let facts: Vec<CpuFact> = (0..8)
        .map(|cpu| CpuFact {
            cpu,
            package: Some(cpu / 4),
            die_cpus: group(cpu, 4),
            core_cpus: group(cpu, 2),
            llc_cpus: group(cpu, 4),
            node: Some(cpu / 4),
        })
        .collect();
    HostTopology::new(&facts, &online)
}

/// Adds the values that come from maps: an ended thread for each thread, and residency on
/// the CPU of each thread.
fn complete(mut facts: Facts, decoder: &Decoder) -> Facts {
    facts.retired = facts.threads.iter().map(ended).collect();
    facts.residency = Some(facts.threads.iter().filter_map(ran).collect());
    let placements = decoder.guests().map(|(vm, guest)| {
        let placement = VmPlacementFact {
            guest: Some(guest),
            moves: None,
        };
        (vm, placement)
    });
    facts.placements = placements.collect();
    facts
}

fn ended(thread: &ThreadFact) -> RetiredFact {
    RetiredFact {
        class: ThreadClass {
            owner: thread.owner,
            cgroup: Some(thread.cgroup),
            kind: thread.kind,
            vcpu_id: thread.vcpu.as_ref().map(|vcpu| vcpu.id),
            comm: thread.comm,
            process_comm: thread.process_comm,
        },
        threads: 1,
        cpu_ns: thread.cpu_ns,
        wait_ns: thread.wait_ns.unwrap_or(0),
        guest_ns: thread.guest_ns.unwrap_or(0),
        switches: thread.switches.unwrap_or_default(),
    }
}

fn ran(thread: &ThreadFact) -> Option<ResidencyFact> {
    let (Owner::Vm(vm), Some(vcpu)) = (thread.owner, &thread.vcpu) else {
        return None;
    };
    Some(ResidencyFact {
        vm,
        vcpu_id: vcpu.id,
        pcpu: thread.pcpu?,
        run_ns: thread.cpu_ns,
    })
}

fn snapshot(vms: Vec<Vm>, clock_ns: u64) -> Snapshot {
    Snapshot {
        api_version: API_VERSION,
        kind: "Snapshot",
        time: "2026-01-01T00:00:00Z".to_owned(),
        clock_ns,
        reading_age_ns: Some(0),
        node: Node {
            name: "a".to_owned(),
            kernel: "6.12".to_owned(),
            cpus: 8,
            cgroup: "v2",
        },
        host: Arc::default(),
        sources: Vec::new(),
        dropped: Vec::new(),
        maps: Vec::new(),
        programs: Vec::new(),
        vms,
    }
}

/// Asserts that names are unique and that no total of a VM falls.
fn check(before: &[Vm], now: &[Vm]) {
    for (at, vm) in now.iter().enumerate() {
        assert!(now[..at].iter().all(|other| other.vm != vm.vm));
        let Some(then) = before.iter().find(|then| then.vm == vm.vm) else {
            continue;
        };
        for role in &then.roles {
            let same = vm.roles.iter().find(|now| now.role == role.role);
            // An empty role is not shown.
            let cpu_ns = same.map_or(0, |role| role.cpu_ns);
            assert!(cpu_ns >= role.cpu_ns, "{role:?} fell to {cpu_ns}");
        }
    }
}

fn write(snapshot: &Arc<Snapshot>) {
    let reading = Arc::new(Scrape {
        snapshot: Arc::clone(snapshot),
        agent: Some(Agent {
            version: "0",
            revision: "",
            rustversion: "",
            collection_ns: 1,
            recording: None,
            process: Process::default(),
        }),
    });
    for format in [Format::OpenMetrics, Format::Text] {
        let mut text = String::new();
        encode(&reading, &Selection::all(), format, &mut text);
        assert!(text.ends_with('\n'));
    }
    let json = serde_json::to_vec(&**snapshot).expect("plain values");
    assert!(json.starts_with(b"{"));
}
