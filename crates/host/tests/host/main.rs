//! The readers on trees that look like hosts, and on the host at hand.

mod cgroups;
mod ended;
mod source;
mod this_host;
mod topology;
mod tree;
mod vms;
