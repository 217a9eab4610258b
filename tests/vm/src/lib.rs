//! What the runner outside and the program inside a test VM agree on.
//!
//! ```text
//!   vmtest (this host)                    vmtest-inside (the VM under test)
//!   kernels.toml -> boot  -- Plan  -->    scenario, self-tests, suites
//!   verdict, table        <- Line  --     the console
//! ```
//!
//! The suites that run in the VM learn from [`scenario::Scenario`] what is
//! there to be measured and how to put load on it.

#![forbid(unsafe_code)]

pub mod flood;
pub mod plan;
pub mod report;
pub mod scenario;
