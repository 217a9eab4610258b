//! Lists of a cluster's VMs: the rows of each node's last readings, without the readings.
//!
//! A reading of a node has some 10 KB per VM, a row a few hundred bytes. The rates of the next rows
//! need some counters of the last reading, which are kept where the agents are asked.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::{Quota, RoleUse, Snapshot, Vcpu, Vm, Worker};

use super::rows::Row;
use crate::views::shortfall::is_read;

/// Limit on the kept rows of all nodes; at least one list of each node is kept.
const MAX_ROWS: usize = 20_000;

/// Limit on the kept lists of a node.
const MAX_LISTS: usize = 120;

/// The VMs of a reading.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Time of the reading, as the agent wrote it.
    pub time: String,
    /// Whether the agent can read its host.
    pub is_read: bool,
    /// The VMs.
    pub rows: Vec<Row>,
}

/// The last lists of one of several nodes, oldest first.
#[derive(Debug, Default)]
pub struct Lists {
    lists: VecDeque<Listed>,
    most_rows: usize,
}

impl Lists {
    /// The lists of one of several nodes, which share the limit.
    pub fn one_of(nodes: usize) -> Self {
        Self {
            lists: VecDeque::new(),
            most_rows: MAX_ROWS / nodes.max(1),
        }
    }

    /// Adds a list.
    pub fn add(&mut self, listed: Listed) {
        self.lists.push_back(listed);
        while self.lists.len() > MAX_LISTS || self.lists.len() > 1 && self.rows() > self.most_rows {
            self.lists.pop_front();
        }
    }

    /// Number of lists.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there was no reading yet.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The list `back` lists before the newest.
    pub fn at(&self, back: usize) -> Option<&Listed> {
        self.lists.get(self.lists.len().checked_sub(back + 1)?)
    }

    fn rows(&self) -> usize {
        self.lists.iter().map(|listed| listed.rows.len()).sum()
    }
}

/// Reduces the readings of a node to lists.
#[derive(Debug)]
pub struct Lister {
    node: (usize, Arc<str>),
    /// The time of the last reading on the agent's clock, ns, and its counters.
    last: Option<(u64, FxHashMap<Key, Counters>)>,
}

impl Lister {
    /// Lists the VMs of the node with this number and name.
    pub fn new(number: usize, name: &str) -> Self {
        Self {
            node: (number, name.into()),
            last: None,
        }
    }

    /// The VMs of a reading, with their usage since the reading before; `None` if the agent
    /// repeats that.
    pub fn list(&mut self, reading: &Snapshot) -> Option<Listed> {
        let (number, name) = &self.node;
        let now_ns = reading.clock_ns;
        if self.last.as_ref().is_some_and(|(ns, _)| *ns == now_ns) {
            return None;
        }
        // The clock of an agent that was restarted begins again.
        let last = self.last.as_ref().filter(|(ns, _)| *ns < now_ns);
        let row = |vm: &Vm| {
            let then = last.and_then(|(ns, counters)| {
                let then = counters.get(&key(vm))?;
                Some((*ns, then.vm()))
            });
            let over = then.as_ref().map(|(ns, then)| {
                let length_ns = now_ns.saturating_sub(*ns);
                Interval::between(then, vm, length_ns)
            });
            Row::of(vm, over.as_ref(), (*number, name))
        };
        let listed = Listed {
            time: reading.time.clone(),
            is_read: is_read(reading),
            rows: reading.vms.iter().map(row).collect(),
        };
        let counters = reading.vms.iter().map(|vm| (key(vm), Counters::from(vm)));
        let counters = counters.collect();
        self.last = Some((now_ns, counters));
        Some(listed)
    }
}

/// Name and pid of a VM.
type Key = (Arc<str>, u32);

fn key(vm: &Vm) -> Key {
    (Arc::clone(&vm.vm), vm.pid)
}

/// The counters of a VM that rows are computed from.
#[derive(Debug)]
struct Counters {
    vm: Arc<str>,
    pid: u32,
    unattributed_cpu_ns: u64,
    roles: Box<[RoleUse]>,
    workers: Box<[Worker]>,
    /// The limits.
    quota: Box<[Quota]>,
    vcpus: Box<[VcpuWait]>,
}

/// The run delay of a vCPU.
#[derive(Debug)]
struct VcpuWait {
    id: u32,
    tid: Option<u32>,
    wait_ns: Option<u64>,
}

impl From<&Vm> for Counters {
    fn from(vm: &Vm) -> Self {
        let vcpus = vm.vcpus.iter();
        let limits = vm.quota.iter().filter(|quota| quota.cores.is_some());
        Self {
            vm: Arc::clone(&vm.vm),
            pid: vm.pid,
            unattributed_cpu_ns: vm.unattributed_cpu_ns,
            roles: vm.roles.as_slice().into(),
            workers: vm.workers.as_slice().into(),
            quota: limits.cloned().collect(),
            vcpus: vcpus.map(VcpuWait::from).collect(),
        }
    }
}

impl From<&Vcpu> for VcpuWait {
    fn from(vcpu: &Vcpu) -> Self {
        Self {
            id: vcpu.id,
            tid: vcpu.tid,
            wait_ns: vcpu.wait_ns,
        }
    }
}

impl Counters {
    /// A VM with these counters.
    fn vm(&self) -> Vm {
        let vcpus = self.vcpus.iter().map(|vcpu| Vcpu {
            id: vcpu.id,
            tid: vcpu.tid,
            wait_ns: vcpu.wait_ns,
            ..Vcpu::default()
        });
        Vm {
            vm: Arc::clone(&self.vm),
            pid: self.pid,
            unattributed_cpu_ns: self.unattributed_cpu_ns,
            roles: self.roles.to_vec(),
            workers: self.workers.to_vec(),
            quota: self.quota.to_vec(),
            vcpus: vcpus.collect(),
            ..Vm::default()
        }
    }
}
