//! The family of findings on VMs.

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;

pub(crate) const FINDING_FAMILIES: &[Family] = &[Family {
    name: "virtlens_finding",
    kind: Kind::Gauge,
    profile: Some(Profile::Minimal),
    unit: None,
    help: "1 for each check that the VM fails. Findings are judged over the time since the \
           previous judgement (10 s or more, unless CPUs were hot-plugged); virtlens doctor \
           --checks lists the checks.",
    own_labels: &["check", "severity"],
    rows: Rows::Vm(|vm, rows| {
        vm.findings
            .iter()
            .flat_map(|findings| findings.iter())
            .try_for_each(|one| {
                rows.count(&[one.check.name().into(), one.severity.name().into()], 1)
            })
    }),
}];
