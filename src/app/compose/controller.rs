//! Composition of the component `controller`: the leader watches the sources, and synchronizes them to the runtimes.

pub(crate) mod meters;
pub(crate) mod settings;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use component_base::admin::Admin;
use component_base::client::connect;
use component_base::lease::{Identity, LeaseOptions, run_while_leading};
use component_base::readiness::Readiness;
use component_base::shutdown::Shutdown;
use component_base::telemetry;
use controller::certificates::{self, CertificateOptions};
use controller::clients::RuntimeClients;
use controller::direct::{self, DirectOptions, Installations};
use controller::inventory::{self, RuntimeChanges};
use controller::kyma::{self, KymaOptions};
use controller::runtime_watchers::{self, RuntimeWatcherOptions, RuntimeWatcherSettings};
use controller::signal::{self, SignalOptions};
use controller::sources::{self, Published, SourceOptions};
use controller::watchers::{self, WatcherOptions};
use policy::sync::Salt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::meters::Meters;
use super::reporter;
use crate::cli::controller::{ControllerArgs, Part};

/// Name of the component as a client and as a source of Events.
pub(crate) const NAME: &str = "runtime-bootstrapper-controller";

/// Name of the Lease of all controllers. The leader runs all of them.
const LEASE: &str = "rt-bootstrapper-controller";

/// Runs the component until a signal.
///
/// # Errors
/// The process cannot start: no credentials for the API server, an address in use, or contradictory flags.
pub(crate) fn run(arguments: &ControllerArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(
        arguments.process.log_format,
        arguments.process.log_filter.clone(),
    )?;
    super::run_to_end(compose(arguments))
}

async fn compose(arguments: &ControllerArgs) -> anyhow::Result<()> {
    // Detects invalid installations before any request to a cluster.
    let (installations, runtime_watchers) = settings::installed(arguments)?;
    let shutdown = Shutdown::on_signals()?;
    let admin = Admin::bind(arguments.process.admin())?;
    let (meters, metrics) = Meters::new(admin.statistics());
    let readiness = Readiness::new(meters.watches.clone());
    let ended = CancellationToken::new();
    let admin = admin.run(readiness.clone(), Arc::new(metrics), ended.clone());
    let admin = tokio::spawn(admin);
    let options = super::client_options(NAME, arguments.kubeconfig.clone());
    let client = connect(options, &meters.requests).await?;
    let process = Process {
        arguments,
        installations,
        runtime_watchers,
        identity: arguments.process.identity(),
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

/// Objects that most functions of the composition use.
struct Process<'a> {
    arguments: &'a ControllerArgs,
    installations: Installations,
    runtime_watchers: RuntimeWatcherSettings,
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
        identity,
        readiness,
        meters,
        ..
    } = process;
    let salt = tokio::select! {
        salt = sources::salt(&client, readiness) => salt,
        () = shutdown.cancelled() => return Ok(()),
    };
    let on_kcp = client.clone();
    let lead = |term: CancellationToken| {
        // A new watch in each term: a leader never starts with content that was observed before its term.
        let (published, watching) = sources::watch(SourceOptions {
            client: on_kcp.clone(),
            names: settings::sources(&arguments.namespace, &arguments.sources),
            salt: salt.clone(),
            readiness: readiness.clone(),
            metrics: meters.sources.clone(),
        });
        let enabled = enabled(process, &on_kcp, &published, &salt);
        let is_needed = enabled.signal.is_some() || enabled.direct.is_some();
        let runtimes =
            is_needed.then(|| inventory::runtimes(&on_kcp, &arguments.namespace, readiness));
        let watched = runtimes.map(|it| (it, watching));
        run_controllers(watched, enabled, term)
    };
    let lease = LeaseOptions {
        namespace: arguments.namespace.clone(),
        name: LEASE.to_owned(),
        identity: identity.clone(),
    };
    run_while_leading(client, lease, meters.lease.clone(), shutdown, lead).await;
    Ok(())
}

/// The enabled controllers.
struct Enabled {
    signal: Option<SignalOptions>,
    direct: Option<DirectOptions>,
    watchers: Option<Watching>,
}

/// Options of the tasks of the controller `watchers`.
struct Watching {
    kymas: KymaOptions,
    routes: WatcherOptions,
    certificates: CertificateOptions,
    runtimes: RuntimeWatcherOptions,
}

