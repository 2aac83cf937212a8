//! One function a role: reads like a parts list, and decides nothing.

pub(crate) mod controller;
pub(crate) mod watcher;
pub(crate) mod webhook;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use component_base::metrics::BuildInfo;
use serve::{Options, TlsHandle};

/// A role is tens of microseconds of work at a time, or waits: more threads would only cost memory on large nodes.
const THREADS: usize = 2;

/// How long requests may take to end after the shutdown delay; a review takes well under a second.
const GRACE: Duration = Duration::from_secs(5);

/// The age after which the API server is asked to dial again. After a restart of one replica all connections are on the
/// other one; this is how they spread again.
const CONNECTION_AGE: Duration = Duration::from_mins(10);

/// How an endpoint for the API server's admission reviews serves.
fn admission_options(tls: TlsHandle, shutdown_delay_duration: Duration) -> Options {
    let mut options = Options::tls(tls);
    options.limits.age = Some(CONNECTION_AGE);
    options.linger = shutdown_delay_duration;
    options.grace = GRACE;
    // The API server dials the endpoint itself: no proxy in between could read another end of a request.
    options.strict_framing = false;
    options
}

/// Version and source revision of this binary, for the metrics of every component.
pub(crate) fn build_info() -> BuildInfo {
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: option_env!("REVISION").unwrap_or("unknown").to_owned(),
    }
}

/// Runs a role to its end.
fn run_to_end(role: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    // Never more than there are cores: two threads on one of them would only hand work to and fro.
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get().min(THREADS));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("failed to start the async runtime")?
        .block_on(role)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_connections_age() {
        let options = admission_options(TlsHandle::empty(), Duration::ZERO);
        assert_eq!(options.limits.age, Some(Duration::from_mins(10)));
    }
}
