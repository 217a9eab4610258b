//! One vCPU: its thread, and the handle by which the machine controls it.
//!
//! ```text
//!            Enter(mode)              Enter / Burn            End
//! (start) ──────────────▶ in a mode ───────────────▶ … ──────────▶ thread over, file parked
//! ```
//! Every order is acknowledged: `Enter` just before the thread executes it, `Burn` just
//! before the thread halts after it. `rest` then detects that the thread is blocked.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use kvm_ioctls::VcpuFd;
use rustix::thread::gettid;

use crate::args::Mode;
use crate::clock::{KickTimer, burn_own, ns_of, own_cpu_ns, thread_cpu_ns};
use crate::helper::{STACK_BYTES, named};
use crate::kick::{Kickable, kick};
use crate::machine::Worker;
use crate::rest::{self, Rest};
use crate::vm::{self, Program};

/// Period of the duty mode: short compared with a scrape interval, long compared with
/// halt polling.
const DUTY_PERIOD: Duration = Duration::from_millis(10);

enum Task {
    Enter(Mode),
    Burn(Duration),
    BurnInUserSpace(Duration),
    End,
}

struct Order {
    task: Task,
    done: Sender<()>,
}

/// A vCPU with a living thread.
pub(crate) struct Vcpu {
    /// Position in the topology, which determines the name and the id.
    pub(crate) index: u32,
    /// KVM's `vcpu_id`, the APIC id.
    pub(crate) id: u32,
    /// Tid of its thread.
    pub(crate) tid: i32,
    /// Present mode.
    pub(crate) mode: Mode,
    orders: Sender<Order>,
    pending: Option<Receiver<()>>,
    thread: JoinHandle<VcpuFd>,
}

impl Vcpu {
    /// Starts a thread for a new or parked vCPU file; `name` is `None` for the process's
    /// name. The thread waits outside `KVM_RUN`.
    pub(crate) fn start(
        index: u32,
        id: u32,
        name: Option<&str>,
        fd: VcpuFd,
    ) -> anyhow::Result<Self> {
        let (orders, inbox) = channel();
        let (tid_sender, tid_receiver) = channel();
        let builder = named(Builder::new().stack_size(STACK_BYTES), name, index);
        let thread = builder
            .spawn(move || Runner { fd, inbox }.live(&tid_sender))
            .context("cannot start a vCPU thread: raise the limit of processes (ulimit -u)")?;
        let tid = tid_receiver
            .recv()
            .context("a vCPU thread ended at its start")?;
        Ok(Self {
            index,
            id,
            tid,
            mode: Mode::Pause,
            orders,
            pending: None,
            thread,
        })
    }

    /// Orders a mode; `settle` waits until the thread is in it.
    pub(crate) fn enter(&mut self, mode: Mode) -> anyhow::Result<()> {
        self.mode = mode;
        self.order(Task::Enter(mode))
    }

    /// Orders the thread to use CPU in user space, then to pause.
    pub(crate) fn burn_in_user_space(&mut self, cpu: Duration) -> anyhow::Result<()> {
        self.mode = Mode::Pause;
        self.order(Task::BurnInUserSpace(cpu))
    }

    /// Ends the thread; returns its file to be parked and its CPU time, ns.
    pub(crate) fn end(mut self) -> anyhow::Result<(VcpuFd, u64)> {
        // Read while the thread is idle: only its exit follows.
        self.enter(Mode::Pause)?;
        self.settle()?;
        let cpu_ns = thread_cpu_ns(self.tid);
        self.order(Task::End)?;
        let fd = self.thread.join().ok().context("a vCPU thread panicked")?;
        Ok((fd, cpu_ns))
    }

    fn order(&mut self, task: Task) -> anyhow::Result<()> {
        let (done, pending) = channel();
        self.pending = Some(pending);
        self.orders
            .send(Order { task, done })
            .ok()
            .context("a vCPU thread ended")?;
        kick(self.tid);
        Ok(())
    }
}

impl Worker for Vcpu {
    fn tid(&self) -> i32 {
        self.tid
    }

    fn burn(&mut self, cpu: Duration) -> anyhow::Result<()> {
        self.mode = Mode::Halt;
        self.order(Task::Burn(cpu))
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        if let Some(done) = self.pending.take() {
            done.recv().context("a vCPU thread ended")?;
        }
        match self.mode {
            Mode::Halt => rest::wait(self.tid, Rest::KvmRun),
            Mode::Pause => rest::wait(self.tid, Rest::Futex),
            Mode::Spin | Mode::Exit | Mode::Duty(_) | Mode::Tick(_) => Ok(()),
        }
    }
}

