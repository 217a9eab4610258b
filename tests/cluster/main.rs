//! What virtlens is in a cluster, told by a real API server: `make cluster-test`
//! builds its programs and runs this.

#![expect(unsafe_code, reason = "kill(2)")]

mod agent;
mod chart;
mod container;
mod pods;
mod proxy;
mod schemas;
mod server;
