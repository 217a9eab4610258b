//! Tests that take too long for `make test`: `make soak` (root).
//!
//! An agent is scraped while VMs start and end, and on hosts with more threads and pods
//! than a node has. It must lose nothing, keep nothing of ended VMs, and not grow.

#![expect(unsafe_code, reason = "threads without number")]

mod hour;
mod kills;
mod many_threads;
mod pods;
mod starts;
mod watched;
