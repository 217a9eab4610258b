//! `kernels.toml`, and the packages of its kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::apt::{Apt, output};
use crate::hardware::Hardware;

/// Name of the rig's own suite: pods and their self-tests.
pub(crate) const RIG: &str = "rig";

/// The whole of `kernels.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    /// The suite whose QEMU emulates the machines; absent for this machine's own QEMU.
    pub(crate) emulator_suite: Option<String>,
    /// Name of the kernel of the nested guests.
    pub(crate) guest: String,
    #[serde(rename = "machine", default)]
    machines: Vec<Hardware>,
    /// The machine of entries that name none.
    #[serde(skip)]
    usual: Hardware,
    #[serde(rename = "kernel")]
    pub(crate) kernels: Vec<Entry>,
    #[serde(rename = "suite", default)]
    pub(crate) suites: Vec<SuiteEntry>,
}

/// One kernel: its source and the expectations for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// Name on the command line and in reports.
    pub(crate) name: String,
    /// The Debian suite that contains it.
    pub(crate) suite: String,
    /// `6.1` takes the newest `linux-image-6.1…-amd64` of the suite.
    pub(crate) series: String,
    /// `rt` takes the newest `linux-image-6.1…-rt-amd64`; absent for the plain flavour.
    #[serde(default)]
    pub(crate) flavour: Option<String>,
    /// The machine to boot it on; absent for [`Hardware::default`].
    #[serde(default)]
    pub(crate) machine: Option<String>,
    /// Modules that it loads in addition to those of every machine.
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    /// Whether KVM works in it, so that the pods can be started.
    pub(crate) nested_kvm: bool,
    /// Names of the test suites to run. [`RIG`] stands for the pods and their self-tests.
    pub(crate) suites: BTreeSet<String>,
    /// The exact features that each suite must report. Suites that report no features
    /// have no entry.
    pub(crate) features: BTreeMap<String, BTreeSet<String>>,
    /// Booted only if the kernel, all kernels, or one of its suites is requested.
    #[serde(default)]
    pub(crate) by_name: bool,
    /// The tests that may be skipped, each with its reason.
    #[serde(default)]
    pub(crate) skips: BTreeMap<String, String>,
}

/// A suite of tests, built by cargo.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuiteEntry {
    pub(crate) name: String,
    /// Its integration test in the workspace.
    pub(crate) test: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    pub(crate) deadline_s: u64,
    /// A group of `packages.debian` that is unpacked into the cache for it.
    #[serde(default)]
    pub(crate) packages: Option<String>,
    /// Whether it starts guests of its own from the pods' files.
    #[serde(default)]
    pub(crate) own_guests: bool,
    /// Runs only if it is requested by name.
    #[serde(default)]
    pub(crate) by_name: bool,
}

/// A kernel in the cache.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kernel {
    /// `uname -r`.
    pub(crate) release: String,
    /// Debian's version of the image package.
    pub(crate) version: String,
    /// The kernel image.
    pub(crate) image: PathBuf,
    /// The directory with `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Catalogue {
    /// Reads `kernels.toml`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let catalogue: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        catalogue.entry(&catalogue.guest)?;
        for entry in &catalogue.kernels {
            catalogue.hardware(entry)?;
            entry
                .suites
                .iter()
                .try_for_each(|name| catalogue.knows_suite(name))?;
        }
        Ok(catalogue)
    }

    /// Fails unless a suite with this name exists.
    pub(crate) fn knows_suite(&self, name: &str) -> anyhow::Result<()> {
        let known = name == RIG || self.suites.iter().any(|suite| suite.name == name);
        ensure!(known, "kernels.toml has no suite {name}");
        Ok(())
    }

    /// The machine of an entry.
    pub(crate) fn hardware(&self, entry: &Entry) -> anyhow::Result<&Hardware> {
        let Some(name) = &entry.machine else {
            return Ok(&self.usual);
        };
        let found = self.machines.iter().find(|machine| machine.name == *name);
        found.with_context(|| format!("{}: kernels.toml has no machine {name}", entry.name))
    }

    /// The entry with this name.
    pub(crate) fn entry(&self, name: &str) -> anyhow::Result<&Entry> {
        self.kernels
            .iter()
            .find(|entry| entry.name == name)
            .with_context(|| {
                let names: Vec<_> = self
                    .kernels
                    .iter()
                    .map(|entry| entry.name.as_str())
                    .collect();
                format!(
                    "unknown kernel {name}; kernels.toml has: {}",
                    names.join(", ")
                )
            })
    }
}

impl Entry {
    /// The kernel from the cache. It is fetched if it is missing, or if `newest` is set
    /// and the suite has a newer one.
    pub(crate) fn kernel(&self, cache: &Path, newest: bool) -> anyhow::Result<Kernel> {
        if !newest && let Some(kernel) = self.cached(cache) {
            return Ok(kernel);
        }
        let kernel = self.fetch(cache)?;
        fs::create_dir_all(cache.join("kernels"))?;
        fs::write(self.record(cache), serde_json::to_vec_pretty(&kernel)?)?;
        Ok(kernel)
    }

    /// The kernel, if it is complete in the cache.
    pub(crate) fn cached(&self, cache: &Path) -> Option<Kernel> {
        let kernel: Kernel = serde_json::from_slice(&fs::read(self.record(cache)).ok()?).ok()?;
        let whole = kernel.image.exists() && kernel.modules.join("modules.dep").exists();
        whole.then_some(kernel)
    }

    /// `-rt`, or empty for the plain flavour.
    fn suffix(&self) -> String {
        let flavour = self.flavour.as_ref();
        flavour.map_or_else(String::new, |flavour| format!("-{flavour}"))
    }

