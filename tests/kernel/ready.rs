//! Timeslices, involuntary switches and co-stop of vCPUs, compared with /proc and with the
//! slices of a trace.

use std::process::Command;

use virtlens_model::judge::interval::Interval;
use virtlens_model::judge::ready::ready;
use virtlens_model::snapshot::{Snapshot, Vcpu};
use virtlens_model::vocab::Switches;
use virtlens_tests::exposed::Counters;
use virtlens_tests::process::{set_affinity, switches};
use virtlens_tests::reader::{self, vm};
use virtlens_tests::{Minivm, binary, eventually};

fn of_proc(guest: &Minivm, tid: i32) -> Switches {
    switches(guest.pid(), tid).expect("the thread lives")
}

fn of_agent(vcpu: &Vcpu) -> Switches {
    Switches {
        timeslices: vcpu.timeslices.expect("this kernel counts them"),
        involuntary: vcpu.involuntary_switches.expect("this kernel counts them"),
    }
}

#[track_caller]
fn assert_between(low: Switches, found: Switches, high: Switches) {
    let slices = low.timeslices..=high.timeslices;
    let involuntary = low.involuntary..=high.involuntary;
    assert!(
        slices.contains(&found.timeslices) && involuntary.contains(&found.involuntary),
        "{found:?} is not between {low:?} and {high:?}"
    );
}

/// Starts a duty cycle of 40 % on vCPU 1, which then sleeps every 10 ms. Call it once the
/// agent has seen the vCPU, which always runs until then: of a thread that is in user space at
/// its first reading the agent does not know yet that it runs a vCPU, and the switches until
/// then are not the vCPU's.
fn start_duty_cycle(guest: &mut Minivm) {
    guest.command("duty 40 1");
}

/// Two vCPUs on one CPU, which preempt each other.
fn contending() -> Minivm {
    let guest = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    for vcpu in &guest.ready.vcpus {
        set_affinity(vcpu.tid, &[0]);
    }
    guest
}

/// Agents with and without BPF.
#[test]
fn switches_of_vcpus_are_between_two_reads_of_proc() {
    if !reader::ready("switches_of_vcpus_are_between_two_reads_of_proc") {
        return;
    }
    let mut guest = contending();
    let (mut collectors, _without_btf) = reader::collectors();
    start_duty_cycle(&mut guest);
    for _ in 0..5 {
        guest.wait_for_cpu(&[0, 1], 20);
        for collector in &mut collectors {
            let tids = guest.ready.vcpus.iter().map(|vcpu| vcpu.tid);
            let low: Vec<Switches> = tids.clone().map(|tid| of_proc(&guest, tid)).collect();
            let snapshot = collector.collect();
            let vcpus = &vm(&snapshot, guest.pid()).vcpus;
            for ((tid, low), vcpu) in tids.zip(low).zip(vcpus) {
                assert_eq!(vcpu.tid, Some(tid.unsigned_abs()));
                assert_between(low, of_agent(vcpu), of_proc(&guest, tid));
            }
        }
    }
    let preempted = of_proc(&guest, guest.ready.vcpus[0].tid);
    assert!(preempted.involuntary > 0, "the load did not contend");
}

/// Switches that a thread may have from the last read of /proc to its end.
const AT_END: u64 = 100;

#[test]
fn switches_of_ended_vcpu_are_kept() {
    if !reader::ready("switches_of_ended_vcpu_are_kept") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    let pid = guest.pid();
    let mut collector = reader::collector();
    start_duty_cycle(&mut guest);
    let mut counters = Counters::default();
    let mut read = || {
        let snapshot = collector.collect();
        counters.follow(&snapshot);
        snapshot
    };
    let vcpu = |snapshot: &Snapshot| vm(snapshot, pid).vcpus[1].clone();
    guest.wait_for_cpu(&[1], 2000);
    read();
    let last = of_proc(&guest, guest.ready.vcpus[1].tid);
    assert!(
        last.timeslices > 2 * AT_END,
        "{last:?} are too few to compare"
    );
    guest.unplug(1);
    let ended = eventually("the agent to see the end", || {
        let found = vcpu(&read());
        found.tid.is_none().then_some(found)
    });
    let ended = of_agent(&ended);
    let most = |switches: Switches| Switches {
        timeslices: switches.timeslices + AT_END,
        involuntary: switches.involuntary + AT_END,
    };
    assert_between(last, ended, most(last));

    // A new thread runs the vCPU, and the counts go on.
    guest.plug("halt");
    let tid = guest.burn_vcpus("1", 50)[0].tid;
    let plus = |one: Switches, other: Switches| Switches {
        timeslices: one.timeslices + other.timeslices,
        involuntary: one.involuntary + other.involuntary,
    };
    let low = plus(ended, of_proc(&guest, tid));
    let found = of_agent(&vcpu(&read()));
    let high = plus(ended, of_proc(&guest, tid));
    assert_between(low, found, most(high));
}

