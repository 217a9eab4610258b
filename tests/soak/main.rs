//! Tests that take too long for `make test`: `make soak` (root).
//!
//! An agent is scraped while VMs start and end, and on hosts with more threads and pods
//! than a node has. It must lose nothing, keep nothing of ended VMs, and not grow.

#![expect(unsafe_code, reason = "threads without number")]

mod hour;
mod many_threads;
mod pods;
#[path = "../kernel/reader.rs"]
#[allow(dead_code, reason = "the kernel suite asks for more")]
mod reader;
#[path = "../pins/root.rs"]
#[allow(dead_code, reason = "the suite of pins asks for more")]
mod root;
#[path = "../pins/scraped.rs"]
#[allow(dead_code, reason = "the suite of pins asks for more")]
mod scraped;
mod starts;
mod watched;
