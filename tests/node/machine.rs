//! The machines of the nodes: VMs of tests/vm that run `node.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use virtlens_tests::{Launch, binary};

use crate::network::Link;

/// The machines of `kernels.toml`; also the names of the nodes.
pub(crate) const NODES: [&str; 2] = ["debian-7.2-node", "debian-7.2-second-node"];

/// The node of the pods, except `second`.
pub(crate) const NAME: &str = NODES[0];

/// The other node.
pub(crate) const SECOND: &str = NODES[1];

/// A running machine. Its emulator ends with its runner, which is killed on drop and when
/// the thread that started it exits.
pub(crate) struct Machine {
    runner: Child,
}

impl Machine {
    /// Boots the machine of a node; `dir` has the files of its kubelet. The machine sees all
    /// files of the checkout and of the build.
    pub(crate) fn start(name: &str, link: &Link, dir: &Path, images: &[PathBuf]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/node.sh");
        let runner = Launch::new(binary("vmtest"))
            .args(["--kernel", name, "--bare", "--exec"])
            .arg(format!("node={}", script.display()))
            .arg(dir)
            .args([link.node, link.host].map(|address| address.to_string()))
            .arg(link.pods)
            .args(images)
            .spawn_logged(&dir.join("vmtest.log"));
        Self { runner }
    }
}

/// The end of each machine's console: its kernel, containerd and kubelet.
pub(crate) fn consoles() -> String {
    NODES.map(console).join("\n")
}

fn console(name: &str) -> String {
    let vmtest = binary("vmtest");
    let target = vmtest.parent().and_then(Path::parent);
    let log = target.map(|target| target.join("vmtest").join(name).join("console.log"));
    let text = fs::read_to_string(log.unwrap_or_default()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(60)..].join("\n");
    format!("{name}:\n{last}")
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The runner may have ended already.
        drop(self.runner.kill());
        drop(self.runner.wait());
    }
}
