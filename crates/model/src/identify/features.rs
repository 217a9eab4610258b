//! Detects from the VMM's arguments and from observed events whether a VM has a balloon
//! and whether its guest reports free pages.

use serde_json::Value;

use crate::identify::vmm::Vmm;
use crate::vocab::{Feature, Features};

impl Features {
    /// The features by name, as in labels.
    pub fn by_name(&self) -> [(&'static str, Feature); 2] {
        [
            ("balloon", self.balloon),
            ("free_page_reporting", self.free_page_reporting),
        ]
    }

    fn both(feature: Feature) -> Self {
        Self {
            balloon: feature,
            free_page_reporting: feature,
        }
    }

    /// Adds observed use: a feature that is used is present. `events` counts the
    /// balloon's operations, `reports` the guest's reports.
    #[must_use]
    pub fn seen(mut self, vmm: Vmm, events: u64, reports: u64) -> Self {
        // Firecracker's balloon inflates by ranges that look like reports
        // (src/vmm/src/devices/virtio/balloon/device.rs, compact_page_frame_numbers).
        let proves = reports > 0 && vmm != Vmm::Firecracker;
        if events > 0 || reports > 0 {
            self.balloon = Feature::known(true, "observed balloon activity");
        }
        if proves {
            self.free_page_reporting = Feature::known(true, "observed reports");
        }
        self
    }
}

/// Lengths that classify discards of RAM, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// Discards of at least this length are neither inflate nor report.
    pub other_min: u64,
    /// Other discards of at least this length are reports; shorter ones are inflates.
    pub report_min: u64,
}

/// Minimum length of a report: a block of 2^9 pages on x86 (`mm/page_reporting.c`,
/// `pageblock_order`).
const REPORT_MIN: u64 = 2 << 20;

impl Thresholds {
    /// Thresholds of a VM. `huge_pages`: its RAM is hugetlbfs, which the balloon discards
    /// in whole huge pages.
    pub fn of(features: &Features, huge_pages: bool) -> Self {
        let reports = match features.free_page_reporting.enabled {
            Some(reports) => reports,
            None => !huge_pages,
        };
        let never = u64::MAX;
        let (other_min, report_min) = match (reports, huge_pages) {
            (true, _) => (never, REPORT_MIN),
            (false, true) => (never, never),
            // Large discards are unplugged memory (virtio-mem): a balloon discards single
            // pages.
            (false, false) => (REPORT_MIN, never),
        };
        Self {
            other_min,
            report_min,
        }
    }

    /// Whether large discards can be inflates or reports and are therefore timed. This
    /// needs a timestamp at the start of every discard, so it also adds cost to a
    /// balloon's single pages.
    pub fn large_are_given_back(&self) -> bool {
        self.other_min == u64::MAX
    }
}

const BY_ARGUMENTS: &str = "the VMM's arguments";

/// Features according to the arguments (without `argv[0]`).
pub fn of_arguments(vmm: Vmm, args: &[String]) -> Features {
    if args.is_empty() {
        return Features::both(Feature::unknown("the VMM's arguments cannot be read"));
    }
    match vmm {
        Vmm::Qemu | Vmm::StratoVirt => qemu(args),
        Vmm::CloudHypervisor => cloud_hypervisor(args),
        Vmm::Firecracker | Vmm::Dragonball => Features::both(Feature::unknown(
            "the VMM is configured through its API, not by arguments",
        )),
        Vmm::Kvmtool | Vmm::Crosvm | Vmm::Other => {
            Features::both(Feature::unknown("unknown for this VMM"))
        }
    }
}

/// `-device virtio-balloon…`, key=value or JSON (hw/virtio/virtio-balloon.c: the property
/// is off by default).
fn qemu(args: &[String]) -> Features {
    let devices = args
        .array_windows()
        .filter(|[option, _]| option.trim_start_matches('-') == "device");
    let mut balloons = devices
        .map(|[_, device]| device.trim())
        .filter(|device| driver(device).starts_with("virtio-balloon"))
        .peekable();
    if balloons.peek().is_none() {
        return Features::both(Feature::known(false, BY_ARGUMENTS));
    }
    let reports = balloons.any(|device| {
        let value = property(device, "free-page-reporting").unwrap_or_default();
        matches!(value.as_str(), "on" | "yes" | "true" | "y")
    });
    Features {
        balloon: Feature::known(true, BY_ARGUMENTS),
        free_page_reporting: Feature::known(reports, BY_ARGUMENTS),
    }
}

/// `--balloon size=…[,free_page_reporting=on]` (vmm/src/config.rs). Without the option
/// the VM has no balloon, if it is configured by arguments and not over the API.
fn cloud_hypervisor(args: &[String]) -> Features {
    let value = |name: &str| {
        args.iter().enumerate().find_map(|(at, arg)| {
            let rest = arg.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                None if rest.is_empty() => args.get(at + 1).map(String::as_str),
                value => value,
            }
        })
    };
    if let Some(balloon) = value("--balloon") {
        let reports = property(balloon, "free_page_reporting").as_deref() == Some("on");
        return Features {
            balloon: Feature::known(true, BY_ARGUMENTS),
            free_page_reporting: Feature::known(reports, BY_ARGUMENTS),
        };
    }
    if value("--kernel").is_some() || value("--firmware").is_some() {
        return Features::both(Feature::known(false, BY_ARGUMENTS));
    }
    Features::both(Feature::unknown(
        "the VMM is configured through its API, not by arguments",
    ))
}

