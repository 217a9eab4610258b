//! What is made is what is checked in, and fits what the agent exports.

mod generated;
mod joins;
mod migrated;
mod minimal;
mod names;
mod promtool;
mod shape;
