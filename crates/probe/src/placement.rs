//! Where vCPUs ran and how often they moved: the maps that `on_migrate` fills.

use std::collections::HashSet;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use virtlens_abi as abi;
use virtlens_model::facts::{Moves, Owner, ResidencyFact, VmKey};
use virtlens_model::topology::host::{HostPlace, HostTopology};
use zerocopy::IntoBytes;

use crate::sys::Batch;
use crate::{Error, decode};

/// Reads and writes those maps.
#[derive(Default)]
pub(crate) struct Placement {
    residency: Batch<abi::ResidencyKey, u64>,
    vms: Batch<u32, abi::Vm>,
    /// Entries of the map `residency` when it was last read.
    pub(crate) residency_entries: Option<u64>,
}

impl Placement {
    /// Tells the programs where each CPU is.
    pub(crate) fn set_places(map: &MapHandle, host: &HostTopology) -> Result<(), Error> {
        for cpu in 0..map.max_entries() {
            let place = place(host.place(cpu));
            map.update(cpu.as_bytes(), place.as_bytes(), MapFlags::ANY)
                .map_err(|cause| Error::Map {
                    map: "places",
                    cause,
                })?;
        }
        Ok(())
    }

    /// Where all vCPUs ran up to their last moves.
    pub(crate) fn residency(&mut self, map: &MapHandle) -> Result<Vec<ResidencyFact>, Error> {
        let mut facts = Vec::new();
        self.residency
            .read(map.as_fd(), |key, run_ns| {
                facts.extend(decode::residency(key, *run_ns));
            })
            .map_err(failed("residency"))?;
        self.residency_entries = Some(facts.len() as u64);
        Ok(facts)
    }

    /// How often the vCPUs of each VM moved.
    pub(crate) fn moves(&mut self, map: &MapHandle) -> Result<Vec<(VmKey, Moves)>, Error> {
        let mut moves = Vec::new();
        self.vms
            .read(map.as_fd(), |tgid, vm| {
                let key = VmKey {
                    start_ns: vm.start_ns,
                    tgid: *tgid,
                };
                moves.push((key, decode::moves(&vm.moves)));
            })
            .map_err(failed("vms"))?;
        Ok(moves)
    }

    /// Drops where the vCPUs of VMs that are gone ran.
    pub(crate) fn forget(&mut self, map: &MapHandle, gone: &HashSet<VmKey>) -> Result<(), Error> {
        let mut keys = Vec::new();
        self.residency
            .read(map.as_fd(), |key, _| {
                if matches!(decode::owner(key.owner), Owner::Vm(vm) if gone.contains(&vm)) {
                    keys.push(*key);
                }
            })
            .map_err(failed("residency"))?;
        for key in &keys {
            match map.delete(key.as_bytes()) {
                Err(cause) if cause.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(Error::Map {
                        map: "residency",
                        cause,
                    });
                }
                _ => {}
            }
        }
        Ok(())
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

fn failed(map: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |cause| Error::Map {
        map,
        cause: cause.into(),
    }
}
