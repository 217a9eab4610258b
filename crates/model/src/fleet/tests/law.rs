//! The conservation law.

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{POD, facts, read, retired, thread, vcpu, vm};
use crate::facts::{Facts, Owner, ResidencyFact, ThreadFact};
use crate::fleet::Fleet;

/// What a host does to a VM between two readings.
#[derive(Debug, Clone)]
enum Step {
    Run(usize, u64),
    Born,
    Ends(usize),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..8, 1u64..1_000_000).prop_map(|(who, ns)| Step::Run(who, ns)),
        1 => Just(Step::Born),
        1 => (1usize..8).prop_map(Step::Ends),
        3 => Just(Step::Read),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    /// The conservation law, under any order of birth, work and death: the
    /// roles and what is unattributed are all that the pod's threads used.
    #[test]
    fn what_is_shown_is_what_was_used(steps in steps()) {
        let mut fleet = Fleet::new(0);
        let own = Owner::Vm(vm(100));
        let mut used = 0;
        let mut next_tid = 101;
        let mut living = vec![vcpu(vm(100), 100, 0, 0)];
        let mut ended = Vec::new();
        for step in steps {
            match step {
                Step::Run(who, ns) => {
                    let who = who % living.len();
                    living[who].cpu_ns += ns;
                    used += ns;
                }
                Step::Born => {
                    let owner = if next_tid % 2 == 0 { own } else { Owner::Pod(POD) };
                    living.push(thread(owner, next_tid, "worker", 0));
                    next_tid += 1;
                }
                Step::Ends(who) if living.len() > 1 => {
                    let gone = living.remove(1 + who % (living.len() - 1));
                    ended.push(retired(gone.owner, "worker", gone.cpu_ns));
                }
                Step::Ends(_) => {}
                Step::Read => {
                    let (vms, _) = read(&mut fleet, &facts(living.clone(), ended.clone()), "a", 0);
                    let shown: u64 = vms[0].roles.iter().map(|role| role.cpu_ns).sum();
                    prop_assert_eq!(shown + vms[0].unattributed_cpu_ns, used);
                    prop_assert!(vms[0].vcpus[0].cpu_ns <= used);
                }
            }
        }
    }
}

/// Counters as large as they can be: sums of them end there too.
#[test]
fn sums_end_at_the_largest_number() {
    let most = u64::MAX;
    let vcpus = [(101, 0), (102, 1)].map(|(tid, id)| ThreadFact {
        guest_ns: Some(most),
        ..vcpu(vm(100), tid, id, most)
    });
    let mut ended = retired(Owner::Vm(vm(100)), "CPU 0/KVM", most);
    (ended.class.vcpu_id, ended.guest_ns) = (Some(0), most);
    let ran = ResidencyFact {
        vm: vm(100),
        vcpu_id: 0,
        pcpu: 1,
        run_ns: most,
    };
    let facts = Facts {
        residency: Some(vec![ran, ran]),
        ..facts(vcpus.into(), vec![ended, ended])
    };
    let (vms, _) = read(&mut Fleet::new(0), &facts, "a", 0);
    assert_eq!(vms[0].guest_ns, Some(most));
    assert_eq!(vms[0].vcpus[0].cpu_ns, most);
    assert_eq!(vms[0].vcpus[0].residency_ns[&1], most);
}
