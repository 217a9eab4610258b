//! Provides the parts of one boot: packages from the cache, virtiofsd, the project's
//! binaries, and the initramfs with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use virtlens_vmtest::plan::{Guest, Plan, Pods, Stage, Suite};

use crate::apt::{Apt, output};
use crate::boot::Emulator;
use crate::initramfs;
use crate::kernel::{Catalogue, Entry, Kernel, SuiteEntry};

/// virtiofsd is in no Debian release before trixie, and trixie lacks the version that the
/// rig was measured with; crates.io has every version.
const VIRTIOFSD: &str = "1.14.0";

/// Modules of the VM under test. SVM only: QEMU does not emulate VMX. `loop` is for swap.
const HOST_MODULES: [&str; 8] = [
    "9p",
    "9pnet_virtio",
    "virtio_pci",
    "kvm_amd",
    "loop",
    "tun",
    "vhost_net",
    "vhost_vsock",
];

/// Modules of the nested guest.
const GUEST_MODULES: [&str; 5] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_balloon",
    "virtiofs",
];

const INIT: &str = include_str!("../../scripts/init.sh");
const GUEST_INIT: &str = include_str!("../../scripts/guest-init.sh");
const TOPOLOGY_INIT: &str = include_str!("../../scripts/topology-init.sh");

/// Directories for downloads and build results.
#[derive(Debug)]
pub(crate) struct Workshop {
    cache: PathBuf,
    /// Logs and initramfs archives, below cargo's target directory.
    out: PathBuf,
    /// The program that runs inside; cargo puts it next to this one.
    inside: PathBuf,
}

/// The parts of one boot that come from the cache.
#[derive(Debug)]
pub(crate) struct Provision {
    pub(crate) kernel: Kernel,
    pub(crate) emulator: Emulator,
    busybox: PathBuf,
    /// The kernel of nested guests; `None` if there are none.
    guest: Option<Kernel>,
    /// The pods' virtiofsd; `None` if there are no pods.
    virtiofsd: Option<PathBuf>,
    /// Whether pods are started; otherwise only their files are provided.
    pods: bool,
}

/// The parts that a boot needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wants {
    /// The newest kernel of the suite, even if the cache has another one.
    pub(crate) newest: bool,
    /// Parts for nested guests.
    pub(crate) guests: Guests,
}

/// Parts for nested guests; each variant includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guests {
    /// Nothing.
    None,
    /// A kernel.
    Kernel,
    /// The files of pods, for a suite that starts guests of its own.
    Files,
    /// Pods, which are started.
    Pods,
}

/// Purpose of a boot.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    /// Run these suites.
    Suites(&'a [Suite]),
    /// An interactive shell on the terminal.
    Shell,
    /// Load on the guests for this long, without an agent.
    Control(Duration),
}

/// The files of one boot.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) initrd: PathBuf,
    pub(crate) log: PathBuf,
}

impl Workshop {
    /// A workshop with its downloads in `cache`.
    pub(crate) fn new(cache: PathBuf) -> anyhow::Result<Self> {
        let me = std::env::current_exe()?;
        let inside = me.with_file_name("vmtest-inside");
        if !inside.exists() {
            bail!(
                "{}: build it with `cargo build -p virtlens-vmtest`",
                inside.display()
            );
        }
        let target = me
            .parent()
            .and_then(Path::parent)
            .context("the runner lies in target/")?;
        Ok(Self {
            cache,
            out: target.join("vmtest"),
            inside,
        })
    }

    /// Version of this kernel in the cache.
    pub(crate) fn cached(&self, entry: &Entry) -> Option<String> {
        let kernel = entry.cached(&self.cache)?;
        Some(format!("{} ({})", kernel.release, kernel.version))
    }

