//! Names of VMs on a node.

use rustc_hash::FxHashSet;

use crate::facts::Facts;
use crate::fleet::kept::Kept;
use crate::fleet::member::Member;
use crate::fleet::registry::Fleet;
use crate::vocab::{Pods, VmKey};

impl Member {
    /// Looks up its pod by the uid in the cgroup path.
    pub(super) fn learn_pod(&mut self, pods: &Pods) {
        let place = self.place.as_ref();
        let uid = place.and_then(|place| place.location.uid.as_deref());
        if let Some(pod) = uid.and_then(|uid| pods.get(uid)) {
            self.pod = Some(pod.clone());
        }
    }
}

impl Fleet {
    /// An ended VM with this name in the same pod (or in no pod).
    pub(super) fn predecessor(
        &self,
        name: &str,
        uid: Option<&str>,
        facts: &Facts,
    ) -> Option<VmKey> {
        let called_so = self.vms.iter().find(|(_, member)| {
            let place = member.place.as_ref();
            let its_uid = place.and_then(|place| place.location.uid.as_deref());
            *member.name == *name && its_uid == uid
        });
        let (vm, member) = called_so?;
        let has_ended = || member.ended_ns.is_some() || facts.held().all(|held| held != *vm);
        has_ended().then_some(*vm)
    }

    /// Returns `wanted`, or if another VM has this name, the name with the pid appended,
    /// or if that is taken too, also with a number. The number is needed because tenants
    /// choose names, and an ended VM can have had the same pid.
    pub(super) fn free_name(&self, wanted: String, vm: VmKey) -> String {
        let members = self.vms.values().map(|member| &*member.name);
        let recalled = self.recalled.values().map(Kept::name);
        let taken: FxHashSet<&str> = members.chain(recalled).collect();
        let is_free = |name: &String| !taken.contains(&**name);
        let with_pid = format!("{wanted}-{}", vm.tgid);
        let numbered = (2..=u32::MAX).map(|number| format!("{with_pid}-{number}"));
        [wanted, with_pid.clone()]
            .into_iter()
            .chain(numbered)
            .find(is_free)
            .unwrap_or(with_pid)
    }
}