/// The thread's part.
struct Runner {
    fd: VcpuFd,
    inbox: Receiver<Order>,
}

impl Runner {
    /// Executes orders until the order to end. If a guest cannot run, the process exits,
    /// because its numbers would be wrong.
    fn live(mut self, tid_sender: &Sender<i32>) -> VcpuFd {
        let kickable = Kickable::new(&mut self.fd);
        // Only now: an earlier kick would be a signal without a handler.
        let _ = tid_sender.send(gettid().as_raw_pid());
        if let Err(error) = self.follow() {
            eprintln!("minivm: {error:#}");
            std::process::abort();
        }
        drop(kickable);
        self.fd
    }

    fn follow(&mut self) -> anyhow::Result<()> {
        let mut next = self.inbox.recv().ok();
        while let Some(Order { task, done }) = next {
            let mode = match task {
                Task::End => return Ok(()),
                Task::Enter(mode) => mode,
                Task::Burn(cpu) => {
                    self.burn(cpu)?;
                    Mode::Halt
                }
                Task::BurnInUserSpace(cpu) => {
                    burn_own(cpu);
                    Mode::Pause
                }
            };
            // The receiver is gone when the machine is dropped.
            let _ = done.send(());
            next = self.stay(mode)?;
        }
        Ok(())
    }

    /// Stays in a mode until the next order; `None` if no more orders can come.
    fn stay(&mut self, mode: Mode) -> anyhow::Result<Option<Order>> {
        match mode {
            Mode::Pause => Ok(self.inbox.recv().ok()),
            Mode::Spin => self
                .run(Program::Spin, |inbox| inbox.try_recv().ok())
                .map(Some),
            Mode::Exit => self
                .run(Program::Exit, |inbox| inbox.try_recv().ok())
                .map(Some),
            Mode::Halt => self
                .run(Program::Halt, |inbox| inbox.try_recv().ok())
                .map(Some),
            Mode::Duty(percent) => {
                let share = |percent: u8| DUTY_PERIOD * percent.into() / 100;
                self.phases(&[
                    (Program::Spin, share(percent)),
                    (Program::Halt, share(100 - percent)),
                ])
                .map(Some)
            }
            Mode::Tick(ms) => {
                let period = Duration::from_millis(ms.into());
                self.phases(&[(Program::Halt, period)]).map(Some)
            }
        }
    }

    /// Runs a guest program until `stop` yields. `stop` is called after every kick, and
    /// after `immediate_exit` was cleared, so that no kick is lost.
    fn run<T>(
        &mut self,
        program: Program,
        stop: impl Fn(&Receiver<Order>) -> Option<T>,
    ) -> anyhow::Result<T> {
        vm::begin(&self.fd, program)?;
        loop {
            self.fd.set_kvm_immediate_exit(0);
            if let Some(found) = stop(&self.inbox) {
                return Ok(found);
            }
            vm::run(&mut self.fd)?;
        }
    }

    fn burn(&mut self, cpu: Duration) -> anyhow::Result<()> {
        let timer = KickTimer::new(libc::CLOCK_THREAD_CPUTIME_ID)?;
        // In this order: if the timer fired before `end_ns`, no further kick would come.
        let end_ns = own_cpu_ns() + ns_of(cpu);
        timer.arm(cpu)?;
        self.run(Program::Spin, |_| (own_cpu_ns() >= end_ns).then_some(()))
    }

    /// Runs guest programs for some time each, in turn, until the next order.
    fn phases(&mut self, phases: &[(Program, Duration)]) -> anyhow::Result<Order> {
        let timer = KickTimer::new(libc::CLOCK_MONOTONIC)?;
        for (program, time) in phases.iter().copied().cycle() {
            // In this order: if the timer fired before `end`, no further kick would come.
            let end = Instant::now() + time;
            timer.arm(time)?;
            let order = self.run(program, |inbox| match inbox.try_recv() {
                Ok(order) => Some(Some(order)),
                Err(_) => (Instant::now() >= end).then_some(None),
            })?;
            if let Some(order) = order {
                return Ok(order);
            }
        }
        unreachable!("the phases never end")
    }
}