    fn record(&self, cache: &Path) -> PathBuf {
        let (suite, series) = (&self.suite, &self.series);
        let flavour = self.suffix();
        cache
            .join("kernels")
            .join(format!("{suite}_{series}{flavour}.json"))
    }

    fn fetch(&self, cache: &Path) -> anyhow::Result<Kernel> {
        let apt = Apt::new(cache, &self.suite);
        apt.update()?;
        let prefix = format!("linux-image-{}", self.series);
        let suffix = self.suffix() + "-amd64";
        let image = newest_image(&apt.names(&prefix)?, &self.series, &suffix)
            .with_context(|| format!("suite {} has no {prefix}…{suffix}", self.suite))?;
        let (version, depends) = apt.show(&image)?;
        let release = image.trim_start_matches("linux-image-").to_owned();
        let mut roots = vec![apt.unpack(&image, &version)?];
        // Since 7.x the image package is empty and depends on packages of the same
        // release with its content. A mirror may have dropped one already; if that
        // matters, `find` reports the missing file.
        for part in depends.iter().filter(|name| name.ends_with(&release)) {
            if apt.names(part)?.contains(part) {
                roots.push(apt.unpack(part, &apt.show(part)?.0)?);
            }
        }
        let find = |what: &str| {
            let lib = [
                format!("lib/modules/{release}/{what}"),
                format!("boot/{what}-{release}"),
            ];
            let places = lib
                .iter()
                .flat_map(|path| [path.clone(), format!("usr/{path}")]);
            let mut places = places.flat_map(|path| roots.iter().map(move |root| root.join(&path)));
            places
                .find(|path| path.exists())
                .with_context(|| format!("{image}: {what} not found in it"))
        };
        let (vmlinuz, tree, builtin) =
            (find("vmlinuz")?, find("kernel")?, find("modules.builtin")?);
        let modules = tree.with_file_name("");
        if builtin.parent() != tree.parent() {
            fs::copy(&builtin, modules.join("modules.builtin"))?;
        }
        depmod(&modules, &release)?;
        Ok(Kernel {
            release,
            version,
            image: vmlinuz,
            modules,
        })
    }
}

/// The newest image of a series whose name ends with `suffix`. With `-amd64` this is the
/// plain flavour, not a cloud, realtime, unsigned or debug image.
fn newest_image(names: &[String], series: &str, suffix: &str) -> Option<String> {
    let rest = |name: &str| {
        let rest = name.strip_prefix("linux-image-")?.strip_prefix(series)?;
        rest.strip_suffix(suffix).map(str::to_owned)
    };
    let is_of_flavour = |name: &&String| {
        rest(name).is_some_and(|rest| {
            rest.starts_with(['.', '-', '+'])
                && rest.contains(|c: char| c.is_ascii_digit())
                && !["cloud", "rt", "dbg", "unsigned"]
                    .iter()
                    .any(|flavour| rest.contains(flavour))
        })
    };
    let numbers = |name: &&String| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    names
        .iter()
        .filter(is_of_flavour)
        .max_by_key(numbers)
        .cloned()
}

/// Creates `modules.dep`, which Debian creates at installation.
fn depmod(modules: &Path, release: &str) -> anyhow::Result<()> {
    // depmod requires <base>/lib/modules/<release>.
    let base = modules
        .ancestors()
        .nth(3)
        .context("modules lie in lib/modules")?;
    output(
        Command::new("depmod")
            .arg("-b")
            .arg(base)
            .arg(release)
            // depmod is in sbin, which a user's PATH may lack.
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin"),
    )?;
    let dep = modules.join("modules.dep");
    let size = fs::metadata(&dep).map_or(0, |meta| meta.len());
    ensure!(size > 0, "depmod wrote no {}", dep.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_image_of_a_flavour_is_taken_by_number_not_by_letter() {
        let names: Vec<String> = [
            "linux-image-6.1-amd64",
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.1.0-51-cloud-amd64",
            "linux-image-6.1.0-52-rt-amd64",
            "linux-image-6.1.0-53-amd64-dbg",
            "linux-image-6.1.0-54-amd64-unsigned",
            "linux-image-6.12.107+deb13-amd64",
            "linux-image-6.12.107+deb13-rt-amd64",
            "linux-image-6.12.117+deb13-rt-amd64",
            "linux-image-6.12.118+deb13-rt-amd64-unsigned",
            "linux-image-6.12.119+deb13-cloud-amd64",
        ]
        .map(str::to_owned)
        .into();
        assert_eq!(
            newest_image(&names, "6.1", "-amd64").as_deref(),
            Some("linux-image-6.1.0-50-amd64")
        );
        let newest = newest_image(&names, "6.12", "-amd64");
        assert_eq!(newest.as_deref(), Some("linux-image-6.12.107+deb13-amd64"));
        let realtime = |series| newest_image(&names, series, "-rt-amd64");
        assert_eq!(
            realtime("6.1").as_deref(),
            Some("linux-image-6.1.0-52-rt-amd64")
        );
        assert_eq!(
            realtime("6.12").as_deref(),
            Some("linux-image-6.12.117+deb13-rt-amd64")
        );
        assert_eq!(newest_image(&names, "6.18", "-amd64"), None);
    }

    #[test]
    fn kernels_toml_of_repository_is_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels.toml");
        let catalogue = Catalogue::read(&path).expect("kernels.toml");
        for entry in &catalogue.kernels {
            for suite in entry.features.keys() {
                assert!(
                    entry.suites.contains(suite),
                    "{} lists features of {suite}, which it does not run",
                    entry.name
                );
            }
            for (test, reason) in &entry.skips {
                assert!(
                    reason.len() > 20,
                    "{}: {test}: a reason is a sentence",
                    entry.name
                );
            }
        }
    }
}
