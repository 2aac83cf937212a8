//! The rotation of the CA of the watchers, while a runtime reports changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doubles::keb::Instance;
use doubles::klm::{GATEWAY_NAMESPACE, GATEWAY_SECRET};
use serde::Serialize;
use serde_json::{Value, json};
use testkit::until::until;
use tokio::time::{interval, timeout};

use super::Flow;
use super::shoots::Shoot;
use crate::definitions::{Stream, check};
use crate::rollout::{Workload, count};
use testkit::client::{Client, Write};

/// Secret of the CA, issued by cert-manager.
const CA: &str = "klm-watcher";
/// Secret that cert-manager issues for the gateway.
const ISSUED: &str = "klm-watcher-gateway";
/// Metrics port of the watcher on a runtime.
const METRICS_PORT: u16 = 2112;
/// Time limit of a rotation, which includes the kubelets' updates of the mounted Secret.
const LIMIT: Duration = Duration::from_mins(4);
/// Delay between two changes of the Kyma.
const PERIOD: Duration = Duration::from_millis(50);

/// Results of the delivery of a runtime's changes to KCP.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Delivery {
    /// Number of changes.
    pub(crate) changes: u64,
    /// Number of TLS handshakes that the gateway rejected.
    pub(crate) handshake_errors: u64,
    /// Number of reviews that the API server of the runtime sent.
    pub(crate) reviews: u64,
    /// Number of reviews to which the API server of the runtime received no response.
    pub(crate) unanswered: u64,
    /// Number of events that watchers dropped, and of requests to KCP that failed.
    pub(crate) failures: u64,
}

impl Delivery {
    /// Returns the increase of the counters since `before`, with this number of changes.
    pub(super) fn since(&self, before: &Self, changes: u64) -> Result<Self> {
        let increase = |of: fn(&Self) -> u64| {
            let increase = of(self).checked_sub(of(before));
            increase.context("a counter was reset")
        };
        Ok(Self {
            changes,
            handshake_errors: increase(|it| it.handshake_errors)?,
            reviews: increase(|it| it.reviews)?,
            unanswered: increase(|it| it.unanswered)?,
            failures: increase(|it| it.failures)?,
        })
    }
}

impl Flow {
    /// Deletes the CA, so that cert-manager issues another one. It changes the Kyma on a runtime until the gateway presents a
    /// certificate of the new CA and every event is delivered.
    pub(crate) async fn rotate_ca(&self, instance: &Instance) -> Result<Delivery> {
        let shoot = self.shoots.find(&instance.shoot)?;
        let watcher = Workload::new(shoot.api.clone(), "kyma-system", "skr-webhook");
        let before = self.counted(&shoot, &watcher).await?;
        let ca = self.certificate(CA, "tls.crt").await?;
        let serial = self.presented().await?;
        let changing = change_continuously(shoot.api.clone());
        let path = secret_path(CA);
        self.kcp.api.delete(&path).await?;
        let rotated = until(
            "the gateway presents a certificate of the new CA",
            LIMIT,
            || self.presents_new(&ca, &serial),
        );
        let rotated = rotated.await;
        let changes = timeout(LIMIT, changing.end()).await???;
        rotated?;
        until("all events are delivered", LIMIT, || is_delivered(&watcher)).await?;
        let after = self.counted(&shoot, &watcher).await?;
        after.since(&before, changes)
    }

    /// Returns the current counters.
    pub(super) async fn counted(&self, shoot: &Shoot, watcher: &Workload) -> Result<Delivery> {
        let api_server = shoot.api.metrics().await?;
        let watchers = watcher.metrics(METRICS_PORT).await?;
        let failures = [
            "watcher_dropped_events_total",
            "watcher_delivery_failures_total",
        ];
        let failures = failures.map(|it| count(&watchers, it));
        Ok(Delivery {
            changes: 0,
            handshake_errors: self.istio.handshake_errors().await?,
            reviews: api_server.count_of_known("apiserver_admission_webhook_request_total")?,
            unanswered: api_server.count_of_known("apiserver_admission_webhook_fail_open_count")?,
            failures: failures.into_iter().sum::<Result<u64>>()?,
        })
    }

    /// Checks that the gateway presents a certificate that another CA than `old` has issued.
    async fn presents_new(&self, old: &str, serial: &str) -> Result<()> {
        let ca = self.certificate(CA, "tls.crt").await?;
        ensure!(ca != old, "the CA is not rotated");
        let authority = self.certificate(ISSUED, "ca.crt").await?;
        let expected = "a certificate of the new CA";
        ensure!(authority == ca, "cert-manager has not issued {expected}");
        let issued = self.certificate(ISSUED, "tls.crt").await?;
        let served = self.certificate(GATEWAY_SECRET, "tls.crt").await?;
        ensure!(issued == served, "the gateway's Secret has another one");
        let presented = self.presented().await?;
        check(presented != serial, "the gateway presents the old one")
    }

    async fn certificate(&self, secret: &str, key: &str) -> Result<String> {
        let found = self.kcp.api.find(&secret_path(secret)).await?;
        let value = found["data"][key].as_str();
        Ok(value
            .with_context(|| format!("{secret} has no {key}"))?
            .to_owned())
    }

    /// Returns the serial number of the certificate that the gateway presents.
    async fn presented(&self) -> Result<String> {
        let page: Value = serde_json::from_str(&self.istio.page("certs").await?)?;
        let mut certificates = page["certificates"].as_array().into_iter().flatten();
        // The certificate with which Envoy connects to istiod has another issuer and no DNS name.
        let is_served = |it: &&Value| {
            let names = it
                .pointer("/cert_chain/0/subject_alt_names")
                .and_then(Value::as_array);
            names
                .into_iter()
                .flatten()
                .any(|it| it["dns"] == crate::gateway::HOST)
        };
        let served = certificates.find(is_served).context("no certificate")?;
        let serial = served
            .pointer("/cert_chain/0/serial_number")
            .and_then(Value::as_str);
        Ok(serial.context("no serial number")?.to_owned())
    }
}

/// Checks that the replicas of a watcher have no undelivered events.
pub(super) async fn is_delivered(watcher: &Workload) -> Result<()> {
    let metrics = watcher.metrics(METRICS_PORT).await?;
    let left = count(&metrics, "watcher_outbox_events")?;
    check(left == 0, format!("{left} events"))
}

#[expect(clippy::disallowed_methods, reason = "the rate of the changes")]
fn change_continuously(runtime: Client) -> Stream<Result<u64>> {
    Stream::spawn(async move |over| {
        let mut ticks = interval(PERIOD);
        let mut changes = 0;
        while !over.load(Ordering::Relaxed) {
            ticks.tick().await;
            let patch = json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": { "name": "default", "namespace": "kyma-system" },
                "spec": { "skipMaintenanceWindows": changes % 2 == 0 },
            });
            runtime.write(Write::Merge, &patch).await?.good()?;
            changes += 1;
        }
        Ok(changes)
    })
}

fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/{GATEWAY_NAMESPACE}/secrets/{name}")
}
