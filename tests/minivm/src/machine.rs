//! The whole VM: its vCPUs and helpers, and the execution of orders.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::time::Duration;

use anyhow::{Context, ensure};
use kvm_ioctls::VcpuFd;
use rustix::thread::set_name;
use serde::Serialize;

use crate::args::{Args, Mode};
use crate::clock::{process_cpu_ns, thread_cpu_ns};
use crate::cpuid::Topology;
use crate::helper::Helper;
use crate::memory::Mapping;
use crate::stats::{self, Stats};
use crate::vcpu::Vcpu;
use crate::vhost::Vhost;
use crate::vm::Vm;

/// A running VM.
pub(crate) struct Machine<'a> {
    args: &'a Args,
    vm: Vm,
    vcpus: BTreeMap<u32, Vcpu>,
    /// Files of unplugged vCPUs: KVM cannot destroy a vCPU before its VM.
    parked: BTreeMap<u32, VcpuFd>,
    /// KVM's statistics of each vCPU, where the kernel has them.
    stats: BTreeMap<u32, File>,
    helpers: BTreeMap<u32, Helper>,
    vhost: Option<Vhost>,
}

/// A vCPU in replies.
#[derive(Debug, Serialize)]
pub(crate) struct VcpuStatus {
    index: u32,
    id: u32,
    tid: i32,
    mode: String,
    cpu_ns: u64,
}

/// A helper thread in replies.
#[derive(Debug, Serialize)]
pub(crate) struct ThreadStatus {
    name: String,
    tid: i32,
    cpu_ns: u64,
}

/// The VM in replies.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pid: u32,
    /// CPU time of all threads that ever existed, ns.
    process_cpu_ns: u64,
    vcpus: Vec<VcpuStatus>,
    threads: Vec<ThreadStatus>,
}

/// A thread that uses CPU time on order: a vCPU in its guest, a helper in user space.
pub(crate) trait Worker {
    /// Tid of the thread.
    fn tid(&self) -> i32;

    /// Orders the thread to use `cpu` of CPU time, and then to be idle.
    fn burn(&mut self, cpu: Duration) -> anyhow::Result<()>;

    /// Waits until the last order is executed; after `burn`, until the thread is idle.
    fn settle(&mut self) -> anyhow::Result<()>;
}

/// CPU time that one thread burned.
#[derive(Debug, Serialize)]
pub(crate) struct Receipt {
    index: u32,
    tid: i32,
    /// CPU time from before the order until the thread was idle, ns.
    burned_ns: u64,
    /// CPU time since the thread's start, ns.
    cpu_ns: u64,
}

impl<'a> Machine<'a> {
    /// Starts everything that the command line requests, each vCPU in its mode.
    pub(crate) fn start(args: &'a Args) -> anyhow::Result<Self> {
        if let Some(name) = &args.comm {
            rename_process(name)?;
        }
        let mut machine = Self {
            args,
            vm: Vm::create(args)?,
            vcpus: BTreeMap::new(),
            parked: BTreeMap::new(),
            stats: BTreeMap::new(),
            helpers: BTreeMap::new(),
            vhost: args.vhost_net.as_deref().map(Vhost::start).transpose()?,
        };
        let capacity = args.topology.map(Topology::capacity);
        for index in 0..args.vcpus.or(capacity).unwrap_or(1) {
            machine.start_vcpu(index)?;
        }
        for group in &args.threads {
            for index in 0..group.count {
                let helper = Helper::start(&group.name, index)?;
                machine
                    .helpers
                    .insert(u32::try_from(machine.helpers.len())?, helper);
            }
        }
        for vcpu in machine
            .vcpus
            .values_mut()
            .filter(|_| args.start != Mode::Pause)
        {
            vcpu.enter(args.start)?;
        }
        machine.vcpus.values_mut().try_for_each(Vcpu::settle)?;
        machine.helpers.values_mut().try_for_each(Helper::settle)?;
        Ok(machine)
    }

    /// Guest memory.
    pub(crate) fn ram(&self) -> &Mapping {
        self.vm.ram()
    }

