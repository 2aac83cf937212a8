//! Heartbeats of the watchers on runtimes. The controller is the manager of its own Watcher, and a listener on the
//! leader receives the heartbeats.
//!
//! A runtime is unresponsive while its watcher sends no heartbeats, rejects TLS handshakes, or gets no
//! AdmissionReview for a request of the controller that a webhook of the Watcher covers. At the start and the end of
//! that state, the runtime is reconciled, which repairs differences, and reported. Without the Watcher no heartbeats
//! are expected.
//!
//! Heartbeats also contain the CAs that the watchers trust. When all watchers trust a new CA, the gateway may present
//! a certificate that this CA issued.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use component_base::metrics::LateMetrics;
use component_base::telemetry::error_chain;
use futures::StreamExt as _;
use jiff::Timestamp;
use listener::{
    BoundListener, CertificateCheck, Listener, Liveness, Notification, Notifications,
    RuntimeIdFromCommonName, TrustAnchors, UnresponsiveReason,
};
use policy::sync::plan::watcher::Reviews;
use policy::watchers::{HEARTBEAT_MANAGER, REVIEW_PROBE_LABEL};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::report::{
    HANDSHAKE_FAILED, HEARTBEAT_MISSING, INSTALLED, Outcome, REVIEW_MISSING, Retry,
};
use super::{BACKOFF, Context};
use crate::certificates::{GatewayReceiver, IssuedGateway};
use crate::clients::{Remote, RuntimeId};

/// Interval of comparing the CAs that watchers trust, while the gateway waits for them.
const ACKNOWLEDGEMENT_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of runtimes whose heartbeats are stored.
const MAX_RUNTIMES: usize = 20_000;

/// Settings of the heartbeats.
#[derive(Clone, Debug)]
pub struct HeartbeatSettings {
    /// Address of the listener.
    pub address: SocketAddr,
    /// Interval of the heartbeats of watchers. A runtime is unresponsive after three intervals without a heartbeat.
    pub interval: Duration,
}

/// State of the heartbeats of all runtimes.
pub(super) struct Heartbeats {
    settings: HeartbeatSettings,
    /// Set once the listener serves, with the time at which it started.
    served: OnceLock<(Liveness, Instant)>,
    /// Whether a Watcher for heartbeats exists.
    is_expected: AtomicBool,
}

impl Heartbeats {
    pub(super) fn new(settings: HeartbeatSettings) -> Self {
        Self {
            settings,
            served: OnceLock::new(),
            is_expected: AtomicBool::new(false),
        }
    }

    /// Sets whether a Watcher for heartbeats exists.
    pub(super) fn expect(&self, is_expected: bool) {
        self.is_expected.store(is_expected, Ordering::Relaxed);
    }

    /// Removes a runtime whose watcher is removed.
    pub(super) fn forget(&self, id: &str) {
        if let Some(((liveness, _), id)) = self.served.get().zip(listener::RuntimeId::parse(id)) {
            liveness.forget(&id);
        }
    }

    /// Returns the liveness of runtimes, if heartbeats are expected.
    fn liveness(&self) -> Option<&Liveness> {
        let is_expected = self.is_expected.load(Ordering::Relaxed);
        let served = self.served.get().filter(|_| is_expected)?;
        Some(&served.0)
    }

    /// Returns the liveness of runtimes once every running watcher has sent a heartbeat: three intervals after the start.
    fn complete_liveness(&self) -> Option<&Liveness> {
        let (_, since) = self.served.get()?;
        let is_complete = since.elapsed() > self.settings.interval * 3;
        self.liveness().filter(|_| is_complete)
    }

