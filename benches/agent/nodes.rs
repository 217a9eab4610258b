//! Other nodes than the full one: without VMs, and with as many microVMs as it can hold; and
//! the start of each command.

use std::path::Path;

use virtlens_probe::loader::Loader;
use virtlens_tests::{Minivm, binary, need};

use crate::SCRAPES;
use crate::load::Vms;
use crate::program::{self, Program};
use crate::stats::Spread;
use crate::table::Table;
use virtlens_benches::machine;

/// Runs of each command.
const COMMAND_RUNS: u32 = 7;

/// VMs of one vCPU: nearly as many as the map `vms` has entries.
const MICRO_VMS: u32 = 4000;

/// Memory of a microVM, in minivm, in the kernel and in KVM, KiB. A host without twice as
/// much gets fewer.
const MICRO_VM_KIB: u32 = 1536;

/// A node on which no VM runs.
pub(crate) fn without_vms(table: &mut Table) {
    let program = Program::start(&binary("virtlens"), Loader::default());
    let scrape_ms = program.scrape_ms(SCRAPES);
    let vms = program.vms();
    let of_others = if vms == 0 {
        String::new()
    } else {
        format!(", beside {vms} VMs that are not of this benchmark")
    };
    table.row(
        "node without VMs: a whole scrape, ms CPU",
        format!("{scrape_ms:.2}{of_others}"),
    );
    table.row(
        "… programs attached to hooks of the kernel after it",
        format!("{}{of_others}", program.hooks()),
    );
    let mib = program.resident_mib();
    let what = format!("… resident memory after {SCRAPES} scrapes, MiB");
    table.row(&what, format!("{mib:.1}"));
}

/// CPU time of each command with each loader. Beside one VM nearly all of it is loading. A
/// trace needs a VM.
pub(crate) fn commands(table: &mut Table) {
    let path = binary("virtlens");
    let vm = need::kvm().is_ok().then(|| Minivm::start(["--vcpus", "1"]));
    let vm = vm.as_ref().map(Minivm::pid);
    let beside = vm.map_or("without VMs", |_| "beside one VM");
    for args in program::commands(vm) {
        for loader in Loader::ALL {
            let run = |_| program::command_ms(&path, *loader, &args);
            let spread = Spread::of((0..COMMAND_RUNS).map(run));
            let shown = program::shown(&args);
            let what = format!("virtlens {shown} --loader {loader} {beside}, ms CPU");
            table.row(&what, format!("{spread:.0}"));
        }
    }
}

/// Number of sizes of the host of microVMs that are measured, evenly spaced.
const MICRO_SIZES: u32 = 4;

/// Cost of a scrape on a host of microVMs.
struct MicroCost {
    /// Number of VMs that the agent shows.
    vms: u32,
    scrape_ms: f64,
    resident_mib: f64,
    losses: Vec<String>,
}

impl MicroCost {
    /// Measures an agent that starts beside the VMs.
    fn of() -> Self {
        let program = Program::start(&binary("virtlens"), Loader::default());
        for _ in 0..SCRAPES {
            program.scrape();
        }
        Self {
            scrape_ms: program.scrape_ms(SCRAPES),
            // Read before the metrics are requested without compression: the agent keeps
            // that answer until its next reading.
            resident_mib: program.resident_mib(),
            vms: program.vms(),
            losses: program.losses(),
        }
    }

    fn per_vm_us(&self) -> f64 {
        self.scrape_ms * 1e3 / f64::from(self.vms)
    }
}

/// A host of microVMs.
pub(crate) fn micro_vms(table: &mut Table) {
    let mut vms = Vms::micro();
    let affordable = machine::half_of_available_kib() / MICRO_VM_KIB;
    let count = MICRO_VMS.min(affordable);
    let sizes = (1..=MICRO_SIZES).map(|size| count * size / MICRO_SIZES);
    let costs: Vec<MicroCost> = sizes
        .map(|size| {
            vms.grow_to(size as usize);
            MicroCost::of()
        })
        .collect();
    let (Some(small), Some(full)) = (costs.first(), costs.last()) else {
        return;
    };
    let what = format!("{count} VMs of one vCPU: a whole scrape with HTTP and gzip, ms CPU");
    table.row(&what, format!("{:.1}", full.scrape_ms));
    let by_size = |shown: fn(&MicroCost) -> String| {
        let each = costs
            .iter()
            .map(|cost| format!("{} VMs: {}", cost.vms, shown(cost)));
        each.collect::<Vec<_>>().join(", ")
    };
    let is_linear = full.per_vm_us() <= 1.25 * small.per_vm_us();
    table.judge(
        "… for each VM, µs CPU",
        "linear",
        by_size(|cost| format!("{:.1}", cost.per_vm_us())),
        is_linear,
    );
    let what = format!("… resident memory after {} scrapes, MiB", 2 * SCRAPES);
    table.row(&what, by_size(|cost| format!("{:.1}", cost.resident_mib)));
    let losses = &full.losses;
    let what = "… losses (virtlens_dropped_total)";
    let shown = if losses.is_empty() {
        "0".to_owned()
    } else {
        losses.join(", ")
    };
    table.judge(what, "0", shown, losses.is_empty());
    crate::in_turn(table, Path::new(&binary("virtlens")));
}