    /// The VM without its threads.
    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    /// The network device.
    pub(crate) fn vhost(&mut self) -> anyhow::Result<&mut Vhost> {
        let vhost = self.vhost.as_mut();
        vhost.context("no vhost-net device: start with --vhost-net")
    }

    /// All living threads and their CPU time.
    pub(crate) fn status(&self) -> Status {
        Status {
            pid: std::process::id(),
            process_cpu_ns: process_cpu_ns(),
            vcpus: self.vcpus.values().map(vcpu_status).collect(),
            threads: self.helpers.values().map(thread_status).collect(),
        }
    }

    /// KVM's statistics of the VM; empty where the kernel has none.
    pub(crate) fn vm_stats(&self) -> anyhow::Result<Stats> {
        self.vm.stats()
    }

    /// KVM's statistics of each vCPU, by index; empty where the kernel has none.
    pub(crate) fn stats(&self) -> anyhow::Result<BTreeMap<u32, Stats>> {
        let read = |(index, file): (&u32, &File)| Ok((*index, stats::read(file)?));
        self.stats.iter().map(read).collect()
    }

    /// Indexes of the living vCPUs.
    pub(crate) fn vcpu_indexes(&self) -> Vec<u32> {
        self.vcpus.keys().copied().collect()
    }

    /// Indexes of the helper threads, in the order of the command line.
    pub(crate) fn helper_indexes(&self) -> Vec<u32> {
        self.helpers.keys().copied().collect()
    }

    /// Sets the mode of vCPUs; returns once all are in it.
    pub(crate) fn enter(&mut self, indexes: &[u32], mode: Mode) -> anyhow::Result<()> {
        indexes
            .iter()
            .try_for_each(|index| self.vcpu(*index)?.enter(mode))?;
        indexes
            .iter()
            .try_for_each(|index| self.vcpu(*index)?.settle())
    }

    /// Burns CPU time on vCPUs at the same time; returns once all are halted.
    pub(crate) fn burn_vcpus(
        &mut self,
        indexes: &[u32],
        cpu: Duration,
    ) -> anyhow::Result<Vec<Receipt>> {
        burn(&mut self.vcpus, indexes, cpu)
    }

    /// Burns CPU time on helper threads at the same time; returns once all are idle.
    pub(crate) fn burn_helpers(
        &mut self,
        indexes: &[u32],
        cpu: Duration,
    ) -> anyhow::Result<Vec<Receipt>> {
        burn(&mut self.helpers, indexes, cpu)
    }

    /// Burns CPU time in user space of a vCPU's thread, and leaves it paused.
    pub(crate) fn burn_in_user_space(
        &mut self,
        index: u32,
        cpu: Duration,
    ) -> anyhow::Result<Receipt> {
        let vcpu = self.vcpu(index)?;
        let before_ns = thread_cpu_ns(vcpu.tid);
        vcpu.burn_in_user_space(cpu)?;
        vcpu.settle()?;
        let cpu_ns = thread_cpu_ns(vcpu.tid);
        Ok(Receipt {
            index,
            tid: vcpu.tid,
            burned_ns: cpu_ns - before_ns,
            cpu_ns,
        })
    }

    /// Renames a helper thread; the kernel keeps 15 bytes of the name.
    pub(crate) fn rename_helper(&mut self, index: u32, name: &str) -> anyhow::Result<()> {
        let helper = self.helpers.get_mut(&index);
        let helper = helper.with_context(|| format!("no thread {index}"))?;
        let comm = format!("/proc/self/task/{}/comm", helper.tid);
        std::fs::write(&comm, name).with_context(|| format!("cannot write {comm}"))?;
        name.clone_into(&mut helper.name);
        Ok(())
    }

    /// Adds a vCPU: the first parked one, else the next index.
    pub(crate) fn plug(&mut self, mode: Mode) -> anyhow::Result<VcpuStatus> {
        let parked = self.parked.keys().next().copied();
        let next = || self.vcpus.keys().next_back().map_or(0, |last| last + 1);
        let index = parked.unwrap_or_else(next);
        self.start_vcpu(index)?;
        if mode != Mode::Pause {
            self.enter(&[index], mode)?;
        }
        Ok(vcpu_status(self.vcpu(index)?))
    }

