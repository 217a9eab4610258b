//! State that is handed over from one agent to the next.
//!
//! Every agent can read the kernel's totals. Only the agent knows the names and the
//! amounts that are added to these totals or subtracted from them, so it saves them for
//! the next agent.
//!
//! ```text
//! saved by the previous agent ──► VM still runs ──► admitted with its name and ledger
//!                             └─► VM has ended  ──► read once more, then handled as any
//!                                                   ended VM: it lingers, and a VM of
//!                                                   the same name takes over
//! ```

use rustc_hash::FxHashSet;

use crate::facts::Facts;
use crate::fleet::kept::Kept;
use crate::fleet::member::Member;
use crate::fleet::registry::Fleet;
use crate::identify::place::by_id;
use crate::vocab::VmKey;

impl Fleet {
    /// The VMs whose state is not saved yet. Call this after each [`Fleet::account`], and
    /// save the result before dropping the owners that `account` returned: it contains
    /// the counters that a VM took over from another one. Confirm each save with
    /// [`Fleet::saved`].
    pub fn unsaved(&self) -> Vec<(VmKey, Kept)> {
        let is_new = |member: &Member| member.saved != Some(member.ledger.changes);
        let new = self.vms.iter().filter(|(_, member)| is_new(member));
        new.map(|(vm, member)| (*vm, Kept::of(member))).collect()
    }

    /// Confirms that the state of the VM is saved for the next agent.
    pub fn saved(&mut self, vm: VmKey, kept: &Kept) {
        if let Some(member) = self.vms.get_mut(&vm) {
            member.saved = Some(kept.ledger.changes);
        }
    }

    /// Restores the state of the previous agent, at the first reading and before any VM
    /// is admitted.
    pub fn recall(&mut self, kept: Vec<(VmKey, Kept)>, facts: &Facts, now_ns: u64) {
        let held: FxHashSet<VmKey> = facts.held().collect();
        let (running, mut ended): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|(vm, _)| held.contains(vm));
        self.recalled = running.into_iter().collect();
        // If two VMs have the same name, the newer one took over the counters of the
        // other.
        ended.sort_unstable_by_key(|(vm, _)| std::cmp::Reverse(*vm));
        let cgroups = by_id(facts);
        for (vm, kept) in ended {
            let is_taken = self.recalled.values().any(|one| one.name == kept.name)
                || self.vms.values().any(|one| one.name == kept.name);
            if !is_taken {
                let member = kept.ended(now_ns, |cgroup| cgroups.contains_key(&cgroup));
                self.vms.insert(vm, member);
                self.changes += 1;
            }
        }
        let ended: Vec<VmKey> = self.vms.keys().copied().collect();
        self.read_last(&ended, facts);
    }
}
