//! Tests of the readers on synthetic trees and on the local host.

mod cgroups;
mod ended;
mod source;
mod this_host;
mod topology;
mod tree;
mod vms;
