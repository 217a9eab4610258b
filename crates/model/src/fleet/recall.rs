//! What the next agent is told of the VMs, and what this one was told.
//!
//! The kernel's totals are there for every agent. What only an agent knows is told
//! from one to the next: names, and what is added to those totals or taken off them.
//!
//! ```text
//! told by the agent before ──► still runs ──► admitted with its name and its ledger
//!                          └─► has ended meanwhile ──► read once more, then as any
//!                                                      VM that ends: it lingers, one
//!                                                      of its name takes over
//! ```

use rustc_hash::FxHashSet;

use crate::facts::Facts;
use crate::fleet::kept::Kept;
use crate::fleet::member::Member;
use crate::fleet::registry::Fleet;
use crate::identify::place::by_id;
use crate::vocab::VmKey;

impl Fleet {
    /// What the next agent is to find and would not yet. To be asked after each
    /// [`Fleet::account`], and kept before what that returned as gone is forgotten: a
    /// VM that took another's counters over has them from there. What was written is
    /// [`Fleet::saved`].
    pub fn unsaved(&self) -> Vec<(VmKey, Kept)> {
        let is_new = |member: &Member| member.saved != Some(member.ledger.changes);
        let new = self.vms.iter().filter(|(_, member)| is_new(member));
        new.map(|(vm, member)| (*vm, Kept::of(member))).collect()
    }

    /// The next agent will find this of the VM.
    pub fn saved(&mut self, vm: VmKey, kept: &Kept) {
        if let Some(member) = self.vms.get_mut(&vm) {
            member.saved = Some(kept.ledger.changes);
        }
    }

    /// Takes up what an agent before this one knew, at the first reading and before
    /// any VM is admitted.
    pub fn recall(&mut self, kept: Vec<(VmKey, Kept)>, facts: &Facts, now_ns: u64) {
        let held: FxHashSet<VmKey> = facts.held().collect();
        let (running, mut ended): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|(vm, _)| held.contains(vm));
        self.recalled = running.into_iter().collect();
        // Two of one name: the newer one took the counters of the other over.
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