/// Driver name of a device option.
fn driver(device: &str) -> String {
    if device.starts_with('{') {
        return property(device, "driver").unwrap_or_default();
    }
    let first = device.split(',').next().unwrap_or_default();
    first.strip_prefix("driver=").unwrap_or(first).to_owned()
}

/// Value of a property in `key=value,…` or in a JSON object.
fn property(device: &str, name: &str) -> Option<String> {
    if device.starts_with('{') {
        let device: Value = serde_json::from_str(device).ok()?;
        return device.get(name).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
    }
    device
        .split(',')
        .filter_map(|part| part.split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::{Thresholds, of_arguments};
    use crate::identify::vmm::Vmm;
    use crate::vocab::Features;

    const MIB: u64 = 1 << 20;

    fn features_of(vmm: Vmm, command: &str) -> (Option<bool>, Option<bool>) {
        let args: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let features = of_arguments(vmm, &args);
        (
            features.balloon.enabled,
            features.free_page_reporting.enabled,
        )
    }

    #[test]
    fn balloon_and_reporting_are_parsed_from_arguments() {
        let (yes, no) = (Some(true), Some(false));
        for (vmm, command, expected) in [
            (Vmm::Qemu, "-m 1G -device virtio-net-pci", (no, no)),
            (Vmm::Qemu, "-device virtio-balloon-pci,id=b", (yes, no)),
            (Vmm::Qemu, "--device virtio-balloon-device", (yes, no)),
            (
                Vmm::Qemu,
                "-device driver=virtio-balloon-pci,free-page-reporting=on",
                (yes, yes),
            ),
            (
                Vmm::Qemu,
                "-device virtio-balloon-pci,free-page-reporting=on,free-page-reporting=off",
                (yes, no),
            ),
            (
                Vmm::Qemu,
                r#"-device {"driver":"virtio-balloon-pci","id":"balloon0","free-page-reporting":true,"bus":"pci.6"}"#,
                (yes, yes),
            ),
            (
                Vmm::Qemu,
                r#"-device {"driver":"virtio-net-pci","id":"free-page-reporting"}"#,
                (no, no),
            ),
            (
                Vmm::Qemu,
                r#"-device {"inner":{"driver":"virtio-balloon-pci"},"driver":"virtio-net-pci"}"#,
                (no, no),
            ),
            (
                Vmm::StratoVirt,
                "-device virtio-balloon-pci,free-page-reporting=true",
                (yes, yes),
            ),
            (
                Vmm::CloudHypervisor,
                "--kernel k --balloon size=0,free_page_reporting=on",
                (yes, yes),
            ),
            (
                Vmm::CloudHypervisor,
                "--kernel k --balloon=size=0",
                (yes, no),
            ),
            (Vmm::CloudHypervisor, "--kernel k", (no, no)),
            (Vmm::CloudHypervisor, "--api-socket s", (None, None)),
            (Vmm::Firecracker, "--id x", (None, None)),
            (Vmm::Dragonball, "-id x", (None, None)),
            (Vmm::Other, "x", (None, None)),
        ] {
            assert_eq!(features_of(vmm, command), expected, "{command}");
        }
        assert_eq!(of_arguments(Vmm::Qemu, &[]).balloon.enabled, None);
    }

    #[test]
    fn observed_feature_is_enabled() {
        let silent = Features::default().seen(Vmm::Qemu, 0, 0);
        assert_eq!(silent, Features::default());
        let seen = Features::default().seen(Vmm::Qemu, 0, 3);
        assert_eq!(seen.free_page_reporting.enabled, Some(true));
        let firecracker = Features::default().seen(Vmm::Firecracker, 0, 3);
        assert_eq!(firecracker.balloon.enabled, Some(true));
        assert_eq!(firecracker.free_page_reporting.enabled, None);
    }

    #[test]
    fn discards_are_classified_by_vm_features() {
        let of = |reports, huge_pages| {
            let mut features = Features::default();
            features.free_page_reporting.enabled = reports;
            let thresholds = Thresholds::of(&features, huge_pages);
            (thresholds.other_min, thresholds.report_min)
        };
        let never = u64::MAX;
        for huge_pages in [false, true] {
            assert_eq!(of(Some(true), huge_pages), (never, 2 * MIB));
        }
        assert_eq!(of(None, false), (never, 2 * MIB));
        assert_eq!(of(Some(false), false), (2 * MIB, never));
        for reports in [None, Some(false)] {
            assert_eq!(of(reports, true), (never, never), "a huge page is a page");
        }
    }
}
