//! How the roles of a pod use its CPU limit.

use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use virtlens::collect::{Collector, Options};
use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::{Role, Scope};
use virtlens_vmtest::scenario::Pod;

/// Length of the interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// Usage of the limit in an interval, as `virtlens snapshot` reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Namespace and name of the pod.
    pub(crate) pod: String,
    /// Name and kernel of the node.
    pub(crate) node: String,
    /// Length of the interval, seconds.
    pub(crate) seconds: f64,
    /// The limit, cores.
    pub(crate) limit_cores: f64,
    /// Share of the time in which the limit was throttled on at least one CPU.
    pub(crate) throttled: f64,
    /// CPU time charged to the limit by role, cores; only roles with threads.
    pub(crate) roles: Vec<(String, f64)>,
}

impl Usage {
    /// Measures a pod that is called `name`.
    pub(crate) fn measure(name: &str, pod: &Pod) -> Self {
        let mut collector = Collector::open(&Options::default()).expect("the host can be read");
        // A vCPU is found when it is first seen inside KVM_RUN.
        for _ in 0..10 {
            collector.collect();
            sleep(Duration::from_millis(50));
        }
        let first = collector.collect();
        sleep(INTERVAL);
        let last = collector.collect();
        let length_ns = last.clock_ns - first.clock_ns;
        let over = Interval::between(vm(&first, pod), vm(&last, pod), length_ns);
        let mut limits = over.limits();
        let limit = limits.find(|limit| limit.now.scope == Scope::Pod);
        let limit = limit.expect("the pod has a limit");
        let throttled_ns = limit.wall_ns.expect("throttling is tracked");
        let of_role = |role: Role| Some((role.name().to_owned(), over.cores(limit.of(role)?)));
        let mut roles: Vec<_> = Role::ALL.into_iter().filter_map(of_role).collect();
        let unattributed = over.cores(over.unattributed_cpu_ns());
        roles.push(("unattributed".to_owned(), unattributed));
        Self {
            pod: name.to_owned(),
            node: format!("{}, Linux {}", last.node.name, last.node.kernel),
            seconds: Duration::from_nanos(length_ns).as_secs_f64(),
            limit_cores: limit.cores,
            throttled: over.cores(throttled_ns),
            roles,
        }
    }
}

fn vm<'s>(snapshot: &'s Snapshot, pod: &Pod) -> &'s Vm {
    let found = snapshot.vms.iter().find(|vm| vm.pid == pod.vmm_pid);
    found.unwrap_or_else(|| panic!("the pod has no VM: {:?}", snapshot.sources))
}
