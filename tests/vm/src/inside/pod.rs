//! Starts one pod: a virtiofsd and a QEMU in their cgroups.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use virtlens_vmtest::plan::Stage;
use virtlens_vmtest::qmp::Qmp;
use virtlens_vmtest::scenario::Pod;

use crate::cgroup;
use crate::procfs::{comm, processes, threads, wait_for};

/// The network of the pod with a guest: interface, host address, guest address.
pub(crate) const TAP: (&str, &str, &str) = ("vmtap0", "10.77.0.1", "10.77.0.2");

/// Longer than any step takes under emulation.
const PATIENCE: Duration = Duration::from_mins(1);

/// Properties in which pods differ.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Id of the sandbox, after which Kata names its QEMU.
    pub(crate) sandbox: String,
    pub(crate) uid: &'static str,
    /// Cgroups relative to the root: the pod's, the VMM's, the virtiofsd's.
    pub(crate) pod_cgroup: PathBuf,
    pub(crate) vmm_cgroup: PathBuf,
    pub(crate) virtiofsd_cgroup: PathBuf,
    /// Boots Linux with every device; otherwise idle firmware.
    pub(crate) full: bool,
}

/// A running pod, with the processes that have to be ended.
pub(crate) struct Running {
    pub(crate) pod: Pod,
    /// Directory of the pod's files: sockets, disk, logs.
    pub(crate) dir: PathBuf,
    children: Vec<Child>,
}

const NAMED_UID: &str = "6f1c1b8e-3f0a-4f3e-9a51-0d9c1d2e3f40";
const PLAIN_UID: &str = "b7a9d2c4-58e1-4c6f-8b1d-73f2a90c4e15";

/// The pods of the scenario.
///
/// `named` has the layout of containerd with the systemd cgroup driver and Kata's
/// `sandbox_cgroup_only`. `plain` has the default layout of Kata's Go runtime with the
/// cgroupfs driver on cgroup v2: helpers in `/kata_overhead`, outside the pod
/// (kata-containers 4.1 `src/runtime/virtcontainers/sandbox.go`).
pub(crate) fn shapes() -> [Shape; 2] {
    let slice = format!(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
        NAMED_UID.replace('-', "_")
    );
    let named = "a1".repeat(32);
    let sandbox = "c3".repeat(32);
    let pod = format!("kubepods/burstable/pod{PLAIN_UID}");
    [
        Shape {
            name: "named",
            uid: NAMED_UID,
            vmm_cgroup: format!("{slice}/cri-containerd-{named}.scope").into(),
            virtiofsd_cgroup: format!("{slice}/cri-containerd-{}.scope", "b2".repeat(32)).into(),
            pod_cgroup: slice.into(),
            sandbox: named,
            full: true,
        },
        Shape {
            name: "plain",
            uid: PLAIN_UID,
            vmm_cgroup: format!("{pod}/kata_{sandbox}").into(),
            virtiofsd_cgroup: format!("kata_overhead/{sandbox}").into(),
            pod_cgroup: pod.into(),
            sandbox,
            full: false,
        },
    ]
}

impl Running {
    /// Starts the pod and waits until its VMM answers.
    pub(crate) fn start(shape: &Shape, stage: &Stage) -> anyhow::Result<Self> {
        let dir = Path::new("/run/scenario").join(shape.name);
        fs::create_dir_all(dir.join("share"))?;
        for group in [&shape.vmm_cgroup, &shape.virtiofsd_cgroup] {
            cgroup::make(group)?;
        }
        let socket = dir.join("virtiofsd.sock");
        let mut virtiofsd = Command::new(&stage.virtiofsd);
        virtiofsd
            .arg("--socket-path")
            .arg(&socket)
            .arg("--shared-dir")
            .arg(dir.join("share"));
        // Without the guest's page cache every access reaches the daemon.
        virtiofsd.args(["--cache", "never", "--thread-pool-size", "1"]);
        let log = dir.join("virtiofsd.log");
        let mut children = vec![spawn(&virtiofsd, &shape.virtiofsd_cgroup, &log)?];
        wait_for("virtiofsd's socket", PATIENCE, || {
            socket.exists().then_some(())
        })?;

        let qmp = dir.join("qmp.sock");
        let log = dir.join("qemu.log");
        children.push(spawn(&qemu(shape, stage, &dir)?, &shape.vmm_cgroup, &log)?);
        let (virtiofsd, vmm) = (children[0].id(), children[1].id());
        let mut answer = wait_for("QEMU's monitor", PATIENCE, || Qmp::connect(&qmp).ok())
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        let workers = shape.full.then(|| vhost_workers(vmm)).transpose()?;
        let pod = Pod {
            uid: shape.uid.to_owned(),
            vmm_pid: vmm,
            vcpu_tids: answer.thread_ids("query-cpus-fast")?,
            iothread_tids: answer.thread_ids("query-iothreads")?,
            virtiofsd_pids: std::iter::once(virtiofsd)
                .chain(children_of(virtiofsd))
                .collect(),
            vhost_tid: workers.map(|[net, _]| net),
            vsock_tid: workers.map(|[_, vsock]| vsock),
            tap: shape.full.then(|| TAP.0.to_owned()),
            pod_cgroup: shape.pod_cgroup.clone(),
            vmm_cgroup: shape.vmm_cgroup.clone(),
            virtiofsd_cgroup: shape.virtiofsd_cgroup.clone(),
            qmp,
            loads: Vec::new(),
        };
        Ok(Self { pod, dir, children })
    }

