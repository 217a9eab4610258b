//! Selects VMs by name.

use std::borrow::Cow;

use virtlens_model::snapshot::Vm;

use crate::nearest::nearest;
use crate::term::printable;

/// Display name of the VM: its pod's NAMESPACE/NAME if known, else its name with ids
/// shortened.
pub fn name_of(vm: &Vm) -> String {
    pod_of(vm).unwrap_or_else(|| printable(&short(&vm.vm)))
}

/// The name for programs: ids are not shortened.
pub fn whole_name_of(vm: &Vm) -> String {
    pod_of(vm).unwrap_or_else(|| printable(&vm.vm))
}

fn pod_of(vm: &Vm) -> Option<String> {
    let (namespace, pod) = vm.namespace.as_ref().zip(vm.pod.as_ref())?;
    Some(printable(&format!("{namespace}/{pod}")))
}

/// Number of hex digits in the id of a sandbox or container.
const ID_DIGITS: usize = 64;

/// Number of displayed digits, as in Docker: no two ids on a node share them.
const SHOWN_DIGITS: usize = 12;

/// The name with its id shortened. A whole id fills a line of a terminal.
fn short(name: &str) -> Cow<'_, str> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let runs = name
        .as_bytes()
        .chunk_by(|one, next| is_hex(one) == is_hex(next));
    let (mut at, mut id) = (0, None);
    for run in runs {
        if run.len() == ID_DIGITS && run.iter().all(is_hex) {
            id = Some(at);
        }
        at += run.len();
    }
    let cut = id.and_then(|at| {
        let start = name.get(..at + SHOWN_DIGITS)?;
        Some(format!("{start}{}", name.get(at + ID_DIGITS..)?))
    });
    cut.map_or(name.into(), Cow::from)
}

/// Whether `wanted` names `vm`: by its whole or displayed name, its pod's NAMESPACE/NAME,
/// its pod's uid, or its VMM's pid.
pub fn is_called(vm: &Vm, wanted: &str) -> bool {
    let pod = vm.namespace.as_deref().zip(vm.pod.as_deref());
    *vm.vm == *wanted
        || *short(&vm.vm) == *wanted
        || vm.uid.as_deref() == Some(wanted)
        || vm.pid.to_string() == wanted
        || pod.is_some_and(|(namespace, pod)| {
            wanted.split_once('/') == Some((namespace, pod)) || pod == wanted
        })
}

/// No VM has the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; run `virtlens snapshot` to list all VMs", self.alone())]
pub struct NoSuchVm {
    wanted: String,
    nearest: Vec<String>,
}

impl NoSuchVm {
    /// The error without the command that lists VMs.
    pub(crate) fn alone(&self) -> String {
        let wanted = &self.wanted;
        match self.nearest.as_slice() {
            [] => format!("VM {wanted} not found"),
            [one] => format!("VM {wanted} not found; the nearest name is {one}"),
            more => {
                let names = more.join(", ");
                format!("VM {wanted} not found; the nearest names are {names}")
            }
        }
    }
}

/// Returns the `vms` with the name `wanted`, or all without a name.
///
/// # Errors
///
/// If there is none, with the nearest names.
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

/// The accepted names of a VM, including the pod without its namespace, each with the
/// name to suggest.
fn spellings(vm: &Vm) -> impl Iterator<Item = (String, String)> {
    let name = name_of(vm);
    let spellings = [
        Some(vm.vm.to_string()),
        vm.pod.as_deref().map(str::to_owned),
    ];
    let spellings = spellings.into_iter().flatten().chain([name.clone()]);
    spellings.map(move |spelling| (spelling, name.clone()))
}

#[cfg(test)]
mod tests {
    use virtlens_model::snapshot::Vm;

    use super::{is_called, name_of, whole_name_of};

    fn named(name: &str) -> Vm {
        Vm {
            vm: name.into(),
            ..Vm::default()
        }
    }

    #[test]
    fn kata_id_is_shown_short_and_found_by_short_and_full_form() {
        let id = "24f4d524e9243aac18c77400bfe3985d4c50164797e980f6f686d4e83c908f39";
        let whole = format!("sandbox-{id}");
        let mut vm = named(&whole);
        assert_eq!(name_of(&vm), "sandbox-24f4d524e924");
        assert_eq!(whole_name_of(&vm), whole);
        for wanted in [&*whole, "sandbox-24f4d524e924"] {
            assert!(is_called(&vm, wanted), "{wanted}");
        }
        let less = "sandbox-24f4d524";
        assert!(!is_called(&vm, less), "it may be another's");
        (vm.namespace, vm.pod) = (Some("shop".into()), Some("web-0".into()));
        assert_eq!(name_of(&vm), "shop/web-0");
    }

    #[test]
    fn name_without_kata_id_is_not_shortened() {
        let (long, almost) = ("ab".repeat(40), "0".repeat(63));
        for name in ["db-01", "deadbeef", &long, "", "kata_é", &almost] {
            assert_eq!(name_of(&named(name)), name);
        }
        let second = named(&format!("{}-2", "0".repeat(64)));
        assert_eq!(name_of(&second), "000000000000-2");
    }
}
