//! Findings from one reading to the next.

use std::sync::Arc;

use super::{WINDOW, fresh, names, use_cpu};
use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::watch::Watch;
use crate::snapshot::{API_VERSION, Node, Snapshot, Vm};
use crate::vocab::Role;

fn reading(clock_ns: u64, vms: Vec<Vm>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        api_version: API_VERSION,
        kind: "Snapshot",
        time: String::new(),
        clock_ns,
        reading_age_ns: Some(0),
        node: Node {
            name: String::new(),
            kernel: String::new(),
            cpus: 1,
            cgroup: "v2",
        },
        host: Arc::default(),
        sources: Vec::new(),
        dropped: Vec::new(),
        maps: Vec::new(),
        programs: Vec::new(),
        vms,
    })
}

#[test]
fn watch_judges_between_two_readings() {
    let mut watch = Watch::new(Bounds::default());
    let shown = |watch: &Watch, vm: &Vm| {
        let found = watch.findings(vm);
        found.map(|found| names(&found))
    };
    let mut vm = fresh();
    watch.judge(&[vm.clone()], 0);
    assert_eq!(shown(&watch, &vm), None, "no earlier reading");
    watch.begin(&reading(0, vec![vm.clone()]));

    use_cpu(&mut vm, Role::Vhost, 900);
    use_cpu(&mut vm, Role::Vcpu, 1000);
    watch.judge(&[vm.clone()], WINDOW);
    assert_eq!(shown(&watch, &vm), Some(vec!["vhost_saturated"]));
    watch.begin(&reading(WINDOW, vec![vm.clone()]));
    watch.judge(&[vm.clone()], 2 * WINDOW);
    assert_eq!(shown(&watch, &vm), Some(vec![]), "the VM is idle");

    // Restarted in place: the counters belong to another process.
    let again = Vm {
        pid: 8,
        ..vm.clone()
    };
    watch.judge(std::slice::from_ref(&again), 3 * WINDOW);
    assert_eq!(shown(&watch, &again), None);
    let gone = Vm {
        running: false,
        ..vm
    };
    watch.judge(std::slice::from_ref(&gone), 3 * WINDOW);
    assert_eq!(shown(&watch, &gone), None);
}
