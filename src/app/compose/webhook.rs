//! Composition of the component `webhook`: watches write snapshots, the service reads them, and one replica repairs Pods.

pub(crate) mod meters;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use component_base::admin::Admin;
use component_base::client::connect;
use component_base::lease::{Identity, LeaseOptions, run_while_leading};
use component_base::listen::bind_server;
use component_base::readiness::Readiness;
use component_base::shutdown::Shutdown;
use component_base::telemetry;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use policy::admission::Settings;
use serve::{BoundServer, TlsHandle};
use tokio_util::sync::CancellationToken;
use webhook::admission::router;
use webhook::certificate::Certificates;
use webhook::dry_run;
use webhook::fallback_policy::{FallbackPolicy, FallbackSettings};
use webhook::leader::LeaderTasks;
use webhook::pull_secret_sync::{PullSecretSync, page_permit};
use webhook::repairs::{Probe, Repairs};
use webhook::self_review;
use webhook::snapshot::SnapshotStore;
use webhook::watches::Watches;

use self::meters::Meters;
use crate::cli::webhook::WebhookArgs;

/// Name of the component as a client and as a source of Events.
const NAME: &str = "runtime-bootstrapper-webhook";

/// Time for which a replica without a configuration does not campaign. Longer than a Lease, so that a replica that has one leads.
const CONFIGURATION_WAIT: Duration = Duration::from_mins(1);

/// The lease of everything that only one replica may do.
const LEASE: &str = api::names::WEBHOOK_LEASE;

/// Runs the component until a signal.
///
/// # Errors
/// The process cannot start: no credentials for the API server, or an address in use.
pub(crate) fn run(arguments: &WebhookArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(
        arguments.process.log_format,
        arguments.process.log_filter.clone(),
    )?;
    super::run_to_end(compose(arguments))
}

async fn compose(arguments: &WebhookArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let tls = TlsHandle::empty();
    let options = super::admission_options(tls.clone(), arguments.shutdown_delay_duration);
    let server = bind_server(arguments.webhook_bind_address, "reviews", options)?;
    let admin = Admin::bind(arguments.process.admin())?;
    let servers = admin.statistics().into_iter();
    let (meters, metrics) = Meters::new(servers.chain([("webhook", server.statistics())]));
    let readiness = Readiness::new(meters.failing_watches.clone());
    let ended = CancellationToken::new();
    let admin = admin.run(readiness.clone(), Arc::new(metrics), ended.clone());
    let admin = tokio::spawn(admin);

    let options = super::client_options(NAME, arguments.kubeconfig.clone());
    let parts = Parts {
        client: connect(options, &meters.requests).await?,
        snapshots: SnapshotStore::default(),
        readiness,
        meters,
        identity: arguments.process.identity(),
        arguments,
    };
    let certificates = parts.certificates();
    let policy = parts.fallback_policy();
    let port = server.local_addr().port();
    tokio::select! {
        () = parts.watches().run() => {}
        () = certificates.run(tls, &parts.readiness) => {}
        () = parts.review_self(&certificates, port, ended.clone()) => {}
        () = policy.watch() => {}
        () = parts.lead((&certificates, &policy), port, shutdown.token(), &ended) => {}
        () = shutdown.second_signal() => tracing::warn!("second SIGTERM received, exiting"),
        outcome = parts.serve(server, shutdown.token()) => outcome?,
    }
    ended.cancel();
    admin.await.context("the admin endpoint failed")
}

/// Objects that most functions of the composition use.
struct Parts<'a> {
    client: Client,
    snapshots: SnapshotStore,
    readiness: Readiness,
    meters: Meters,
    identity: Identity,
    arguments: &'a WebhookArgs,
}

