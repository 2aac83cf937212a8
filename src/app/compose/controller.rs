//! The role `controller`, put together: sources are watched by every replica, the leader brings them to the runtimes.

pub(crate) mod meters;
pub(crate) mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use component_base::admin::{Admin, AdminOptions};
use component_base::client::{ClientOptions, connect};
use component_base::lease::{Identity, LeaseOptions, LeaseTiming, run_while_leading};
use component_base::readiness::Readiness;
use component_base::shutdown::Shutdown;
use component_base::telemetry::{self, TelemetryOptions};
use controller::clients::RuntimeClients;
use controller::direct::{self, DirectOptions, Installations};
use controller::inventory::{self, RuntimeChanges};
use controller::signal::{self, SignalOptions};
use controller::sources::{self, SourceOptions};
use kube::runtime::events::Reporter;
use tokio_util::sync::CancellationToken;

use self::meters::Meters;
use crate::cli::controller::{ControllerArgs, Part};

/// How long one call to KCP may take.
const CALL: Duration = Duration::from_secs(15);

/// The lease of all parts: who leads does everything.
const LEASE: &str = "rt-bootstrapper-controller";

/// Runs the role until a signal.
///
/// # Errors
/// When the process cannot begin: no credentials for the API server, an address in use, flags that contradict.
pub(crate) fn run(arguments: &ControllerArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(TelemetryOptions {
        format: arguments.log_format,
        filter: arguments.log_filter.clone(),
    })?;
    super::run_to_end(compose(arguments))
}

async fn compose(arguments: &ControllerArgs) -> anyhow::Result<()> {
    // What cannot be installed is found before anything is said to a cluster.
    let installations = settings::installations(&arguments.sources, &arguments.direct.webhook)?;
    let shutdown = Shutdown::on_signals()?;
    let (meters, metrics) = Meters::new();
    let readiness = Readiness::new(meters.watches.clone());
    let addresses = AdminOptions {
        health: arguments.health_probe_bind_address,
        metrics: arguments.metrics_bind_address,
    };
    let admin = Admin::bind(addresses, readiness.clone(), Arc::new(metrics))?;
    let ended = CancellationToken::new();
    let admin = tokio::spawn(admin.run(ended.clone()));
    let client = connect(
        client_options(arguments.kubeconfig.clone()),
        &meters.requests,
    )
    .await?;
    let process = Process {
        arguments,
        installations,
        identity: arguments
            .leader_elect_identity
            .clone()
            .unwrap_or_else(Identity::random),
        readiness,
        meters,
    };
    tokio::select! {
        outcome = work(&process, client, shutdown.token()) => outcome?,
        () = shutdown.second_signal() => tracing::warn!("second SIGTERM received, exiting"),
    }
    ended.cancel();
    admin.await.context("the admin endpoint failed")
}

/// What most parts are made of.
struct Process<'a> {
    arguments: &'a ControllerArgs,
    installations: Installations,
    identity: Identity,
    readiness: Readiness,
    meters: Meters,
}

async fn work(
    process: &Process<'_>,
    client: kube::Client,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Process {
        arguments,
        installations,
        identity,
        readiness,
        meters,
    } = process;
    let parts = &arguments.controllers;
    let salt = tokio::select! {
        salt = sources::salt(&client, readiness) => salt,
        () = shutdown.cancelled() => return Ok(()),
    };
    let (published, watching) = sources::watch(SourceOptions {
        client: client.clone(),
        names: settings::sources(&arguments.namespace, &arguments.sources),
        salt: salt.clone(),
        readiness: readiness.clone(),
        metrics: meters.sources.clone(),
    });
    let signal = parts.contains(Part::Signal).then_some(SignalOptions {
        client: client.clone(),
        settings: settings::signal(arguments),
        sources: published.clone(),
        readiness: readiness.clone(),
        reporter: reporter(identity),
        metrics: meters.signal.clone(),
        source_metrics: meters.sources.clone(),
    });
    let direct = parts.contains(Part::Direct).then_some(DirectOptions {
        client: client.clone(),
        settings: settings::direct(arguments),
        sources: published,
        salt,
        fleet: RuntimeClients::new(settings::clients(&arguments.direct), meters.fleet.clone()),
        installations: installations.clone(),
        readiness: readiness.clone(),
        reporter: reporter(identity),
        metrics: meters.direct.clone(),
        source_metrics: meters.sources.clone(),
    });
    let on_kcp = client.clone();
    let lead = |term: CancellationToken| {
        let runtimes = inventory::runtimes(&on_kcp, &arguments.namespace, readiness);
        run_controllers(runtimes, signal.clone(), direct.clone(), term)
    };
    let leading = run_while_leading(
        client,
        lease(&arguments.namespace, identity),
        meters.lease.clone(),
        shutdown,
        lead,
    );
    tokio::select! {
        () = leading => Ok(()),
        () = watching => Ok(()),
    }
}

/// Runs the controllers that are on until the token is canceled. Both get the changes of one watch.
async fn run_controllers(
    runtimes: RuntimeChanges,
    signal: Option<SignalOptions>,
    direct: Option<DirectOptions>,
    term: CancellationToken,
) {
    let (for_signal, for_direct, forwarding) = inventory::share(runtimes);
    let run_signal = async {
        if let Some(options) = signal {
            signal::run(options, for_signal, term.clone()).await;
        }
    };
    let run_direct = async {
        if let Some(options) = direct {
            Box::pin(direct::run(options, for_direct, term.clone())).await;
        }
    };
    tokio::join!(run_signal, run_direct, term.run_until_cancelled(forwarding));
}

fn lease(namespace: &str, identity: &Identity) -> LeaseOptions {
    LeaseOptions {
        namespace: namespace.to_owned(),
        name: LEASE.to_owned(),
        identity: identity.clone(),
        timing: LeaseTiming::default(),
    }
}

fn reporter(identity: &Identity) -> Reporter {
    Reporter {
        controller: "runtime-bootstrapper-controller".to_owned(),
        instance: Some(identity.as_str().to_owned()),
    }
}

pub(crate) fn client_options(kubeconfig: Option<PathBuf>) -> ClientOptions {
    ClientOptions {
        kubeconfig,
        user_agent: concat!(
            "runtime-bootstrapper-controller/",
            env!("CARGO_PKG_VERSION")
        )
        .to_owned(),
        timeout: CALL,
    }
}
