//! The one binary: reads the arguments, runs the role, prints what went wrong. A role is wired in its own module.

mod amounts;
mod cli;
mod compose;
mod crds;
mod edge;
mod manifests;
mod plan;
mod preview;
#[cfg(test)]
mod reference;
mod schema;
mod watchers;

/// Less CPU and memory than glibc's allocator for calls to thousands of runtimes (docs/benchmarks.md, "Fan-out").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    match cli::Cli::read(std::env::args_os()).role.run() {
        Ok(code) => code,
        Err(error) => edge::report(&error),
    }
}