    /// Fetches the parts that are missing in the cache.
    pub(crate) fn provide(
        &self,
        catalogue: &Catalogue,
        entry: &Entry,
        wants: Wants,
    ) -> anyhow::Result<Provision> {
        let guest = catalogue.entry(&catalogue.guest)?;
        let busybox = Apt::new(&self.cache, &guest.suite).any_version("busybox-static")?;
        let guest_kernel = || guest.kernel(&self.cache, false);
        Ok(Provision {
            kernel: entry.kernel(&self.cache, wants.newest)?,
            busybox: busybox.join("bin/busybox"),
            guest: (wants.guests > Guests::None)
                .then(guest_kernel)
                .transpose()?,
            virtiofsd: (wants.guests >= Guests::Files)
                .then(|| self.virtiofsd())
                .transpose()?,
            pods: wants.guests == Guests::Pods,
            emulator: self.emulator(catalogue.emulator_suite.as_deref())?,
        })
    }

    fn virtiofsd(&self) -> anyhow::Result<PathBuf> {
        let root = self.cache.join(format!("virtiofsd-{VIRTIOFSD}"));
        let binary = root.join("bin/virtiofsd");
        if !binary.exists() {
            println!("building virtiofsd {VIRTIOFSD} (once, about a minute)");
            let mut cargo = Command::new("cargo");
            cargo.args([
                "install",
                "virtiofsd",
                "--version",
                VIRTIOFSD,
                "--locked",
                "--root",
            ]);
            output(cargo.arg(&root))
                .context("virtiofsd needs the Debian packages libcap-ng-dev and libseccomp-dev")?;
        }
        Ok(binary)
    }

    fn emulator(&self, suite: Option<&str>) -> anyhow::Result<Emulator> {
        let Some(suite) = suite else {
            return Ok(Emulator {
                program: vec![machine_qemu()?.into()],
                modules: None,
            });
        };
        let root = Apt::new(&self.cache, suite).closure("qemu-system-x86")?;
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        Ok(Emulator {
            program: vec![
                libraries.join("ld-linux-x86-64.so.2").into(),
                "--library-path".into(),
                libraries.clone().into(),
                root.join("usr/bin/qemu-system-x86_64").into(),
                "-L".into(),
                root.join("usr/share/qemu").into(),
                "-L".into(),
                root.join("usr/share/seabios").into(),
                "-L".into(),
                root.join("usr/lib/ipxe/qemu").into(),
            ],
            modules: Some(libraries.join("qemu")),
        })
    }

    /// Creates the initramfs archives of one boot.
    pub(crate) fn assemble(
        &self,
        entry: &Entry,
        provision: &Provision,
        work: &Work<'_>,
    ) -> anyhow::Result<Job> {
        let dir = self.out.join(&entry.name);
        fs::create_dir_all(&dir)?;
        let (suites, control_s, log): (&[Suite], _, _) = match work {
            Work::Suites(suites) => (suites, None, "console"),
            Work::Shell => (&[], None, "console"),
            Work::Control(length) => (&[], Some(length.as_secs()), "control"),
        };
        // Removes console logs of an earlier run.
        for boot in 1.. {
            if fs::remove_file(dir.join(format!("{log}.{boot}.log"))).is_err() {
                break;
            }
        }
        let busybox = &provision.busybox;
        let pods = match (&provision.guest, &provision.virtiofsd) {
            (Some(guest), Some(virtiofsd)) if entry.nested_kvm => {
                let stage = stage(guest, virtiofsd, busybox, &dir)?;
                let kind = if provision.pods {
                    Pods::Start
                } else {
                    Pods::Files
                };
                kind(stage)
            }
            (_, Some(_)) => Pods::Impossible,
            (_, None) => Pods::Unwanted,
        };
        let topology_guest = |guest| topology_guest(guest, busybox, &dir);
        let plan = Plan {
            kernel: entry.name.clone(),
            pods,
            topology_guest: provision.guest.as_ref().map(topology_guest).transpose()?,
            suites: suites.to_vec(),
            control_s,
            path: std::env::var("PATH").context("PATH is no text")?,
            loader: std::env::var("VIRTLENS_LOADER").ok(),
            shell: matches!(work, Work::Shell),
        };
        let initrd = dir.join(format!("{log}-initrd"));
        let mut cpio = initramfs::base(busybox, INIT)?;
        let own = entry.modules.iter().map(String::as_str);
        let modules: Vec<&str> = HOST_MODULES.into_iter().chain(own).collect();
        initramfs::add_modules(&mut cpio, &provision.kernel, &modules)?;
        cpio.file("plan.json", &serde_json::to_vec_pretty(&plan)?);
        cpio.file("inside", self.inside.as_os_str().as_encoded_bytes());
        cpio.file("keep", self.hidden().join("\n").as_bytes());
        fs::write(&initrd, cpio.finish())?;
        Ok(Job {
            initrd,
            log: dir.join(format!("{log}.log")),
        })
    }
}