/// The switches of a thread before it ran a vCPU are not the vCPU's.
#[test]
fn switches_before_thread_became_vcpu_are_left_out() {
    if !reader::ready("switches_before_thread_became_vcpu_are_left_out") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1"]);
    let late = guest.plug("pause");
    let mut collector = reader::collector();
    for _ in 0..20 {
        guest.burn_in_user_space(late.index, 2);
    }
    let snapshot = collector.collect();
    assert_eq!(vm(&snapshot, guest.pid()).vcpus.len(), 1, "no vCPU yet");
    let before = of_proc(&guest, late.tid);
    assert!(before.timeslices >= 20, "{before:?}");
    let burn = |guest: &mut Minivm| guest.burn_vcpus(&late.index.to_string(), 30);
    burn(&mut guest);
    // Recognizes the vCPU.
    collector.collect();
    let known = of_proc(&guest, late.tid);
    burn(&mut guest);
    let low = of_proc(&guest, late.tid).since(known);
    let snapshot = collector.collect();
    let found = of_agent(&vm(&snapshot, guest.pid()).vcpus[1]);
    let high = of_proc(&guest, late.tid).since(before);
    assert!(low.timeslices > 0, "it ran");
    assert_between(low, found, high);
}

/// Two vCPUs that always want to run, on one CPU: whenever one runs, the other waits.
pub(crate) fn taking_turns() -> Minivm {
    let guest = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    for vcpu in &guest.ready.vcpus {
        set_affinity(vcpu.tid, &[0]);
    }
    guest
}

#[test]
fn bounds_of_co_stop_of_two_vcpus_on_one_cpu_are_close() {
    if !reader::ready("bounds_of_co_stop_of_two_vcpus_on_one_cpu_are_close") {
        return;
    }
    let guest = taking_turns();
    let mut collector = reader::collector();
    let before = collector.collect();
    guest.wait_for_cpu(&[0, 1], 700);
    let now = collector.collect();
    let length_ns = now.clock_ns - before.clock_ns;
    let [then, now] = [&before, &now].map(|snapshot| vm(snapshot, guest.pid()));
    let over = Interval::between(then, now, length_ns);
    let found = ready(&over);
    println!("{found:?}");
    let range = found.co_stop.expect("both vCPUs were there");
    let ran_ns: u64 = over.vcpus().map(|vcpu| vcpu.cpu_ns).sum();
    // A wait counts when it ends, so one wait of each vCPU may be missing.
    let edge_ns = length_ns / 5;
    assert!(
        range.least_ns + edge_ns >= ran_ns,
        "{range:?}, ran {ran_ns}"
    );
    assert!(
        range.least_ns <= ran_ns + edge_ns,
        "{range:?}, ran {ran_ns}"
    );
    assert!(range.most_ns + edge_ns >= ran_ns, "{range:?}, ran {ran_ns}");
    for vcpu in &found.vcpus {
        let contended = vcpu.contended;
        assert_eq!(contended.least_ns, vcpu.wait_ns, "no limit throttled it");
        assert_eq!(contended.most_ns, vcpu.wait_ns);
        assert!(vcpu.mean_wait_ns.is_some_and(|ns| ns > 0), "{vcpu:?}");
    }
}

#[test]
fn json_of_an_interval_has_ready() {
    if !reader::ready("json_of_an_interval_has_ready") {
        return;
    }
    let guest = taking_turns();
    let json = |args: &[&str]| {
        let mut command = Command::new(binary("virtlens"));
        let output = command.args(["snapshot", "-o", "json"]).args(args).output();
        let output = output.expect("virtlens starts").stdout;
        let json: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
        let vms = json["vms"].as_array().expect("a list");
        let mut own = vms.iter().filter(|vm| vm["pid"] == guest.pid());
        own.next().expect("the VM")["ready"].clone()
    };
    assert!(json(&[]).is_null(), "one reading has no interval");
    let ready = json(&["--interval", "500ms"]);
    assert!(ready["interval_ns"].as_u64().expect("a number") >= 500_000_000);
    assert_eq!(ready["vcpus"].as_array().expect("a list").len(), 2);
    let [least, most] = ["least_ns", "most_ns"].map(|end| &ready["co_stop"][end]);
    assert!(least.as_u64() <= most.as_u64() && most.is_u64(), "{ready}");
}
