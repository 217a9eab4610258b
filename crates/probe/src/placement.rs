//! Where vCPUs ran and how often they moved: the maps that `on_migrate` fills.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::ResidencyFact;
use virtlens_model::vocab::topology::host::{HostPlace, HostTopology};
use virtlens_model::vocab::{CgroupId, Moves, Owner, VmKey};
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::{Error, decode};

/// Reads and writes those maps.
#[derive(Default)]
pub(crate) struct Placement {
    residency: Batch<abi::ResidencyKey, u64>,
    vms: Batch<u32, abi::Vm>,
    /// Entries of the map `residency` when it was last read.
    pub(crate) residency_entries: Option<u64>,
    /// Entries of the map `vms` when it was last read.
    pub(crate) vms_entries: Option<u64>,
    /// The CPUs below this number have a place in the map.
    placed: u32,
}

impl Placement {
    /// Tells the programs where each CPU is.
    pub(crate) fn set_places(&mut self, maps: &Maps, host: &HostTopology) -> Result<(), Error> {
        let end = host.online().iter().last().map_or(0, |cpu| cpu + 1);
        // A CPU that is gone has no place any more.
        let end = end.max(self.placed).min(maps.max_entries("places"));
        // Before they are written: some may have a place where this fails.
        self.placed = end;
        for cpu in 0..end {
            let place = place(host.place(cpu));
            maps.update("places", cpu.as_bytes(), place.as_bytes())?;
        }
        Ok(())
    }

    /// Where all vCPUs ran up to their last moves.
    pub(crate) fn residency(&mut self, maps: &Maps) -> Result<Vec<ResidencyFact>, Error> {
        let mut facts = Vec::new();
        maps.each("residency", &mut self.residency, |key, run_ns| {
            facts.extend(decode::residency(key, *run_ns));
        })?;
        self.residency_entries = Some(facts.len() as u64);
        Ok(facts)
    }

    /// How often the vCPUs of each VM moved.
    pub(crate) fn moves(&mut self, maps: &Maps) -> Result<Vec<(VmKey, Moves)>, Error> {
        let mut moves = Vec::new();
        let mut entries = 0;
        maps.each("vms", &mut self.vms, |tgid, vm| {
            entries += 1;
            if vm.pod != 0 {
                return;
            }
            let key = VmKey {
                start_ns: vm.start_ns,
                tgid: *tgid,
            };
            moves.push((key, decode::moves(&vm.moves)));
        })?;
        self.vms_entries = Some(entries);
        Ok(moves)
    }

    /// Drops the processes that those of pods which are gone had started: of one that
    /// ended while no program was there to see it nobody else does.
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

    /// Drops where the vCPUs of VMs that are gone ran.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        let mut keys = Vec::new();
        maps.each("residency", &mut self.residency, |key, _| {
            if matches!(decode::owner(key.owner), Owner::Vm(vm) if gone.contains(&vm)) {
                keys.push(*key);
            }
        })?;
        let delete = |key: &abi::ResidencyKey| maps.delete("residency", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

/// Numbers of the contract begin with 1, so that 0 is free for "not known".
fn place(place: Option<&HostPlace>) -> abi::CpuPlace {
    let number = |level: fn(&HostPlace) -> Option<u32>| {
        place
            .and_then(level)
            .map_or(0, |number| number.saturating_add(1))
    };
    abi::CpuPlace {
        core: number(|place| place.core),
        llc: number(|place| place.llc),
        node: number(|place| place.node),
        pad: 0,
    }
}