    /// Returns the result of a reconcile after which the watcher is installed; it differs if the runtime is
    /// unresponsive. With `remote`, sends a request for a review if there was no review within one interval.
    pub(super) async fn judge(
        &self,
        remote: Option<&Remote>,
        id: &RuntimeId,
        namespace: &str,
    ) -> Outcome {
        let installed = || Outcome::new(INSTALLED, String::new(), Retry::AtResync);
        let known = self.liveness().zip(listener::RuntimeId::parse(id.as_str()));
        let Some((liveness, id)) = known else {
            return installed();
        };
        liveness.expect(&id);
        let Some(seen) = liveness.runtime(&id) else {
            return installed();
        };
        // Only a requested review ends the state `ReviewMissing`, and those of other managers may arrive again before it.
        let is_due = seen.unresponsive == Some(UnresponsiveReason::ReviewMissing)
            || seen
                .since_review
                .is_none_or(|it| it > self.settings.interval);
        if let Some(remote) = remote
            && is_due
            && seen.since_heartbeat.is_some()
        {
            match request_review(remote, namespace).await {
                Ok(()) => liveness.expect_review(&id),
                // Another webhook or a policy of the cluster may deny the request before its review.
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::debug!(%id, error, "request for an AdmissionReview failed");
                }
            }
        }
        let Some(reason) = seen.unresponsive else {
            return installed();
        };
        let (reason, message) = match reason {
            UnresponsiveReason::HeartbeatMissing => (
                HEARTBEAT_MISSING,
                "no heartbeat of the watcher, or of one of its replicas, for three intervals",
            ),
            UnresponsiveReason::HandshakeFailed => (
                HANDSHAKE_FAILED,
                "TLS handshakes of the API server with the watcher fail",
            ),
            _ => (
                REVIEW_MISSING,
                "the API server sends no AdmissionReviews to the watcher",
            ),
        };
        Outcome::new(reason, message.to_owned(), Retry::AtResync)
    }

    /// Returns whether reviews reach the watcher of a runtime.
    pub(super) fn reviews(&self, id: &RuntimeId) -> Reviews {
        let known = self.liveness().zip(listener::RuntimeId::parse(id.as_str()));
        let Some(seen) = known.and_then(|(liveness, id)| liveness.runtime(&id)) else {
            return Reviews::Unknown;
        };
        let now = Timestamp::now();
        let before = |it: Duration| now.checked_sub(it).ok();
        let last = seen.since_review.and_then(before);
        match (seen.unresponsive, last) {
            (Some(UnresponsiveReason::ReviewMissing), _) => {
                // It took at least three heartbeats to see it.
                let since = before(self.settings.interval * 3);
                Reviews::Missing(since.unwrap_or(now))
            }
            (None, Some(last)) => Reviews::Last(last),
            _ => Reviews::Unknown,
        }
    }

    async fn serve(
        &self,
        anchors: &TrustAnchors,
        metrics: &LateMetrics,
    ) -> (BoundListener, Notifications) {
        let mut failures = 0;
        loop {
            let check = CertificateCheck::new(anchors.clone(), RuntimeIdFromCommonName);
            let built = Listener::builder(self.settings.address, HEARTBEAT_MANAGER)
                .authentication(check)
                .options(|it| {
                    it.heartbeat_interval = self.settings.interval;
                    it.runtimes = MAX_RUNTIMES;
                    // Only the leader may receive heartbeats.
                    (it.linger, it.grace) = (Duration::ZERO, Duration::from_secs(1));
                })
                .build();
            let error = match built {
                Ok((listener, notifications)) => {
                    let liveness = listener.liveness();
                    let mut registry = Registry::default();
                    listener.register_metrics(&mut registry);
                    match listener.bind().await {
                        Ok(bound) => {
                            metrics.expose(registry);
                            // The cell is empty, because a leader starts the listener only once.
                            let _ = self.served.set((liveness, Instant::now()));
                            return (bound, notifications);
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let error = error_chain(&error);
            let address = self.settings.address;
            tracing::warn!(%address, error, "listener for heartbeats not started, backing off");
            sleep(BACKOFF.delay(failures, fastrand::u64(..))).await;
            failures += 1;
        }
    }
}

/// Sends a request that the webhook of the Watcher for heartbeats covers. It is a dry run, so nothing is stored.
async fn request_review(remote: &Remote, namespace: &str) -> Result<(), crate::clients::CallError> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "rt-bootstrapper-review-probe", "namespace": namespace,
            "labels": { REVIEW_PROBE_LABEL: "true" },
        },
    });
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    remote.post(&path, &object).await.map(drop)
}

