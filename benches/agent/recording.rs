//! Cost of a recording on the full node, in bytes and in CPU time of the thread that records.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use virtlens_probe::loader::Loader;
use virtlens_tests::binary;

use crate::VMS;
use crate::load::Vms;
use crate::program::Program;
use crate::stats::{Spread, real};
use crate::table::Table;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(10);

/// Readings behind the first two.
const READINGS: u32 = 16;

/// Readings of a segment.
const SEGMENT: f64 = 128.0;

pub(crate) fn rows(table: &mut Table) {
    let mut vms = Vms::ticking();
    vms.grow_to(VMS[VMS.len() - 1]);
    let folder = tempfile::tempdir_in("/dev/shm").expect("there is room");
    let path = folder.path().display().to_string();
    let args = ["--record", &path, "--record-interval", "10s"];
    let program = Program::start_with(&binary("virtlens"), Loader::default(), &args);
    // Until the first reading is behind the header of the segment.
    while bytes(folder.path()) < 10_000 {
        sleep(Duration::from_millis(100));
    }
    let first_ms = program.cpu_ms_of("record");
    let first_bytes = bytes(folder.path());
    // Between the second reading and the third. An agent has only one like the second: with the
    // first rates it changes the structure of all VMs.
    sleep(EVERY * 3 / 2);
    let mut before_ms = program.cpu_ms_of("record");
    let before_bytes = bytes(folder.path());
    let each_ms = Spread::of((0..READINGS).map(|_| {
        sleep(EVERY);
        let now_ms = program.cpu_ms_of("record");
        now_ms - std::mem::replace(&mut before_ms, now_ms)
    }));
    let each = real(bytes(folder.path()) - before_bytes) / f64::from(READINGS);
    let mean_of_segment = |first: f64, each: f64| each + (first - each) / SEGMENT;
    let cpu_ms = mean_of_segment(first_ms, each_ms.median);
    let mean = mean_of_segment(real(first_bytes), each);
    table.judge(
        "recording, 200 VMs whose vCPUs wake 4 times a second, bytes a reading",
        "≤ 20000",
        format!("{mean:.0}: the first {first_bytes}, others {each:.0}"),
        mean <= 20_000.0,
    );
    table.row("… in a day, MB", format!("{:.0}", mean * 8640.0 / 1e6));
    let what = "… CPU time of the recording thread for a reading, ms";
    table.judge(
        what,
        "≤ 1",
        format!("{cpu_ms:.2}: the first {first_ms:.2}, others {each_ms}"),
        cpu_ms <= 1.0,
    );
    let mib = program.resident_mib();
    let what = "… resident memory of the agent, MiB";
    table.judge(what, "≤ 32", format!("{mib:.1}"), mib <= 32.0);
    table.row(
        "… wake-ups in 10 s unscraped",
        program.wake_ups().to_string(),
    );
}

/// Bytes of all segments.
fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("it is there").flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .map(|about| about.len())
        .sum()
}
