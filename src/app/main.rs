//! The binary: reads the arguments, runs the component, and prints errors. Each component is composed in a separate module.

mod amounts;
mod cli;
mod compose;
mod crds;
mod edge;
mod manifests;
mod plan;
mod preview;
#[cfg(test)]
#[path = "tests/reference/mod.rs"]
mod reference;
mod schema;
mod watchers;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Uses less CPU and memory than the allocator of glibc for calls to thousands of runtimes (docs/benchmarks.md, "Fan-out").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    disable_core_files();
    permit_open_files();
    match cli::Cli::read(std::env::args_os()).role.run() {
        Ok(code) => code,
        Err(error) => edge::report(&error),
    }
}

/// Prevents core files, which would contain tokens, keys and the pull Secret. The kernel ignores the limit if it pipes core
/// files to a program of the node, such as systemd-coredump. It writes no core file of a process that is not dumpable.
fn disable_core_files() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Each process may lower its limit and become non-dumpable.
    let _never_fails = setrlimit(Resource::Core, none);
    let _never_fails = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Raises the limit of open files to its maximum, as programs in Go do. Containers often start with 1,024, which is the number of
/// clients that may connect to one port: they would leave no file for the connections of this process and of probes.
fn permit_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Each process may raise its limit up to the maximum.
    let _never_fails = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn a_process_writes_no_core_files() {
        disable_core_files();
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
