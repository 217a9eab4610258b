//! minivm: a tiny KVM VMM for tests and benchmarks.
//!
//! It makes true KVM threads of every kind a VMM has, and lets its driver
//! choose what an agent could see of them: thread names, vCPU ids, the CPUID
//! topology, load, hot-plug, short-lived threads, the advice given on guest
//! memory, the flood on a device. Its guests run some instructions of real mode, because that is the
//! only mode every kind of host can run, nested and emulated ones included.
//!
//! ```text
//! stdin ──line──▶ control ──Command──▶ machine ──Task──▶ vcpu threads (KVM_RUN)
//! stdout ◀─JSON──    ▲───────reply────────┘  └──burn──▶ helper threads
//! ```

#![expect(unsafe_code, reason = "a VMM is memory, signals and ioctls")]

mod args;
mod clock;
mod control;
mod cpuid;
mod helper;
mod kick;
mod lifetime;
mod machine;
mod memory;
mod rebirth;
mod rest;
mod tap;
mod vcpu;
mod vhost;
mod vm;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    lifetime::bound(&args);
    let ended = machine::Machine::start(&args).and_then(|machine| control::serve(machine, &args));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minivm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
