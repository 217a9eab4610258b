//! Removes the data of owners that no longer exist.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::vocab::{Owner, VmKey};
use zerocopy::IntoBytes as _;

use super::TaskPass;
use crate::sys::map::Batch;
use crate::{Error, decode};

impl TaskPass {
    /// Removes all data of owners that no longer exist.
    ///
    /// # Errors
    /// [`Error::Map`]: the removal is incomplete; a call with the same owners does the
    /// rest.
    pub fn forget(&mut self, owners: &FxHashSet<Owner>) -> Result<(), Error> {
        if owners.is_empty() {
            return Ok(());
        }
        // First, because a failed call may have removed some entries.
        self.remembered = None;
        self.placement.forget_keys();
        self.retired.forget(&self.maps, owners)?;
        self.throttle.forget(&self.maps, owners)?;
        self.placement.forget_children(&self.maps, owners)?;
        let gone: FxHashSet<VmKey> = owners
            .iter()
            .filter_map(|owner| {
                if let Owner::Vm(vm) = owner {
                    Some(*vm)
                } else {
                    None
                }
            })
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        for vm in &gone {
            self.known.remove(vm);
            self.decoder.forget(*vm);
            self.forget_vm(*vm)?;
        }
        self.search.forget(&gone);
        self.placement.forget(&self.maps, &gone)?;
        self.memory.forget(&self.maps, &gone)?;
        self.handover.forget(&self.maps, &gone)?;
        self.forget_mms(&gone)
    }

    fn forget_vm(&self, vm: VmKey) -> Result<(), Error> {
        let known: Option<abi::map::Vm> = self.maps.get("vms", vm.tgid.as_bytes())?;
        // Another VM may have this pid by now.
        if known.is_some_and(|known| known.start_ns == vm.start_ns) {
            self.maps.delete("vms", vm.tgid.as_bytes())?;
        }
        Ok(())
    }

    fn forget_mms(&self, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        let mut keys: Vec<u64> = Vec::new();
        let mut batch = Batch::<u64, abi::Owner>::default();
        self.maps.each("vm_mms", &mut batch, |mm, owner| {
            if matches!(decode::owner(*owner), Owner::Vm(vm) if gone.contains(&vm)) {
                keys.push(*mm);
            }
        })?;
        let delete = |mm: &u64| self.maps.delete("vm_mms", mm.as_bytes());
        keys.iter().try_for_each(delete)
    }
}
