//! The study's capped pod, with all loads at once on 1.25 cores, compared with a program
//! that records each throttling of each run queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore as _, Object, ObjectBuilder, RingBufferBuilder};
use virtlens_model::snapshot::{Quota, RoleUse, Snapshot};
use virtlens_model::vocab::{Role, Scope, Throttle};
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, CAPPED_US, Reader, burned, millis};

/// An event of the oracle; the fields are in the order of `struct event`.
#[derive(Debug, Clone, Copy)]
struct Event {
    time_ns: u64,
    cgroup: u64,
    queue: u64,
    clock: u64,
    throttled_clock: u64,
    kind: u32,
    is_throttled: bool,
    tid: u32,
    cpu: u32,
}

const THROTTLED: u32 = 0;
const BEFORE_UNTHROTTLE: u32 = 1;

impl Event {
    fn of(bytes: &[u8]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        Self {
            time_ns: long(0),
            cgroup: long(8),
            queue: long(16),
            clock: long(24),
            throttled_clock: long(32),
            kind: short(40),
            is_throttled: short(44) != 0,
            tid: short(48),
            cpu: short(52),
        }
    }
}

struct Oracle {
    object: Object,
    _links: Vec<Link>,
}

impl Oracle {
    fn attach() -> Self {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/throttle.bpf.o"));
        let open = ObjectBuilder::default().open_memory(bytes);
        let object = open.expect("it is an object").load();
        let object = object.expect("the kernel takes the oracle");
        let links = object.progs_mut().map(|program| program.attach());
        let links = links.collect::<Result<_, _>>();
        Self {
            _links: links.expect("it can be attached"),
            object,
        }
    }

    /// All events so far.
    fn events(&self) -> Vec<Event> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let map = self.object.maps().find(|map| map.name() == "events");
        let map = map.expect("it has the map");
        let mut ring = RingBufferBuilder::new();
        ring.add(&map, move |bytes| {
            into.lock().expect("nobody panics").push(Event::of(bytes));
            0
        })
        .expect("it is a ring");
        ring.build()
            .expect("it can be mapped")
            .consume()
            .expect("it can be read");
        seen.lock().expect("nobody panics").clone()
    }
}

/// Sums of the events of one cgroup.
#[derive(Debug, Default)]
struct Truth {
    throttles: u64,
    unthrottles: u64,
    /// Sum of the throttled times of all run queues, ns.
    throttled_ns: u64,
    /// Begin and end of each throttled time.
    throttled: Vec<(u64, u64)>,
    /// How often each thread was running when the quota ran out.
    ran: BTreeMap<u32, u64>,
}

impl Truth {
    fn of(events: &[Event], cgroup: u64) -> Self {
        let mut truth = Self::default();
        // Keyed by the CPU that unthrottles, and the run queue.
        let mut open: HashMap<(u32, u64), Event> = HashMap::new();
        for event in events.iter().filter(|event| event.cgroup == cgroup) {
            match event.kind {
                THROTTLED => {
                    truth.throttles += 1;
                    *truth.ran.entry(event.tid).or_default() += 1;
                }
                BEFORE_UNTHROTTLE => drop(open.insert((event.cpu, event.queue), *event)),
                _ => {
                    let before = open.remove(&(event.cpu, event.queue));
                    let Some(before) = before.filter(|one| one.is_throttled) else {
                        continue;
                    };
                    if event.is_throttled {
                        continue;
                    }
                    truth.unthrottles += 1;
                    if before.throttled_clock != 0 {
                        let throttled_ns = event.clock - before.throttled_clock;
                        truth.throttled_ns += throttled_ns;
                        truth
                            .throttled
                            .push((event.time_ns - throttled_ns, event.time_ns));
                    }
                }
            }
        }
        truth
    }

    /// Time during which at least one run queue was throttled, ns.
    fn wall_ns(&self) -> u64 {
        let mut throttled = self.throttled.clone();
        throttled.sort_unstable();
        let mut until = 0;
        throttled
            .iter()
            .map(|(from, to)| {
                let more = to.saturating_sub(until.max(*from));
                until = until.max(*to);
                more
            })
            .sum()
    }
}

/// The threads of each role, from the rig's file.
pub(crate) fn threads(pod: &Pod) -> BTreeMap<Role, Vec<(u32, i32)>> {
    let of_vmm = |tids: &[u32]| -> Vec<(u32, i32)> {
        tids.iter()
            .map(|tid| (pod.vmm_pid, tid.cast_signed()))
            .collect()
    };
    let virtiofsd = pod.virtiofsd_pids.iter().flat_map(|pid| {
        let tids = virtlens_tests::process::tids(*pid);
        tids.into_iter().map(|tid| (*pid, tid))
    });
    BTreeMap::from([
        (Role::Vcpu, of_vmm(&pod.vcpu_tids)),
        (Role::Iothread, of_vmm(&pod.iothread_tids)),
        (Role::Virtiofsd, virtiofsd.collect()),
        (
            Role::Vhost,
            pod.vhost_tids()
                .iter()
                .map(|tid| (*tid, tid.cast_signed()))
                .collect(),
        ),
    ])
}