    /// The processes that ended unexpectedly, with their exit status.
    pub(crate) fn dead(&mut self) -> impl Iterator<Item = String> {
        let named = ["its virtiofsd", "its VMM"]
            .into_iter()
            .zip(&mut self.children);
        named.filter_map(|(name, child)| match child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("{name}: {status}")),
            Err(error) => Some(format!("{name}: {error}")),
        })
    }

    /// Ends the pod's processes, the VMM first.
    pub(crate) fn stop(mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a command inside a cgroup: a shell enters it and executes the command, so that
/// none of its threads was ever outside.
fn spawn(command: &Command, group: &Path, log: &Path) -> anyhow::Result<Child> {
    let log = File::create(log)?;
    Command::new("/bin/sh")
        .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
        .arg(cgroup::path(group))
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start /bin/sh")
}

fn qemu(shape: &Shape, stage: &Stage, dir: &Path) -> anyhow::Result<Command> {
    let path = |file: &str| dir.join(file).display().to_string();
    let size = if shape.full { "256M" } else { "64M" };
    let names = if shape.full { ",debug-threads=on" } else { "" };
    let mut qemu = Command::new(&stage.qemu);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-accel", "kvm", "-cpu", "max,+topoext", "-m", size])
        .args(["-name", &format!("sandbox-{}{names}", shape.sandbox)])
        .args([
            "-object",
            &format!("memory-backend-memfd,id=ram,size={size},share=on"),
        ])
        .args(["-machine", "q35,memory-backend=ram"])
        .args(["-object", "iothread,id=io0"])
        .args([
            "-chardev",
            &format!("socket,id=fs,path={}", path("virtiofsd.sock")),
        ])
        .args(["-device", "vhost-user-fs-pci,chardev=fs,tag=share"])
        .args([
            "-qmp",
            &format!("unix:{},server=on,wait=off", path("qmp.sock")),
        ]);
    if !shape.full {
        return Ok(qemu);
    }
    File::create(dir.join("disk"))?.set_len(64 << 20)?;
    let net = format!(
        "tap,id=net,ifname={},script=no,downscript=no,vhost=on",
        TAP.0
    );
    qemu.args(["-smp", "2,sockets=1,cores=1,threads=2"])
        .args([
            "-drive",
            &format!("if=none,id=disk,format=raw,file={}", path("disk")),
        ])
        .args(["-device", "virtio-blk-pci,drive=disk,iothread=io0"])
        .args([
            "-netdev",
            &net,
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
        ])
        .args(["-device", "vhost-vsock-pci,guest-cid=3"])
        .args(["-device", "virtio-balloon-pci,free-page-reporting=on"])
        .args(["-serial", &format!("file:{}", path("guest.log"))])
        .args([
            "-chardev",
            &format!("socket,id=ctl,path={},server=on,wait=off", path("ctl.sock")),
        ])
        .args(["-serial", "chardev:ctl"])
        .arg("-kernel")
        .arg(&stage.guest_kernel)
        .arg("-initrd")
        .arg(&stage.guest_initrd)
        // Order 9 lets the guest report 2 MiB blocks on every kernel.
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 page_reporting.page_reporting_order=9",
        ]);
    Ok(qemu)
}

/// The workers of the VMM's two vhost devices, vhost-net and vhost-vsock. Both are named
/// after the thread that set the owner. They are kernel threads up to 6.3, and threads of
/// the VMM since then (drivers/vhost/vhost.c). QEMU opens network backends before it
/// creates devices, so the first worker is that of vhost-net; the rig's self-tests check
/// this.
fn vhost_workers(vmm: u32) -> anyhow::Result<[u32; 2]> {
    let name = format!("vhost-{vmm}");
    let mut all = threads(vmm);
    all.extend(processes());
    all.retain(|tid| comm(*tid) == name);
    all.sort_unstable();
    match all[..] {
        [net, vsock] => Ok([net, vsock]),
        _ => bail!("threads {name} are {all:?}, not two"),
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let parent = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        // The name is in brackets and may contain anything, even ") ".
        stat.rsplit_once(") ")?
            .1
            .split(' ')
            .nth(1)?
            .parse::<u32>()
            .ok()
    };
    processes()
        .into_iter()
        .filter(|child| parent(child) == Some(pid))
        .collect()
}
