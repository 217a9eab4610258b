//! The machine of the node: a VM of tests/vm that runs `node.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use virtlens_tests::{Launch, binary};

use crate::network;

/// The machine of `kernels.toml`; also the name of the node.
pub(crate) const NAME: &str = "debian-7.2-node";

/// A running machine. Its emulator ends with its runner, which is killed on drop and when
/// the thread that started it exits.
pub(crate) struct Machine {
    runner: Child,
}

impl Machine {
    /// Boots the machine; `dir` has the files of its kubelet. The machine sees all files
    /// of the checkout and of the build.
    pub(crate) fn start(dir: &Path, images: &[PathBuf]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/node.sh");
        let runner = Launch::new(binary("vmtest"))
            .args(["--kernel", NAME, "--bare", "--exec"])
            .arg(format!("node={}", script.display()))
            .arg(dir)
            .args([network::NODE, network::HOST].map(|address| address.to_string()))
            .args(images)
            .spawn_logged(&dir.join("vmtest.log"));
        Self { runner }
    }
}

/// The end of the machine's console: its kernel, containerd and kubelet.
pub(crate) fn console() -> String {
    let vmtest = binary("vmtest");
    let target = vmtest.parent().and_then(Path::parent);
    let log = target.map(|target| target.join("vmtest").join(NAME).join("console.log"));
    let text = fs::read_to_string(log.unwrap_or_default()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The runner may have ended already.
        drop(self.runner.kill());
        drop(self.runner.wait());
    }
}
