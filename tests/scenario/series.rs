//! Number of series of a VM in each profile of metrics.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use virtlens_export::{Format, Profile, Selection};
use virtlens_tests::exposed::text_of;

use crate::pods::{self, CAPPED_US, Reader};

/// The pod has vhost workers, virtiofsd, an iothread, a balloon and a CPU limit that throttles it.
#[test]
fn profiles_keep_their_numbers_of_series() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    reader.scenario.start("cpu").expect("the load starts");
    let snapshot = reader.with_quota(&pod, CAPPED_US, |reader| {
        reader.judge();
        sleep(Duration::from_secs(3));
        reader.judge()
    });
    reader.scenario.stop("cpu").expect("the load stops");
    let vm = pods::vm(&snapshot, &pod);
    let label = format!("vm=\"{}\"", vm.vm);
    let vcpus = vm.vcpus.len();
    let [minimal, default, full] = Profile::ALL.map(|profile| {
        let selection = Selection::from(profile);
        let text = text_of(Arc::clone(&snapshot), &selection, Format::Text);
        let series: Vec<&str> = text.lines().filter(|line| line.contains(&label)).collect();
        println!(
            "{}: {} series of {vcpus} vCPUs",
            profile.name(),
            series.len()
        );
        if profile == Profile::Full {
            // The benchmark `scale` replays it: benches/scale/reading.prom.
            print!("{text}");
        }
        series.len()
    });
    assert!(minimal <= 12, "minimal has {minimal}");
    assert!(
        default <= 40 + 3 * vcpus,
        "default has {default} for {vcpus} vCPUs"
    );
    assert!(full > default, "full has {full}");
}
