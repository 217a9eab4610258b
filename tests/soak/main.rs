//! What takes longer than `make test` has: `make soak` (root).
//!
//! An agent is scraped every second while VMs come and go. It must lose nothing, keep
//! nothing of what is gone, and not grow.

mod hour;
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
