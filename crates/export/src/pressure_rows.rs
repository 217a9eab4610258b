//! The families on pressure stall information.

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::known;

pub(crate) const PRESSURE_FAMILIES: &[Family] = &[Family {
    name: "virtlens_pressure_seconds_total",
    kind: Kind::Counter,
    profile: Some(Profile::Full),
    unit: Some("seconds"),
    help: "Time for which tasks of the pod's cgroup (without a pod: of the machine's) were \
           stalled on a resource (cpu, memory, io, irq): at least one task (some), or all tasks \
           that were not idle (full). The kernel updates it every 2 s. cgroup v2 only.",
    own_labels: &["resource", "kind"],
    rows: Rows::Vm(|vm, rows| {
        known(vm.pressure, |pressure| {
            let mut values = pressure.by_name().into_iter();
            values.try_for_each(|(resource, kind, ns)| {
                known(ns, |ns| rows.seconds(&[resource.into(), kind.into()], ns))
            })
        })
    }),
}];
