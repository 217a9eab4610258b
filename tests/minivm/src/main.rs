//! minivm: a tiny KVM VMM for tests and benchmarks.
//!
//! It creates real KVM threads of every kind that a VMM has, and lets a test choose what
//! an agent can see of them: thread names, vCPU ids, the CPUID topology, load, hot-plug,
//! short-lived threads, madvise on guest memory, the flood on a device. Its guests run a
//! few instructions in real mode, because this is the only mode that every kind of host
//! can run, including nested and emulated ones.
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
mod fork_exec;
mod guest_memfd;
mod helper;
mod kick;
mod lifetime;
mod machine;
mod memory;
mod rest;
mod stats;
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
