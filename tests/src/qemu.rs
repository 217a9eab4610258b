//! A handle on a real QEMU whose guest is a boot sector that spins.

use std::io::Write;
use std::process::{Child, Stdio};

use tempfile::NamedTempFile;

use crate::{Launch, eventually, process};

/// The program, found in `PATH`.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// A running QEMU; killed on drop and when the thread that started it exits.
#[derive(Debug)]
pub struct Qemu {
    child: Child,
    /// The guest's disk: QEMU reads it as long as it runs.
    _disk: NamedTempFile,
}

impl Qemu {
    /// A QEMU to be started: add arguments with [`args`](Launch::args), then
    /// [`start_launch`](Self::start_launch).
    ///
    /// Arguments that tests add: `-smp 4,sockets=1,cores=2,threads=2`, `-name
    /// guest=NAME,debug-threads=on` (without it QEMU does not name its threads), `-S`
    /// (paused from the start), `-object iothread,id=io0`.
    pub fn launch() -> Launch {
        Launch::new(PROGRAM).die_with_thread().args([
            "-accel",
            "kvm",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-m",
            "16",
        ])
    }

    /// Starts a QEMU with these arguments and waits for its vCPUs.
    pub fn start<'a>(vcpus: usize, args: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_launch(vcpus, Self::launch().args(args))
    }

    /// Starts a prepared QEMU and waits until it holds `vcpus` vCPU files.
    pub fn start_launch(vcpus: usize, launch: Launch) -> Self {
        let disk = boot_disk();
        let drive = format!("file={},format=raw,if=ide", disk.path().display());
        let mut launch = launch.args(["-drive", &drive]);
        let command = launch.command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("qemu-system-x86_64 can be started");
        let mut qemu = Self { child, _disk: disk };
        eventually("QEMU's vCPUs", || {
            if let Some(status) = qemu.child.try_wait().expect("a child can be waited for") {
                panic!("QEMU ended ({status}); the cause is on stderr");
            }
            (process::vcpu_ids(qemu.pid()).len() == vcpus).then_some(())
        });
        qemu
    }

    /// Pid of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first thread with this name; needs `debug-threads=on` for all but the main
    /// thread. vCPUs are `CPU n/KVM`, iothreads `IO id`.
    pub fn tid_of(&self, name: &str) -> Option<i32> {
        let pid = self.pid();
        process::tids(pid)
            .into_iter()
            .find(|tid| process::comm(pid, *tid).as_deref() == Some(name))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A sector with a nop and a jump back to it, and the boot signature of the BIOS. The
/// first vCPU spins; the others are halted and wait to be started.
fn boot_disk() -> NamedTempFile {
    let mut sector = [0_u8; 512];
    sector[..3].copy_from_slice(&[0x90, 0xeb, 0xfd]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(&sector)
        .expect("a temporary file can be written");
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need;

    #[test]
    fn paused_qemu_has_no_running_vcpus() {
        let test = "paused_qemu_has_no_running_vcpus";
        if !need::all(test, [need::kvm(), need::qemu()]) {
            return;
        }
        let args = [
            "-smp",
            "4,sockets=1,cores=2,threads=2",
            "-name",
            "guest=q,debug-threads=on",
        ];
        let running = Qemu::start(4, args.into_iter().chain(["-object", "iothread,id=io0"]));
        assert_eq!(process::vcpu_ids(running.pid()), [0, 1, 2, 3]);
        assert!(running.tid_of("IO io0").is_some());
        let spinner = eventually("the thread of vCPU 0", || running.tid_of("CPU 0/KVM"));
        let waiter = eventually("the thread of vCPU 3", || running.tid_of("CPU 3/KVM"));
        eventually("vCPU 3 to wait in the kernel", || {
            process::is_halted(running.pid(), waiter).then_some(())
        });
        let cpu_ns = || {
            process::Schedstat::read(running.pid(), spinner)
                .expect("it lives")
                .cpu_ns
        };
        let start_ns = cpu_ns();
        eventually("vCPU 0 to use CPU", || {
            (cpu_ns() > start_ns + 50_000_000).then_some(())
        });

        let paused = Qemu::start(2, ["-smp", "2", "-S"]);
        let tids = process::tids(paused.pid());
        assert!(
            tids.into_iter()
                .all(|tid| !process::is_halted(paused.pid(), tid))
        );
    }
}