fn enabled(
    process: &Process<'_>,
    client: &kube::Client,
    sources: &Published,
    salt: &Salt,
) -> Enabled {
    let Process {
        arguments,
        installations,
        identity,
        readiness,
        meters,
        ..
    } = process;
    let is_on = |part| arguments.controllers.contains(part);
    let fleet = RuntimeClients::new(settings::clients(&arguments.direct), meters.fleet.clone());
    Enabled {
        signal: is_on(Part::Signal).then(|| SignalOptions {
            client: client.clone(),
            settings: settings::signal(arguments),
            sources: sources.clone(),
            readiness: readiness.clone(),
            reporter: reporter(NAME, identity),
            metrics: meters.signal.clone(),
            source_metrics: meters.sources.clone(),
        }),
        direct: is_on(Part::Direct).then(|| DirectOptions {
            client: client.clone(),
            settings: settings::direct(arguments),
            sources: sources.clone(),
            salt: salt.clone(),
            fleet: fleet.clone(),
            installations: installations.clone(),
            readiness: readiness.clone(),
            reporter: reporter(NAME, identity),
            metrics: meters.direct.clone(),
            source_metrics: meters.sources.clone(),
        }),
        watchers: is_on(Part::Watchers).then(|| watchers(process, (client, &fleet, salt))),
    }
}

fn watchers(
    process: &Process<'_>,
    (client, fleet, salt): (&kube::Client, &RuntimeClients, &Salt),
) -> Watching {
    let Process {
        arguments,
        runtime_watchers,
        identity,
        readiness,
        meters,
        ..
    } = process;
    let routes = WatcherOptions {
        client: client.clone(),
        settings: settings::watchers(arguments),
        readiness: readiness.clone(),
        reporter: reporter(NAME, identity),
        metrics: meters.watchers.clone(),
    };
    let certificates = CertificateOptions {
        client: client.clone(),
        settings: settings::certificates(arguments),
        readiness: readiness.clone(),
        reporter: reporter(NAME, identity),
        metrics: meters.certificates.clone(),
    };
    let runtimes = RuntimeWatcherOptions {
        client: client.clone(),
        settings: runtime_watchers.clone(),
        salt: salt.clone(),
        fleet: fleet.clone(),
        readiness: readiness.clone(),
        reporter: reporter(NAME, identity),
        metrics: meters.runtime_watchers.clone(),
    };
    let kymas = KymaOptions {
        client: client.clone(),
        readiness: readiness.clone(),
        namespace: certificates.settings.kyma_namespace.clone(),
        certificate_namespace: certificates.settings.certificates.namespace.clone(),
        gateway_certificate: certificates.settings.gateway_certificate.clone(),
    };
    Watching {
        kymas,
        routes,
        certificates,
        runtimes,
    }
}

/// Runs the enabled controllers until the token is canceled. `signal` and `direct` share the changes of one watch of the
/// runtimes, and the watches of the sources, which the other controllers do not need.
async fn run_controllers(
    watched: Option<(RuntimeChanges, impl Future<Output = ()> + Send)>,
    enabled: Enabled,
    term: CancellationToken,
) {
    let Enabled {
        signal,
        direct,
        watchers,
    } = enabled;
    let synchronize = async {
        if let Some((runtimes, sources)) = watched {
            tokio::select! {
                () = Box::pin(synchronize(runtimes, (signal, direct), term.clone())) => {}
                () = Box::pin(sources) => {}
            }
        }
    };
    let watch = async {
        if let Some(parts) = watchers {
            let (issued, gateway) = certificates::gateway_channel();
            let (acknowledged, acknowledgements) = watch::channel(None);
            let (for_certificates, for_runtimes, watching) = kyma::share(&parts.kymas);
            let certificates = certificates::run(
                parts.certificates,
                for_certificates,
                issued,
                acknowledgements,
                term.clone(),
            );
            let runtimes = runtime_watchers::run(
                parts.runtimes,
                for_runtimes,
                gateway,
                acknowledged,
                term.clone(),
            );
            tokio::join!(
                Box::pin(watchers::run(parts.routes, term.clone())),
                Box::pin(certificates),
                Box::pin(runtimes),
                Box::pin(term.run_until_cancelled(watching)),
            );
        }
    };
    tokio::join!(synchronize, watch);
}

async fn synchronize(
    runtimes: RuntimeChanges,
    (signal, direct): (Option<SignalOptions>, Option<DirectOptions>),
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
