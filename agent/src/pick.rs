//! Which VM is meant by a name.

use virtlens_model::snapshot::Vm;

use crate::nearest::nearest;
use crate::paint::printable;

/// What people call the VM: its pod's NAMESPACE/NAME, where that is known.
pub fn name_of(vm: &Vm) -> String {
    let name = match (&vm.namespace, &vm.pod) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        _ => vm.vm.to_string(),
    };
    printable(&name)
}

/// Whether `vm` is called `wanted`: by its name, its pod's NAMESPACE/NAME, its
/// pod's uid, or its VMM's pid.
pub fn is_called(vm: &Vm, wanted: &str) -> bool {
    let pod = vm.namespace.as_deref().zip(vm.pod.as_deref());
    *vm.vm == *wanted
        || vm.uid.as_deref() == Some(wanted)
        || vm.pid.to_string() == wanted
        || pod.is_some_and(|(namespace, pod)| {
            wanted.split_once('/') == Some((namespace, pod)) || pod == wanted
        })
}

/// There is no VM of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no VM {wanted}; {}`virtlens snapshot` shows all that there are", self.hint())]
pub struct NoSuchVm {
    wanted: String,
    nearest: Vec<String>,
}

impl NoSuchVm {
    fn hint(&self) -> String {
        match self.nearest.as_slice() {
            [] => String::new(),
            [one] => format!("the nearest name is {one}; "),
            more => format!("the nearest names are {}; ", more.join(", ")),
        }
    }
}

/// Those of `vms` that are called `wanted`; all if nothing is wanted.
///
/// # Errors
///
/// When there is none, with the nearest names.
pub fn pick<'v>(vms: &'v [Vm], wanted: Option<&str>) -> Result<Vec<&'v Vm>, NoSuchVm> {
    let Some(wanted) = wanted else {
        return Ok(vms.iter().collect());
    };
    let picked: Vec<&Vm> = vms.iter().filter(|vm| is_called(vm, wanted)).collect();
    if picked.is_empty() {
        return Err(NoSuchVm {
            wanted: printable(wanted),
            nearest: nearest(wanted, vms.iter().flat_map(spellings)),
        });
    }
    Ok(picked)
}

/// How a VM may be called, a pod without its namespace too, each with the name to offer.
fn spellings(vm: &Vm) -> impl Iterator<Item = (String, String)> {
    let name = name_of(vm);
    let spellings = [
        Some(vm.vm.to_string()),
        vm.pod.as_deref().map(str::to_owned),
    ];
    let spellings = spellings.into_iter().flatten().chain([name.clone()]);
    spellings.map(move |spelling| (spelling, name.clone()))
}
