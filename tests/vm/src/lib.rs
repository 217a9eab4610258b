//! The interface between the runner outside and the program inside a test VM.
//!
//! ```text
//!   vmtest (this host)                    vmtest-inside (the VM under test)
//!   kernels.toml -> boot  -- Plan  -->    scenario, self-tests, suites
//!   verdict, table        <- Line  --     the console
//! ```
//!
//! The suites in the VM read from [`scenario::Scenario`] what they can measure and how to
//! start loads.

#![forbid(unsafe_code)]

pub mod flood;
pub mod plan;
pub mod qmp;
pub mod report;
pub mod scenario;
