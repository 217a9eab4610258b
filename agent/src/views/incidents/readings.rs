//! The readings of an incident's VM.

use std::io;
use std::path::Path;

use virtlens_model::judge::around::Reading;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_record::{Incident, Lost, Recording};

/// Most readings of an incident that are compared: one a second for longer than it lasts.
const MAX_READINGS: usize = 1000;

/// Reads the readings of the VM of an incident in `directory`, as far as `seen` shows them.
/// Unreadable parts go to `lost`.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn readings(
    incident: &Incident,
    directory: &Path,
    seen: impl Fn(Snapshot) -> Snapshot,
    mut lost: impl FnMut(Lost),
) -> io::Result<Vec<Reading>> {
    let (recording, refused) = Recording::open(directory)?;
    for error in refused {
        lost(error.into());
    }
    let time = incident.from_ns..incident.until_ns.saturating_add(1);
    let mut readings = Vec::new();
    for recorded in recording.between(time).take(MAX_READINGS) {
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                lost(error);
                continue;
            }
        };
        let snapshot = seen(recorded.snapshot);
        let clock_ns = snapshot.clock_ns;
        let mut vms = snapshot.vms.into_iter();
        let vm = vms.find(|vm| incident.vm.is(vm));
        readings.extend(vm.map(|vm| Reading {
            unix_ns: recorded.unix_ns,
            clock_ns,
            vm: without_threads(vm),
        }));
    }
    Ok(readings)
}

/// Only roles and vCPUs are compared; many readings are in memory at once.
fn without_threads(vm: Vm) -> Vm {
    Vm {
        threads: Vec::new(),
        topology: None,
        ..vm
    }
}