/// Receives heartbeats until the token is canceled. `changed` receives the ID of each runtime that becomes
/// unresponsive or recovers. `acknowledged` receives the SHA-256 of the CAs that all watchers trust.
pub(super) async fn run(
    context: &Context,
    mut gateway: GatewayReceiver,
    changed: mpsc::UnboundedSender<String>,
    acknowledged: watch::Sender<Option<String>>,
    token: CancellationToken,
) {
    let anchors = token.run_until_cancelled(first_anchors(&mut gateway)).await;
    let Some(anchors) = anchors else { return };
    let heartbeats = &context.heartbeats;
    let serving = heartbeats.serve(&anchors, &context.options.metrics.listener);
    let serving = token.run_until_cancelled(serving).await;
    let Some((bound, notifications)) = serving else {
        return;
    };
    let compare = compare(context, gateway.clone(), acknowledged);
    let background = async {
        tokio::join!(
            follow(gateway, &anchors),
            compare,
            pass_on(notifications, changed)
        );
    };
    let (served, _) = tokio::join!(
        bound.run(token.clone()),
        token.run_until_cancelled(background),
    );
    if let Err(error) = served {
        let error = error_chain(&error);
        tracing::debug!(error, "requests to the listener for heartbeats aborted");
    }
}

/// Waits for the CAs of the gateway.
async fn first_anchors(gateway: &mut GatewayReceiver) -> TrustAnchors {
    loop {
        let bundle = gateway.borrow_and_update().as_ref().ok().map(bundle_of);
        if let Some(anchors) = bundle.and_then(|it| TrustAnchors::from_pem(it.as_bytes()).ok()) {
            return anchors;
        }
        if gateway.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn follow(mut gateway: GatewayReceiver, anchors: &TrustAnchors) {
    while gateway.changed().await.is_ok() {
        let bundle = gateway.borrow_and_update().as_ref().ok().map(bundle_of);
        if let Some(bundle) = bundle
            && let Err(error) = anchors.replace(bundle.as_bytes())
        {
            let error = error_chain(&error);
            tracing::warn!(error, "CAs of the listener for heartbeats not replaced");
        }
    }
}

fn bundle_of(gateway: &IssuedGateway) -> std::sync::Arc<str> {
    std::sync::Arc::clone(&gateway.bundle)
}

async fn pass_on(mut notifications: Notifications, changed: mpsc::UnboundedSender<String>) {
    while let Some(notification) = notifications.next().await {
        if let Notification::Unresponsive { runtime_id, .. }
        | Notification::Recovered { runtime_id } = notification
        {
            // The receiver exists as long as the controller.
            let _ = changed.send(runtime_id.as_str().to_owned());
        }
    }
}

/// Compares the CAs while the gateway waits until the watchers trust them.
async fn compare(
    context: &Context,
    gateway: GatewayReceiver,
    acknowledged: watch::Sender<Option<String>>,
) {
    loop {
        sleep(ACKNOWLEDGEMENT_INTERVAL).await;
        let waited_for = gateway
            .borrow()
            .as_ref()
            .ok()
            .and_then(|it| it.waits_for.clone());
        let Some(bundle) = waited_for else { continue };
        if context.is_acknowledged(&bundle) {
            acknowledged.send_if_modified(|before| {
                let is_new = before.as_ref() != Some(&bundle);
                *before = Some(bundle);
                is_new
            });
        }
    }
}

impl Context {
    /// Returns whether all watchers trust the CAs with this SHA-256: every watcher that sends heartbeats, and at
    /// least one watcher of each runtime that should have one. An unreachable runtime with a silent watcher does not
    /// count. Returns `false` before all runtimes are known and every watcher had time for a heartbeat, so a new
    /// leader waits for three intervals. If KCP does not serve RuntimeBootstrappers, the gateway waits for the grace
    /// period instead.
    fn is_acknowledged(&self, bundle: &str) -> bool {
        let Some(liveness) = self.heartbeats.complete_liveness() else {
            return false;
        };
        let runtimes = self.runtimes();
        if !runtimes.is_first_pass_complete || !self.kymas.has_bootstrappers() {
            return false;
        }
        let states = runtimes.states.values();
        let expected: Vec<_> = states.map(|it| (it.id.clone(), it.has_watcher())).collect();
        drop(runtimes);
        expected.into_iter().all(|(id, has_watcher)| {
            let id = id.and_then(|it| listener::RuntimeId::parse(it.as_str()));
            let seen = id.and_then(|it| liveness.runtime(&it));
            let watchers = seen.map(|it| it.watchers).unwrap_or_default();
            let mut alive = watchers.iter().filter(|it| !it.silent).peekable();
            (alive.peek().is_some() || !has_watcher)
                && alive.all(|it| {
                    let heartbeat = it.heartbeat.as_ref();
                    heartbeat.is_some_and(|it| it.bundle_sha256.as_deref() == Some(bundle))
                })
        })
    }
}
