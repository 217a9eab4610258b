//! Default options of collectors in this process.

use virtlens::collect::Options;

/// Uses the loader of `VIRTLENS_LOADER`, as the programs that tests start do.
pub(crate) fn options() -> Options {
    let named = std::env::var("VIRTLENS_LOADER").ok();
    let loader = named.map(|name| name.parse().expect("VIRTLENS_LOADER is a loader's name"));
    Options {
        loader: loader.unwrap_or_default(),
        ..Options::default()
    }
}
