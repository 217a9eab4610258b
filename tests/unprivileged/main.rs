//! Suites that need no privilege: contracts between parts of the project.

mod abi;
