//! The `virtlens` program; its code is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    virtlens::cli::main()
}