impl Workshop {
    /// Directories that the VM needs and that its own /tmp and /run would hide: a
    /// checkout or a cache may be in a temporary folder.
    fn hidden(&self) -> Vec<String> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = self.out.parent().unwrap_or(&self.out);
        let real = |path: &Path| fs::canonicalize(path).ok();
        let mut paths: Vec<PathBuf> = [&checkout, target, &self.cache]
            .into_iter()
            .filter_map(real)
            .collect();
        paths.sort();
        paths.dedup_by(|below, above| below.starts_with(above));
        let hides = |path: &&PathBuf| path.starts_with("/tmp") || path.starts_with("/run");
        paths
            .iter()
            .filter(hides)
            .map(|path| path.display().to_string())
            .collect()
    }
}

/// The files of the pods; the guests' initramfs is created in `dir`.
fn stage(guest: &Kernel, virtiofsd: &Path, busybox: &Path, dir: &Path) -> anyhow::Result<Stage> {
    let guest_initrd = dir.join("guest-initrd");
    let mut cpio = initramfs::base(busybox, GUEST_INIT)?;
    initramfs::add_modules(&mut cpio, guest, &GUEST_MODULES)?;
    fs::write(&guest_initrd, cpio.finish())?;
    Ok(Stage {
        qemu: machine_qemu()?,
        virtiofsd: virtiofsd.to_owned(),
        guest_kernel: guest.image.clone(),
        guest_initrd,
    })
}

/// The guest that prints its topology; its initramfs is created in `dir`.
fn topology_guest(guest: &Kernel, busybox: &Path, dir: &Path) -> anyhow::Result<Guest> {
    let initrd = dir.join("topology-initrd");
    fs::write(&initrd, initramfs::base(busybox, TOPOLOGY_INIT)?.finish())?;
    Ok(Guest {
        kernel: guest.image.clone(),
        initrd,
    })
}

fn machine_qemu() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join("qemu-system-x86_64"))
        .find(|file| file.exists())
        .context("no qemu-system-x86_64 in PATH: install the Debian package qemu-system-x86")
}

/// Builds a suite with cargo and returns its binary.
pub(crate) fn build_suite(entry: &SuiteEntry) -> anyhow::Result<Suite> {
    let text = output(
        // With the features of the whole workspace: others would build dependencies again.
        Command::new("cargo")
            .args(["test", "--no-run", "--message-format=json", "--workspace"])
            .args(["--test", &entry.test]),
    )
    .with_context(|| format!("suite {}: cannot build it", entry.name))?;
    let built = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = |value: &serde_json::Value| value.as_str().map(PathBuf::from);
        let is_test = message["target"]["name"] == entry.test.as_str();
        let program = is_test.then(|| path(&message["executable"]))??;
        Some((program, path(&message["manifest_path"])?.with_file_name("")))
    };
    let (program, directory) = text
        .lines()
        .find_map(built)
        .with_context(|| format!("cargo made no binary of {}", entry.test))?;
    // Tests share one kernel and one set of pods, so they run one after another.
    let args = ["--test-threads=1", "--show-output"].map(str::to_owned);
    Ok(Suite {
        name: entry.name.clone(),
        program,
        paths: unpacked(entry.packages.as_deref())?,
        directory,
        args: args.into_iter().chain(entry.args.clone()).collect(),
        deadline_s: entry.deadline_s,
    })
}

/// Directories with the programs of a group of `packages.debian`, after unpacking it into
/// the cache.
fn unpacked(group: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let Some(group) = group else {
        return Ok(Vec::new());
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/unpack-packages");
    let paths = output(Command::new(script).arg(group))
        .with_context(|| format!("cannot unpack the packages of [{group}]"))?;
    Ok(std::env::split_paths(paths.trim()).collect())
}
