//! The topology that a guest sees, as its own kernel prints it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use virtlens::collect::Collector;
use virtlens_model::vocab::topology::guest::GuestPlace;
use virtlens_tests::seats::agent;
use virtlens_tests::sysfs::list;
use virtlens_tests::{Qemu, reader};
use virtlens_vmtest::plan::{Guest, PLAN_PATH, Plan};
use virtlens_vmtest::scenario::SILENT_GUEST;

/// Longer than a guest of six vCPUs takes under two layers of emulation.
const PATIENCE: Duration = Duration::from_mins(1);

/// An `-smp` option of QEMU and the resulting topology.
struct Shape {
    smp: &'static str,
    vcpus: usize,
    /// Packages, cores per package, threads per core.
    made: (u32, u32, u32),
    /// CPU vendor that the guest sees. An AMD kernel uses a CPU's node as its die and
    /// ignores the leaf for dies (`topo_set_ids`,
    /// `arch/x86/kernel/cpu/topology_common.c`, v6.12).
    vendor: &'static str,
}

const AMD: &str = "AuthenticAMD";
const INTEL: &str = "GenuineIntel";

const SHAPES: [Shape; 5] = [
    Shape {
        smp: "1",
        vcpus: 1,
        made: (1, 1, 1),
        vendor: AMD,
    },
    Shape {
        smp: "4,sockets=1,cores=2,threads=2",
        vcpus: 4,
        made: (1, 2, 2),
        vendor: AMD,
    },
    Shape {
        smp: "4,sockets=2,cores=1,threads=2",
        vcpus: 4,
        made: (2, 1, 2),
        vendor: AMD,
    },
    Shape {
        smp: "3,sockets=1,cores=3,threads=1",
        vcpus: 3,
        made: (1, 3, 1),
        vendor: AMD,
    },
    Shape {
        smp: "6,sockets=1,dies=2,cores=3,threads=1",
        vcpus: 6,
        made: (1, 6, 1),
        vendor: INTEL,
    },
];

/// A booting guest and the file of its output.
struct TopologyGuest {
    shape: &'static Shape,
    qemu: Qemu,
    dir: TempDir,
    began: Instant,
}

/// A CPU according to the guest's kernel.
#[derive(Debug)]
struct GuestCpu {
    apicid: u32,
    package: u32,
    die: u32,
    core: u32,
    siblings: BTreeSet<u32>,
}

impl TopologyGuest {
    fn start(shape: &'static Shape, guest: &Guest) -> Self {
        let dir = tempfile::tempdir().expect("there is room for a folder");
        let serial = format!("file:{}", dir.path().join("serial").display());
        let cpu = format!("max,+topoext,vendor={}", shape.vendor);
        let launch = Qemu::launch()
            .args(["-no-reboot", "-cpu", &cpu, "-m", "128", "-smp", shape.smp])
            .args(["-serial", &serial])
            .args([Path::new("-kernel"), &guest.kernel])
            .args([Path::new("-initrd"), &guest.initrd])
            .args([
                "-append",
                "console=ttyS0 quiet panic=-1 nohz=off highres=off",
            ]);
        Self {
            shape,
            qemu: Qemu::start_launch(shape.vcpus, launch),
            dir,
            began: Instant::now(),
        }
    }

    /// The guest's lines for its CPUs, once all are printed.
    fn cpus(&self) -> Vec<GuestCpu> {
        let serial = self.dir.path().join("serial");
        loop {
            let text = fs::read(&serial).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            if text.lines().any(|line| line.trim() == "END") {
                let reported: Vec<GuestCpu> = text.lines().filter_map(GuestCpu::parse).collect();
                assert_eq!(reported.len(), self.shape.vcpus, "{text}");
                println!(
                    "{}: reported after {:?}",
                    self.shape.smp,
                    self.began.elapsed()
                );
                return reported;
            }
            assert!(
                self.began.elapsed() < PATIENCE,
                "-smp {}: {SILENT_GUEST}; it said: {text}",
                self.shape.smp
            );
            sleep(Duration::from_millis(100));
        }
    }
}

impl GuestCpu {
    /// Parses a line of the guest's init, `CPU 0 apicid 0 package 0 …`.
    fn parse(line: &str) -> Option<Self> {
        let cpus: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| {
            let at = cpus.iter().position(|word| *word == key)?;
            cpus.get(at + 1).copied()
        };
        let number = |key| after(key)?.parse::<u32>().ok();
        number("CPU")?;
        Some(Self {
            apicid: number("apicid")?,
            package: number("package")?,
            die: number("die")?,
            core: number("core")?,
            siblings: list(after("siblings")?),
        })
    }
}

/// Two guests at a time: more are not faster on the CPUs that emulate all this.
#[test]
fn guest_topology_equals_guest_kernel() {
    let plan = Plan::read(Path::new(PLAN_PATH)).expect("this suite runs in tests/vm");
    let guest = plan.topology_guest.expect("the rig brings a guest");
    let mut agent = agent();
    for shapes in SHAPES.chunks(2) {
        let guests: Vec<TopologyGuest> = shapes
            .iter()
            .map(|shape| TopologyGuest::start(shape, &guest))
            .collect();
        for topology_guest in &guests {
            let reported = topology_guest.cpus();
            assert_agreed(&mut agent, topology_guest, &reported);
        }
    }
}

fn assert_agreed(agent: &mut Collector, topology_guest: &TopologyGuest, reported: &[GuestCpu]) {
    let snapshot = agent.collect_judged();
    let vm = reader::vm(&snapshot, topology_guest.qemu.pid());
    let place = |cpu: &GuestCpu| -> GuestPlace {
        let vcpu = vm.vcpus.iter().find(|vcpu| vcpu.id == cpu.apicid);
        let vcpu = vcpu.unwrap_or_else(|| panic!("no vCPU {}: {reported:?}", cpu.apicid));
        vcpu.guest.expect("its leaves are known")
    };
    let smp = topology_guest.shape.smp;
    for one in reported {
        for two in reported {
            let (here, there) = (place(one), place(two));
            let case = || format!("-smp {smp}: {one:?} and {two:?} are {here:?} and {there:?}");
            assert_eq!(
                one.siblings == two.siblings,
                here.core == there.core,
                "{}",
                case()
            );
            let same_package = one.package == two.package;
            assert_eq!(same_package, here.package == there.package, "{}", case());
            let same_core = (one.package, one.die, one.core) == (two.package, two.die, two.core);
            assert_eq!(same_core, here.core == there.core, "{}", case());
            if topology_guest.shape.vendor == INTEL {
                let same_die = same_package && one.die == two.die;
                assert_eq!(same_die, here.die == there.die, "{}", case());
            }
        }
    }
    let shape = vm.topology.as_ref().and_then(|topology| topology.guest);
    let shape = shape.expect("it has one");
    assert_eq!(
        (shape.packages, shape.cores, shape.threads),
        topology_guest.shape.made,
        "-smp {smp}"
    );
}
