//! The command line of a VMM and the names of its threads.

use virtlens_host::{parse_cmdline, vcpu_number};
use virtlens_model::facts::{ProcessFact, ThreadKind};
use virtlens_model::identify::features::of_arguments;
use virtlens_model::identify::roles::{Traits, role_of};
use virtlens_model::identify::vmm::{Vmm, identify};
use virtlens_model::vocab::{Comm, Role};

/// `data` is the `cmdline` of a process; the first argument is its file.
pub fn command_line(data: &[u8]) {
    let args = parse_cmdline(data);
    assert_eq!(args.is_empty(), data.is_empty());
    let comm = Comm::new(data);
    let _ = vcpu_number(comm.as_bytes());
    let process = ProcessFact {
        exe: args.first().cloned(),
        comm,
        args,
    };
    let identity = identify(&process);
    if let Some(name) = &identity.name {
        assert!((1..=253).contains(&name.len()), "{name:?}");
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
    assert!(identity.guest_nodes.is_none_or(|nodes| nodes > 0));
    let args = process.args.get(1..).unwrap_or_default();
    for vmm in Vmm::ALL {
        let features = of_arguments(vmm, args);
        if features.free_page_reporting.enabled == Some(true) {
            assert_eq!(features.balloon.enabled, Some(true), "it is the balloon's");
        }
        check_roles(vmm, comm);
    }
}

/// A name decides between roles, but never makes a thread a vCPU.
fn check_roles(vmm: Vmm, comm: Comm) {
    for kind in [
        ThreadKind::User,
        ThreadKind::IoWorker,
        ThreadKind::UserWorker,
        ThreadKind::Kthread,
    ] {
        for in_vmm in [false, true] {
            let role = role_of(&Traits {
                kind,
                is_vcpu: false,
                in_vmm,
                vmm,
                comm,
                process_comm: comm,
            });
            assert_ne!(role, Some(Role::Vcpu));
        }
    }
}
