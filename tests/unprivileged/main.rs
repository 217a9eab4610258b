//! Suites that need no privilege: contracts between parts of the project.

mod abi;
mod alertmanager;
mod backfill;
mod chart;
mod commands;
mod examples;
mod layers;
mod packages;
mod page;
mod pictures;
mod pod_labels;
mod programs;
mod record_volume;
mod reference;
mod site;
mod sleeps;
mod systemd;
