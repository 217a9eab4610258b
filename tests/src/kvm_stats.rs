//! KVM's statistics: of a minivm from KVM's statistics files, which need Linux 5.14, before
//! from debugfs. With lockdown only some files of debugfs are readable.

use std::fs;
use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Minivm;

/// The statistics `names` of a minivm, summed over its vCPUs; `None` if this kernel does not
/// have one.
pub fn of_minivm<const N: usize>(guest: &mut Minivm, names: [&str; N]) -> [Option<u64>; N] {
    let mut reply = guest.command("stats");
    let vm = reply["vm"].take();
    if vm.as_object().is_none_or(serde_json::Map::is_empty) {
        let stats = KvmStats::mount();
        return names.map(|name| stats.read(guest.pid(), name));
    }
    let vcpus = reply["vcpus"].as_object().expect("an object of vCPUs");
    names.map(|name| {
        let of_each = vcpus.values().chain([&vm]);
        let values = of_each.filter_map(|stats| stats[name][0].as_u64());
        values.reduce(|sum, value| sum + value)
    })
}

/// A mounted debugfs; unmounted on drop.
#[derive(Debug)]
struct KvmStats {
    mounted: tempfile::TempDir,
}

impl KvmStats {
    /// Mounts debugfs in a new folder.
    fn mount() -> Self {
        let mounted = tempfile::tempdir().expect("there is room for a folder");
        mount(
            "debugfs",
            mounted.path(),
            "debugfs",
            MountFlags::empty(),
            None,
        )
        .expect("root can mount debugfs");
        Self { mounted }
    }

    /// A statistic of the VM of process `pid`, summed over its vCPUs; `None` if this kernel
    /// does not have it. KVM names the folder of a VM by the pid of its creator and a file
    /// descriptor (`kvm_create_vm_debugfs`, `virt/kvm/kvm_main.c`).
    fn read(&self, pid: u32, name: &str) -> Option<u64> {
        // The name in debugfs before v5.15 (`debugfs_entries`, `arch/x86/kvm/x86.c`).
        let name = match name {
            "nx_lpage_splits" => "nx_largepages_splitted",
            name => name,
        };
        let text = fs::read_to_string(self.of(pid).join(name)).ok()?;
        Some(text.trim().parse().expect("a statistic is a number"))
    }

    fn of(&self, pid: u32) -> PathBuf {
        let vms = fs::read_dir(self.mounted.path().join("kvm")).expect("KVM has a folder there");
        let prefix = format!("{pid}-");
        let mut vms = vms.map(|entry| entry.expect("it can be read").path());
        vms.find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&prefix))
        })
        .unwrap_or_else(|| panic!("KVM has no folder of process {pid}"))
    }
}

impl Drop for KvmStats {
    fn drop(&mut self) {
        let unmounted = unmount(self.mounted.path(), UnmountFlags::DETACH);
        assert_eq!(unmounted, Ok(()), "root can unmount debugfs");
    }
}
