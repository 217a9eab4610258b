//! CPU time of vCPUs per pCPU, and their migrations: the maps that `on_migrate` fills.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{ResidencyFact, VmFact};
use virtlens_model::vocab::topology::host::{HostPlace, HostTopology};
use virtlens_model::vocab::{CgroupId, Moves, Owner, VmKey};
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::unchanged::Unchanged;
use crate::{Error, decode};

/// The keys of the map `vms`.
struct Keys {
    /// The VMs among them, in ascending order.
    vms: Vec<VmKey>,
    /// Number of all, with the child processes of pods.
    all: u64,
}

/// Reads and writes these maps.
#[derive(Default)]
pub(crate) struct Placement {
    residency: Batch<abi::map::ResidencyKey, u64>,
    vms: Batch<u32, abi::map::Vm>,
    keys: Unchanged<Keys>,
    /// Entries of the map `residency` when it was last read.
    pub(crate) residency_entries: Option<u64>,
    /// Entries of the map `vms` when it was last read.
    pub(crate) vms_entries: Option<u64>,
    /// CPUs below this number have an entry in the map `places`.
    placed: u32,
}

impl Placement {
    /// Writes the topology of each CPU for the programs.
    pub(crate) fn set_places(&mut self, maps: &Maps, host: &HostTopology) -> Result<(), Error> {
        let end = host.online().iter().last().map_or(0, |cpu| cpu + 1);
        // Entries of CPUs that are no longer online are cleared.
        let end = end.max(self.placed).min(maps.max_entries("places"));
        // Set before the writes: on a failure some entries may be written.
        self.placed = end;
        for cpu in 0..end {
            let place = place(host.place(cpu));
            maps.update("places", cpu.as_bytes(), place.as_bytes())?;
        }
        Ok(())
    }

    /// Returns the CPU time of all vCPUs per pCPU, up to their last migration.
    pub(crate) fn residency(&mut self, maps: &Maps) -> Result<Vec<ResidencyFact>, Error> {
        let mut facts = Vec::new();
        maps.each("residency", &mut self.residency, |key, run_ns| {
            facts.extend(decode::residency(key, *run_ns));
        })?;
        self.residency_entries = Some(facts.len() as u64);
        Ok(facts)
    }

    /// Returns all VMs in the map `vms`. The map is read only if its keys have changed.
    pub(crate) fn vms(&mut self, maps: &Maps) -> Result<Vec<VmKey>, Error> {
        let keys = self.keys(maps)?;
        let vms = keys.vms.clone();
        self.keys.recycle(keys);
        Ok(vms)
    }

    /// Returns the migrations of the vCPUs of VMs that no pass shows any more: they have
    /// ended. `passed`: those of the last pass, in ascending order; their records have the
    /// migrations.
    pub(crate) fn moves_of_ended(
        &mut self,
        maps: &Maps,
        passed: &[VmFact],
    ) -> Result<Vec<(VmKey, Moves)>, Error> {
        let keys = self.keys(maps)?;
        let is_passed = |vm: &VmKey| passed.binary_search_by_key(vm, |fact| fact.vm).is_ok();
        let mut moves = Vec::new();
        for vm in keys.vms.iter().filter(|vm| !is_passed(vm)) {
            let found: Option<abi::map::Vm> = maps.get("vms", vm.tgid.as_bytes())?;
            if let Some(found) = found.filter(|found| found.start_ns == vm.start_ns) {
                moves.push((*vm, decode::moves(&found.moves)));
            }
        }
        self.keys.recycle(keys);
        Ok(moves)
    }

    fn keys(&mut self, maps: &Maps) -> Result<Keys, Error> {
        let keys = self.keys.or_read(maps, abi::map::CHANGE_VMS, || {
            let (mut vms, mut all) = (Vec::new(), 0);
            maps.each("vms", &mut self.vms, |tgid, vm| {
                all += 1;
                if vm.pod == 0 {
                    let (start_ns, tgid) = (vm.start_ns, *tgid);
                    vms.push(VmKey { start_ns, tgid });
                }
            })?;
            vms.sort_unstable();
            Ok(Keys { vms, all })
        })?;
        self.vms_entries = Some(keys.all);
        Ok(keys)
    }

    /// This agent removes entries of the map `vms`, which no program counts.
    pub(crate) fn forget_keys(&mut self) {
        self.keys.forget();
    }

    /// Removes the child processes of former pods: if a process exited while no program
    /// was attached, nothing else removes it.
    pub(crate) fn forget_children(
        &mut self,
        maps: &Maps,
        gone: &FxHashSet<Owner>,
    ) -> Result<(), Error> {
        let mut tgids = Vec::new();
        maps.each("vms", &mut self.vms, |tgid, vm| {
            if vm.pod != 0 && gone.contains(&Owner::Pod(CgroupId(vm.pod))) {
                tgids.push(*tgid);
            }
        })?;
        let delete = |tgid: &u32| maps.delete("vms", tgid.as_bytes());
        tgids.iter().try_for_each(delete)
    }

    /// Removes the residency of former VMs.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        let mut keys = Vec::new();
        maps.each("residency", &mut self.residency, |key, _| {
            if matches!(decode::owner(key.owner), Owner::Vm(vm) if gone.contains(&vm)) {
                keys.push(*key);
            }
        })?;
        let delete = |key: &abi::map::ResidencyKey| maps.delete("residency", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

/// Ids in the map start at 1, so that 0 means unknown.
fn place(place: Option<&HostPlace>) -> abi::map::CpuPlace {
    let number = |level: fn(&HostPlace) -> Option<u32>| {
        place
            .and_then(level)
            .map_or(0, |number| number.saturating_add(1))
    };
    abi::map::CpuPlace {
        core: number(|place| place.core),
        llc: number(|place| place.llc),
        node: number(|place| place.node),
        pad: 0,
    }
}
