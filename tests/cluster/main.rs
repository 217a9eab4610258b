//! virtlens in a cluster, with a real API server: `make cluster-test` builds the required
//! programs and runs this suite.

mod agent;
mod chart;
mod container;
mod container_pod;
mod documented;
mod pods;
mod proxy;
mod schemas;
mod server;