/// The level of the pod's cgroup.
fn level<'a>(snapshot: &'a Snapshot, pod: &Pod) -> &'a Quota {
    let levels = &pods::vm(snapshot, pod).quota;
    let level = levels.iter().find(|one| one.scope == Scope::Pod);
    level.expect("a pod has a level")
}

fn throttle(snapshot: &Snapshot, pod: &Pod) -> Throttle {
    level(snapshot, pod)
        .throttle
        .expect("throttling is followed")
}

fn within(percent: u64, reported: u64, truth: u64) -> bool {
    reported.abs_diff(truth) * 100 <= truth * percent
}

#[test]
fn capped_pod_reports_quota_use_by_role_and_throttled_time() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let threads = threads(&pod);
    let all: Vec<(u32, i32)> = threads.values().flatten().copied().collect();
    let oracle = Oracle::attach();
    let before = reader.at_rest(&all);
    oracle.events(); // The first reading contains these.
    let times = |roles: &BTreeMap<Role, Vec<(u32, i32)>>| -> BTreeMap<Role, Vec<u64>> {
        roles
            .iter()
            .map(|(role, its)| (*role, pods::times(its)))
            .collect()
    };
    let (began, low) = (Instant::now(), times(&threads));
    for load in ["vhost", "virtiofs", "cpu"] {
        reader.scenario.start(load).expect("the load starts");
    }
    reader.with_quota(&pod, CAPPED_US, |_| sleep(Duration::from_secs(3)));
    for load in ["cpu", "virtiofs", "vhost"] {
        reader.scenario.stop(load).expect("the load stops");
    }
    let after = reader.at_rest(&all);
    let (elapsed_ns, high) = (began.elapsed().as_nanos(), times(&threads));
    let cgroup = reader.scenario.cgroup_root.join(&pod.pod_cgroup);
    let id = fs::metadata(&cgroup).expect("the pod's cgroup").ino();
    let truth = Truth::of(&oracle.events(), id);

    let (first, last) = (&before.snapshot, &after.snapshot);
    let used = |snapshot, role| level(snapshot, &pod).used_ns.get(&role).copied();
    for (role, its) in &threads {
        let truth = burned(&low[role], &high[role]);
        let reported = used(last, *role).unwrap_or(0) - used(first, *role).unwrap_or(0);
        println!(
            "{}: reported {} ms, burned {} ms",
            role.name(),
            millis(reported),
            millis(truth)
        );
        // Before v6.1 a vhost kernel thread is in no cgroup of the pod on v2.
        let outside = pods::vm(last, &pod)
            .roles
            .iter()
            .find(|one| one.role == *role);
        if outside.and_then(|one| one.outside_pod) == u32::try_from(its.len()).ok() {
            assert_eq!(reported, 0, "{} is in another cgroup", role.name());
        } else {
            assert!(
                reported.abs_diff(truth) <= (truth / 50).max(1_000_000),
                "{}: reported {reported}, burned {truth}",
                role.name()
            );
        }
    }

    let (low, high) = (throttle(first, &pod), throttle(last, &pod));
    let wall_ns = high.wall_ns - low.wall_ns;
    let throttled_ns = high.unthrottles.sum_ns - low.unthrottles.sum_ns;
    println!(
        "throttled {} ms of {} ms: truth {} ms; summed {} ms: truth {} ms; {} throttles, {} ends",
        millis(wall_ns),
        elapsed_ns / 1_000_000,
        millis(truth.wall_ns()),
        millis(throttled_ns),
        millis(truth.throttled_ns),
        truth.throttles,
        truth.unthrottles,
    );
    assert!(truth.unthrottles > 10, "it is not capped: {truth:?}");
    assert_eq!(high.throttles - low.throttles, truth.throttles);
    assert_eq!(
        high.unthrottles.count() - low.unthrottles.count(),
        truth.unthrottles
    );
    assert_eq!(throttled_ns, truth.throttled_ns);
    assert!(
        within(1, wall_ns, truth.wall_ns()),
        "{wall_ns} ns, truth {} ns of {:?}",
        truth.wall_ns(),
        truth.throttled
    );
    assert!(u128::from(wall_ns) <= elapsed_ns);

    let kernel_ns = level(last, &pod).throttled_ns - level(first, &pod).throttled_ns;
    assert_eq!(throttled_ns, kernel_ns, "the kernel adds the same times");
    let file = reader.cpu_stat(&pod);
    let reported = level(last, &pod);
    assert_eq!(reported.throttled_ns / 1000, file.throttled_us);
    assert_eq!(reported.throttled_periods, file.throttled);
    assert!(reported.periods <= file.periods && file.periods - reported.periods <= 2);

    let hits = |snapshot, role| {
        let of = |one: &RoleUse| one.throttle_hits.expect("throttling is followed");
        pods::role(pods::vm(snapshot, &pod), role).map_or(0, of)
    };
    for (role, its) in &threads {
        let tids: BTreeSet<u32> = its.iter().map(|(_, tid)| tid.cast_unsigned()).collect();
        let ran = truth.ran.iter().filter(|(tid, _)| tids.contains(tid));
        let truth: u64 = ran.map(|(_, times)| times).sum();
        let reported = hits(last, *role) - hits(first, *role);
        println!(
            "{}: ran {reported} times when the quota ran out",
            role.name()
        );
        assert_eq!(reported, truth, "hits of {}", role.name());
    }
}
