//! The agent under test, and a scraper that remembers every counter.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_export::Format;
use virtlens_model::judge::findings::Bounds;
use virtlens_model::snapshot::{Findings, Snapshot, Vm};
use virtlens_model::vocab::Role;
use virtlens_tests::eventually;
use virtlens_tests::exposed::exposition;
use virtlens_tests::reader::options;

/// A running agent.
pub(crate) struct Agent {
    collector: Collector,
    /// The last value of each counter ever exported, by series, including counters that
    /// were absent for a while.
    last: HashMap<String, f64>,
    falls: Vec<String>,
}

impl Agent {
    pub(crate) fn open() -> Self {
        // Two emulated CPUs also run the agent, the tests and the emulators: a guest
        // never gets 95 % of them.
        let bounds = Bounds {
            vcpus_busy: 0.3,
            ..options().bounds
        };
        let options = Options {
            bounds,
            ..options()
        };
        let collector = Collector::open(&options).expect("the host can be read");
        Self {
            collector,
            last: HashMap::new(),
            falls: Vec::new(),
        }
    }

    /// Takes a reading and scrapes it.
    pub(crate) fn read(&mut self) -> Arc<Snapshot> {
        let snapshot = self.collector.collect();
        self.scrape(&snapshot);
        snapshot
    }

    /// Names of the findings for a VM while `work` runs.
    pub(crate) fn findings(&mut self, name: &str, work: impl FnOnce()) -> Vec<&'static str> {
        let found = self.judged(name, work);
        found.iter().map(|one| one.check.name()).collect()
    }

    /// The findings for a VM while `work` runs.
    pub(crate) fn judged(&mut self, name: &str, work: impl FnOnce()) -> Findings {
        self.collector.collect_judged();
        work();
        let snapshot = self.collector.collect_judged();
        self.scrape(&snapshot);
        let found = vm(&snapshot, name).findings.clone();
        let found = found.expect("it was judged before");
        for finding in &*found {
            println!("{}: {}", finding.check.name(), finding.evidence);
        }
        found
    }

    /// Reads until this VM is seen with so many vCPUs.
    pub(crate) fn find(&mut self, name: &str, vcpus: u32) -> Vm {
        eventually("the VM to be found", || {
            sleep(Duration::from_millis(50));
            let snapshot = self.read();
            let mut found = snapshot.vms.iter().filter(|vm| vm.running);
            let found = found.find(|vm| &*vm.vm == name)?;
            (found.vcpu_count.seen >= vcpus).then(|| found.clone())
        })
    }

    /// Returns every fall of a counter since the last call.
    pub(crate) fn take_falls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.falls)
    }

    fn scrape(&mut self, snapshot: &Arc<Snapshot>) {
        let text = exposition(Arc::clone(snapshot), Format::Text);
        for (series, value) in counters(&text) {
            let last = self.last.entry(series.to_owned()).or_insert(value);
            if value < *last {
                self.falls.push(format!("{series}: {last}, then {value}"));
            }
            *last = value;
        }
    }
}

/// All counters of a scrape with their values.
fn counters(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let mut grows = false;
    text.lines().filter_map(move |line| {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            grows = kind.ends_with(" counter") || kind.ends_with(" histogram");
        }
        let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
        grows.then(|| (series, value.parse().expect("a sample has a number")))
    })
}

/// The running VM with this name.
pub(crate) fn vm<'a>(snapshot: &'a Snapshot, name: &str) -> &'a Vm {
    let mut found = snapshot
        .vms
        .iter()
        .filter(|vm| vm.running && &*vm.vm == name);
    let Some(one) = found.next() else {
        let names: Vec<_> = snapshot
            .vms
            .iter()
            .map(|vm| (&*vm.vm, vm.running))
            .collect();
        panic!("no VM {name}: {names:?}, {:?}", snapshot.sources);
    };
    assert!(found.next().is_none(), "{name} is there twice");
    one
}

/// Tids of the living threads of a role, ascending.
pub(crate) fn tids_of(vm: &Vm, role: Role) -> Vec<u32> {
    let of_role = vm.threads.iter().filter(|one| one.role == Some(role));
    let mut tids: Vec<u32> = of_role.map(|one| one.tid).collect();
    tids.sort_unstable();
    tids
}

#[test]
fn counter_and_histogram_series_are_recognized_by_type() {
    let text = "# HELP a_total b\n# TYPE a_total counter\na_total{x=\"y z\"} 5\n\
                # TYPE g gauge\ng 7\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\n";
    let found: Vec<_> = counters(text).collect();
    assert_eq!(
        found,
        [("a_total{x=\"y z\"}", 5.0), ("h_bucket{le=\"1\"}", 2.0)]
    );
}
