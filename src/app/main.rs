//! The one binary: reads the arguments, runs the role, prints what went wrong.
//!
//! Deliberately absent: everything else. A role is wired in its own module, and exit codes are the role's.

mod amounts;
mod cli;
mod compose;
mod crds;
mod edge;
mod manifests;
mod preview;
mod watchers;

use std::process::ExitCode;

/// For the controller's calls to thousands of runtimes: less CPU and less memory than with glibc's allocator
/// (docs/benchmarks.md, "Fan-out").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::Cli::read(std::env::args_os()).role.run() {
        Ok(code) => code,
        Err(error) => edge::report(&error),
    }
}
