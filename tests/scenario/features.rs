//! Reports the features that the kernel offers with each loader; the runner checks them.

use virtlens::collect::{Collector, Options};
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::Feature;

/// Prints the features of this kernel; `kernels.toml` lists the required ones.
#[test]
fn features_are_reported() {
    for loader in Loader::ALL {
        let options = Options {
            loader: *loader,
            ..Options::default()
        };
        let mut collector = Collector::open(&options).expect("the host can be read");
        collector.collect();
        for row in collector.check() {
            println!("{loader} {}: {} {}", row.feature, row.state, row.detail);
            let is_loaded = Feature::ALL.iter().any(|one| one.name() == row.feature);
            match (row.state, *loader == Loader::default()) {
                ("on", true) => println!("VMTEST FEATURE {}", row.feature),
                ("on", false) if is_loaded => println!("VMTEST FEATURE {loader}_{}", row.feature),
                _ => {}
            }
        }
    }
}
