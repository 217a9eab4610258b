//! Cost of encoding and compressing the metrics of a full node:
//! `cargo bench -p virtlens-export`.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use virtlens_export::{Format, Selection, encode};
use virtlens_tests::fleet;

const ROUNDS: u32 = 200;

fn main() {
    let reading = fleet::reading(200, 8);
    let mut out = String::new();
    let selection = Selection::default();
    for format in [Format::OpenMetrics, Format::Text] {
        out.clear();
        encode(&reading, &selection, format, &mut out);
        let series = out.lines().filter(|line| !line.starts_with('#')).count();
        let (median, best) = time(ROUNDS, || {
            out.clear();
            encode(black_box(&reading), &selection, format, &mut out);
        });
        println!(
            "{format:?}: {series} series, {} bytes: median {median:?}, best {best:?}",
            out.len()
        );
    }
    for level in [1, 3, 6] {
        let mut packed = Vec::new();
        let (median, best) = time(ROUNDS / 20, || {
            packed.clear();
            let mut gzip = GzEncoder::new(&mut packed, Compression::new(level));
            gzip.write_all(black_box(out.as_bytes()))
                .expect("a Vec takes everything");
            gzip.finish().expect("a Vec takes everything");
        });
        let per_vm = packed.len() / 200;
        println!("gzip -{level}: {per_vm} bytes a VM: median {median:?}, best {best:?}");
    }
}

fn time(rounds: u32, mut run: impl FnMut()) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    (times[times.len() / 2], times[0])
}