impl Parts<'_> {
    fn watches(&self) -> Watches {
        let arguments = self.arguments;
        Watches {
            client: self.client.clone(),
            namespace: arguments.namespace.clone(),
            config_map: arguments.config_map_name.clone(),
            settings: Settings {
                landscape: Some(arguments.landscape.clone()).filter(|it| !it.is_empty()),
                pull_secret: arguments.image_pull_secret_name.clone(),
            },
            reporter: self.reporter(),
            snapshots: self.snapshots.clone(),
            readiness: self.readiness.clone(),
            metrics: self.meters.watches.clone(),
        }
    }

    fn certificates(&self) -> Certificates {
        Certificates::new(
            self.client.clone(),
            &self.arguments.namespace,
            &self.arguments.webhook_name,
            self.arguments.webhook_cert_path.clone(),
            self.meters.certificate.clone(),
        )
    }

    /// Makes the process ready after a response to its own review. Ends with the process.
    async fn review_self(&self, certificates: &Certificates, port: u16, ended: CancellationToken) {
        let condition = self.readiness.check("self-review");
        self_review::until_answered(port, certificates, &condition).await;
        ended.cancelled().await;
    }

    fn repairs(&self, certificates: &Certificates, port: u16) -> Repairs {
        let certificates = certificates.clone();
        let (client, snapshots) = (self.client.clone(), self.snapshots.clone());
        let namespace = self.arguments.namespace.clone();
        // First checks this process, and then the path from the API server.
        let probe: Probe = Arc::new(move || {
            let certificates = certificates.clone();
            let (client, snapshots) = (client.clone(), snapshots.clone());
            let namespace = namespace.clone();
            Box::pin(async move {
                self_review::review(port, &certificates).await?;
                dry_run::adapts(&client, &namespace, &snapshots).await
            })
        });
        Repairs {
            client: self.client.clone(),
            snapshots: self.snapshots.clone(),
            recorder: Recorder::new(self.client.clone(), self.reporter()),
            metrics: self.meters.repairs.clone(),
            watches: self.meters.failing_watches.clone(),
            product_namespace: self.arguments.namespace.clone(),
            evict: self.arguments.evictions(),
            probe,
        }
    }

    fn fallback_policy(&self) -> FallbackPolicy {
        FallbackPolicy::new(
            self.client.clone(),
            self.snapshots.clone(),
            (self.readiness.clone(), self.meters.failing_watches.clone()),
            self.meters.fallback_policy.clone(),
            FallbackSettings {
                enabled: self.arguments.mutating_admission_policy,
                namespace: self.arguments.namespace.clone(),
                webhook_configuration: self.arguments.webhook_name.clone(),
            },
        )
    }

    fn reporter(&self) -> Reporter {
        super::reporter(NAME, &self.identity)
    }

    /// Serves until the end of the drain.
    async fn serve(&self, server: BoundServer, shutdown: CancellationToken) -> anyhow::Result<()> {
        let router = router(self.snapshots.clone(), self.meters.admission.clone());
        let drain = async {
            shutdown.cancelled().await;
            self.readiness.drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = server.run(router, shutdown.clone()) => Ok(outcome?),
            () = drain => Ok(()),
        }
    }

    /// Runs the tasks of the leader while this replica leads. Does not end by itself; the drain of the server ends it.
    async fn lead(
        &self,
        (certificates, policy): (&Certificates, &FallbackPolicy),
        port: u16,
        shutdown: CancellationToken,
        ended: &CancellationToken,
    ) {
        let tasks = LeaderTasks {
            pull_secrets: PullSecretSync {
                client: self.client.clone(),
                snapshots: self.snapshots.clone(),
                recorder: Recorder::new(self.client.clone(), self.reporter()),
                metrics: self.meters.pull_secret.clone(),
                watches: self.meters.failing_watches.clone(),
                product_namespace: self.arguments.namespace.clone(),
                page: page_permit(),
            },
            repairs: self.repairs(certificates, port),
            policy: policy.clone(),
            certificates: certificates.clone(),
            metrics: self.meters.leader.clone(),
        };
        let lease = LeaseOptions {
            namespace: self.arguments.namespace.clone(),
            name: LEASE.to_owned(),
            identity: self.identity.clone(),
        };
        let work = |term| tasks.clone().run(term);
        // A leader without a configuration copies and repairs nothing. Where no replica has one, certificates are issued all the same.
        let configured = self.snapshots.configured(CONFIGURATION_WAIT);
        shutdown.run_until_cancelled(configured).await;
        run_while_leading(
            self.client.clone(),
            lease,
            self.meters.lease.clone(),
            shutdown,
            work,
        )
        .await;
        ended.cancelled().await;
    }
}
