//! The one binary: reads the arguments, runs the role, prints what went wrong.
//!
//! Deliberately absent: everything else. A role is wired in its own module, and exit codes are the role's.

mod cli;
mod compose;
mod crds;
mod edge;
mod manifests;
mod preview;
mod watchers;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::read(std::env::args_os()).role.run() {
        Ok(code) => code,
        Err(error) => edge::report(&error),
    }
}