    /// Ends a vCPU's thread; returns its CPU time, ns.
    pub(crate) fn unplug(&mut self, index: u32) -> anyhow::Result<u64> {
        self.vcpu(index)?;
        let vcpu = self.vcpus.remove(&index).expect("it was just found");
        let (fd, cpu_ns) = vcpu.end()?;
        self.parked.insert(index, fd);
        Ok(cpu_ns)
    }

    /// Ends all vCPUs and closes their files, as Cloud Hypervisor does on `vm.shutdown`.
    pub(crate) fn release(&mut self) -> anyhow::Result<()> {
        for index in self.vcpu_indexes() {
            self.unplug(index)?;
        }
        self.parked.clear();
        self.stats.clear();
        Ok(())
    }

    /// Starts a vCPU in a new thread, which waits in user space.
    fn start_vcpu(&mut self, index: u32) -> anyhow::Result<()> {
        let id = self.vcpu_id(index)?;
        let fd = if let Some(fd) = self.parked.remove(&index) {
            fd
        } else {
            let fd = self.vm.create_vcpu(id, self.args)?;
            self.stats
                .extend(stats::open(&fd)?.map(|file| (index, file)));
            fd
        };
        let name = Some(self.args.vcpu_name.as_str()).filter(|name| *name != "same");
        self.vcpus.insert(index, Vcpu::start(index, id, name, fd)?);
        Ok(())
    }

    fn vcpu_id(&self, index: u32) -> anyhow::Result<u32> {
        if let Some(shape) = self.args.topology {
            let capacity = shape.capacity();
            ensure!(
                index < capacity,
                "the topology has only {capacity} vCPUs: widen it"
            );
            return Ok(shape.apic_id(index));
        }
        let ids = self.args.vcpu_ids;
        let distance = index.checked_mul(ids.stride);
        distance
            .and_then(|far| far.checked_add(ids.base))
            .context("vCPU id too high")
    }

    fn vcpu(&mut self, index: u32) -> anyhow::Result<&mut Vcpu> {
        self.vcpus
            .get_mut(&index)
            .with_context(|| format!("no vCPU {index}: see status"))
    }
}

fn burn<W: Worker>(
    workers: &mut BTreeMap<u32, W>,
    indexes: &[u32],
    cpu: Duration,
) -> anyhow::Result<Vec<Receipt>> {
    let mut before_ns = Vec::new();
    for index in indexes {
        let worker = workers
            .get_mut(index)
            .with_context(|| format!("no thread {index}"))?;
        before_ns.push(thread_cpu_ns(worker.tid()));
        worker.burn(cpu)?;
    }
    let mut receipts = Vec::new();
    for (&index, before_ns) in indexes.iter().zip(before_ns) {
        let worker = workers.get_mut(&index).expect("it was just given an order");
        worker.settle()?;
        let (tid, cpu_ns) = (worker.tid(), thread_cpu_ns(worker.tid()));
        receipts.push(Receipt {
            index,
            tid,
            burned_ns: cpu_ns - before_ns,
            cpu_ns,
        });
    }
    Ok(receipts)
}

fn vcpu_status(vcpu: &Vcpu) -> VcpuStatus {
    VcpuStatus {
        index: vcpu.index,
        id: vcpu.id,
        tid: vcpu.tid,
        mode: vcpu.mode.to_string(),
        cpu_ns: thread_cpu_ns(vcpu.tid),
    }
}

fn thread_status(helper: &Helper) -> ThreadStatus {
    ThreadStatus {
        name: helper.name.clone(),
        tid: helper.tid,
        cpu_ns: thread_cpu_ns(helper.tid),
    }
}

/// Names the main thread, and so the process. The kernel keeps 15 bytes.
pub(crate) fn rename_process(name: &str) -> anyhow::Result<()> {
    let name = CString::new(name).context("a name without NUL")?;
    Ok(set_name(&name)?)
}
