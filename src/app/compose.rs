//! Composition of the components: one function per component, without logic.

pub(crate) mod controller;
pub(crate) mod watcher;
pub(crate) mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use component_base::client::ClientOptions;
use component_base::lease::Identity;
use component_base::metrics::BuildInfo;
use kube::runtime::events::Reporter;
use serve::{Options, TlsHandle};

/// Number of threads. A component either works for tens of microseconds at a time or waits, so more threads would only use
/// memory on large nodes.
const THREADS: usize = 2;

/// Time in which requests may end after the shutdown delay. A review takes much less than a second.
const GRACE: Duration = Duration::from_secs(5);

/// Timeout of one API call. The processing of a review makes no API call.
const CALL: Duration = Duration::from_secs(15);

/// Age of a connection after which the API server is requested to reconnect. After a restart of one replica all connections
/// are on the other replica. Reconnecting distributes them again.
const CONNECTION_AGE: Duration = Duration::from_mins(10);

/// Returns the server options of an endpoint for admission reviews of the API server.
fn admission_options(tls: TlsHandle, shutdown_delay_duration: Duration) -> Options {
    let mut options = Options::tls(tls);
    options.limits.age = Some(CONNECTION_AGE);
    options.linger = shutdown_delay_duration;
    options.grace = GRACE;
    // The API server connects directly, so no proxy can interpret the end of a request differently.
    options.strict_framing = false;
    options
}

/// Returns version and source revision of this binary, for the metrics of all components.
pub(crate) fn build_info() -> BuildInfo {
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: option_env!("REVISION").unwrap_or("unknown").to_owned(),
    }
}

/// Returns the options of the client of the API server on which a component runs.
pub(crate) fn client_options(component: &str, kubeconfig: Option<PathBuf>) -> ClientOptions {
    ClientOptions {
        kubeconfig,
        user_agent: format!("{component}/{}", env!("CARGO_PKG_VERSION")),
        timeout: CALL,
    }
}

/// Returns the source of Events.
fn reporter(component: &str, identity: &Identity) -> Reporter {
    Reporter {
        controller: component.to_owned(),
        instance: Some(identity.as_str().to_owned()),
    }
}

/// Runs a component to its end.
fn run_to_end(role: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    // Never more threads than cores, because two threads on one core would only add context switches.
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
        assert!(!options.strict_framing);
    }
}
