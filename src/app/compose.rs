//! One function a role: reads like a parts list, and decides nothing.

pub(crate) mod controller;
pub(crate) mod watcher;
pub(crate) mod webhook;

use std::process::ExitCode;

use anyhow::Context as _;

/// A role is tens of microseconds of work at a time, or waits: more threads would only cost memory on large nodes.
const THREADS: usize = 2;

/// Runs a role to its end.
fn run_to_end(role: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    // Never more than there are cores: two threads on one of them would only hand work to and fro.
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get().min(THREADS));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("the runtime cannot begin")?
        .block_on(role)?;
    Ok(ExitCode::SUCCESS)
}
