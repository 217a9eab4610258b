//! Threads other than vCPUs: idle helpers that burn CPU time on command, and short-lived
//! threads that burn once and end.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use anyhow::Context;
use rustix::thread::gettid;

use crate::clock::{burn_own, own_cpu_ns};
use crate::machine::Worker;
use crate::rest::{self, Rest};

/// Stack size of every thread except the main one: hundreds of VMs fit on a small
/// machine.
pub(crate) const STACK_BYTES: usize = 64 << 10;

/// Names a thread, with {} replaced by an index; `None` keeps the name of the thread that
/// starts it. The kernel keeps 15 bytes (`TASK_COMM_LEN`).
pub(crate) fn named(builder: Builder, name: Option<&str>, index: u32) -> Builder {
    match name {
        Some(name) => builder.name(name.replace("{}", &index.to_string())),
        None => builder,
    }
}

struct Burn {
    cpu: Duration,
    done: Sender<()>,
}

/// A helper thread; it ends with the process.
pub(crate) struct Helper {
    /// Name as requested, not truncated.
    pub(crate) name: String,
    /// Tid.
    pub(crate) tid: i32,
    orders: Sender<Burn>,
    pending: Option<Receiver<()>>,
}

impl Helper {
    /// Starts the thread, which is idle.
    pub(crate) fn start(name: &str, index: u32) -> anyhow::Result<Self> {
        let (orders, inbox) = channel::<Burn>();
        let (tid_sender, tid_receiver) = channel();
        named(Builder::new().stack_size(STACK_BYTES), Some(name), index)
            .spawn(move || {
                let _ = tid_sender.send(gettid().as_raw_pid());
                for Burn { cpu, done } in inbox {
                    burn_own(cpu);
                    let _ = done.send(());
                }
            })
            .context("cannot start a helper thread: raise the limit of processes (ulimit -u)")?;
        let tid = tid_receiver
            .recv()
            .context("a helper thread ended at its start")?;
        let name = name.replace("{}", &index.to_string());
        Ok(Self {
            name,
            tid,
            orders,
            pending: None,
        })
    }
}

impl Worker for Helper {
    fn tid(&self) -> i32 {
        self.tid
    }

    fn burn(&mut self, cpu: Duration) -> anyhow::Result<()> {
        let (done, pending) = channel();
        self.pending = Some(pending);
        self.orders
            .send(Burn { cpu, done })
            .ok()
            .context("a helper thread ended")
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        if let Some(done) = self.pending.take() {
            done.recv().context("a helper thread ended")?;
        }
        rest::wait(self.tid, Rest::Futex)
    }
}

/// Starts `count` threads that burn `cpu` each, and waits for their end. Returns the sum
/// of the last values of their CPU clocks, ns, without their exit in the kernel, some
/// microseconds each.
pub(crate) fn spawn_and_end(count: u32, cpu: Duration, name: &str) -> anyhow::Result<u64> {
    let threads = (0..count)
        .map(|index| {
            named(Builder::new().stack_size(STACK_BYTES), Some(name), index).spawn(move || {
                burn_own(cpu);
                own_cpu_ns()
            })
        })
        .collect::<Result<Vec<_>, _>>()
        .context("cannot start so many threads: raise the limit of processes (ulimit -u)")?;
    threads
        .into_iter()
        .map(|thread| thread.join().ok().context("a short-lived thread panicked"))
        .sum()
}
