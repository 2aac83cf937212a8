//! The rotation of the CA of the watchers, while a runtime reports changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use doubles::keb::Instance;
use doubles::klm::{GATEWAY_NAMESPACE, GATEWAY_SECRET};
use serde::Serialize;
use serde_json::Value;
use testkit::until::{holds, until};
use tokio::time::timeout;

use super::Flow;
use super::shoots::Shoot;
use super::takeover::create_continuously;
use crate::definitions::check;
use crate::rollout::{Workload, count, filter};

/// Secret of the CA, issued by cert-manager.
pub(super) const CA: &str = "klm-watcher";
/// Certificate whose Secret is the CA.
pub(super) const CA_CERTIFICATE: &str = "klm-watcher-serving";
/// Secret that cert-manager issues for the gateway.
pub(super) const ISSUED: &str = "klm-watcher-gateway";
/// Metrics port of the watcher on a runtime.
const METRICS_PORT: u16 = 2112;
/// Time limit of a rotation, which includes the kubelets' updates of the mounted Secret.
const LIMIT: Duration = Duration::from_mins(4);
/// Delay between two Kymas.
const PERIOD: Duration = Duration::from_millis(50);
/// Period of an outage after the certificate of the runtime was renewed: more than the three intervals of heartbeats after which
/// the gateway would no longer wait for a silent watcher.
const OUTAGE: Duration = Duration::from_secs(20);
/// Secret with the certificate of the watcher on a runtime.
const RUNTIME_SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/skr-webhook-tls";

/// What happens during a rotation of the CA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    /// Whether a second rotation begins as soon as the gateway trusts the CA of the first one.
    pub(crate) is_repeated: bool,
    /// Whether KCP cannot reach the runtime until its certificate is renewed on KCP.
    pub(crate) has_outage: bool,
}

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
    /// Deletes the CA, so that cert-manager issues another one. It creates Kymas on a runtime until the gateway presents a
    /// certificate of the new CA and every event is delivered, and returns their names.
    pub(crate) async fn rotate_ca(
        &self,
        instance: &Instance,
        rotation: Rotation,
    ) -> Result<(Delivery, Vec<String>)> {
        let shoot = self.shoots.find(&instance.shoot)?;
        let watcher = Workload::new(shoot.api.clone(), "kyma-system", "skr-webhook");
        let before = self.counted(&shoot, &watcher).await?;
        let creating = create_continuously(shoot.api.clone(), PERIOD);
        let rotated = self.rotate(&shoot, instance, rotation).await;
        let created = timeout(LIMIT, creating.end()).await;
        rotated?;
        let created = created???;
        until("all events are delivered", LIMIT, || is_delivered(&watcher)).await?;
        let after = self.counted(&shoot, &watcher).await?;
        let changes = u64::try_from(created.len())?;
        Ok((after.since(&before, changes)?, created))
    }

    async fn rotate(&self, shoot: &Shoot, instance: &Instance, rotation: Rotation) -> Result<()> {
        let serial = self.presented().await?;
        let mut ca = self.certificate(CA, "tls.crt").await?;
        if rotation.has_outage {
            self.block_connections(instance, true).await?;
        }
        self.replace_ca().await?;
        if rotation.is_repeated {
            let trusted = until("the gateway trusts the new CA", LIMIT, || {
                self.trusts_other(&ca)
            });
            ca = trusted.await?;
            self.replace_ca().await?;
        }
        if rotation.has_outage {
            self.waits_for(shoot, instance, (&ca, &serial)).await?;
            self.block_connections(instance, false).await?;
        }
        until(
            "the gateway presents a certificate of the new CA",
            LIMIT,
            || self.presents_new(&ca, &serial),
        )
        .await?;
        until(
            "the runtime has the new CA and a certificate of it",
            LIMIT,
            || self.is_renewed(shoot, instance),
        )
        .await?;
        Ok(())
    }

    /// Deletes the Secret of the CA when cert-manager has finished an earlier replacement. Until then it may write the Secret with
    /// the same CA again.
    async fn replace_ca(&self) -> Result<()> {
        let path = format!(
            "/apis/cert-manager.io/v1/namespaces/{GATEWAY_NAMESPACE}/certificates/{CA_CERTIFICATE}"
        );
        until("cert-manager has issued the CA", LIMIT, || async {
            let certificate = self.kcp.api.find(&path).await?;
            let conditions = certificate["status"]["conditions"].as_array();
            let is = |it: &Value, kind: &str| it["type"] == kind && it["status"] == "True";
            let has = |kind| conditions.is_some_and(|all| all.iter().any(|it| is(it, kind)));
            check(has("Ready") && !has("Issuing"), "it is being issued")
        })
        .await?;
        self.kcp.api.delete(&secret_path(CA)).await
    }

    /// Rejects connections from KCP to the API server of a runtime, or accepts them again. The watcher still reaches KCP.
    pub(crate) async fn block_connections(
        &self,
        instance: &Instance,
        is_blocked: bool,
    ) -> Result<()> {
        let address = self.kcp.cluster.node_address().await?;
        let rule = format!("INPUT -s {address} -j REJECT");
        let shoot = self.shoots.find(&instance.shoot)?;
        filter(&shoot.cluster, "filter", &rule, is_blocked).await
    }

    /// Returns the CA if it is another one, and the watchers' gateway trusts it.
    async fn trusts_other(&self, old: &str) -> Result<String> {
        let ca = self.certificate(CA, "tls.crt").await?;
        ensure!(ca != old, "the CA is not rotated");
        let bundle = self.certificate(GATEWAY_SECRET, "ca.crt").await?;
        let has = contains(&bundle, &ca)?;
        check(has, "the gateway does not trust it")?;
        Ok(ca)
    }

    /// Waits until the certificate of a runtime is renewed on KCP. While the runtime cannot be reached, it keeps its
    /// certificate, and the gateway trusts both CAs and presents the certificate that the runtime trusts.
    async fn waits_for(
        &self,
        shoot: &Shoot,
        instance: &Instance,
        (old, serial): (&str, &str),
    ) -> Result<()> {
        let own = format!("{}-webhook-tls", instance.runtime_id);
        let kept = shoot.api.get(RUNTIME_SECRET).await?.object["data"].clone();
        let is_renewed = || async {
            let ca = self.trusts_other(old).await?;
            let authority = self.certificate(&own, "ca.crt").await?;
            check(
                authority == ca,
                "the certificate of the runtime is of the old CA",
            )
        };
        until("the certificate is renewed on KCP", LIMIT, is_renewed).await?;
        holds("the old CA is trusted and used", OUTAGE, || async {
            let bundle = self.certificate(GATEWAY_SECRET, "ca.crt").await?;
            ensure!(contains(&bundle, old)?, "the old CA is not trusted");
            let now = shoot.api.get(RUNTIME_SECRET).await?.object["data"].clone();
            ensure!(now == kept, "the runtime was written to");
            let presented = self.presented().await?;
            check(
                presented == serial,
                "the gateway presents another certificate",
            )
        })
        .await?;
        Ok(())
    }

    /// Checks that the Secret on a runtime has the CAs of the gateway, and the certificate that KCP has for the runtime, of the
    /// newest CA.
    async fn is_renewed(&self, shoot: &Shoot, instance: &Instance) -> Result<()> {
        let own = format!("{}-webhook-tls", instance.runtime_id);
        let live = shoot.api.get(RUNTIME_SECRET).await?.object["data"].clone();
        let ca = self.certificate(CA, "tls.crt").await?;
        let authority = self.certificate(&own, "ca.crt").await?;
        ensure!(authority == ca, "the certificate is of an earlier CA");
        let certificate = self.certificate(&own, "tls.crt").await?;
        ensure!(
            live["tls.crt"] == certificate,
            "the runtime has another certificate"
        );
        let bundle = self.certificate(GATEWAY_SECRET, "ca.crt").await?;
        check(live["ca.crt"] == bundle, "the runtime trusts other CAs")
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

    pub(super) async fn certificate(&self, secret: &str, key: &str) -> Result<String> {
        let found = self.kcp.api.find(&secret_path(secret)).await?;
        let value = found["data"][key].as_str();
        Ok(value
            .with_context(|| format!("{secret} has no {key}"))?
            .to_owned())
    }

    /// Returns the serial number of the certificate that the gateway presents.
    pub(super) async fn presented(&self) -> Result<String> {
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

/// Returns whether a bundle contains a certificate, both as PEM in base64.
fn contains(bundle: &str, certificate: &str) -> Result<bool> {
    let [bundle, certificate] = [bundle, certificate].map(|it| BASE64.decode(it));
    let certificate = String::from_utf8(certificate?)?;
    Ok(String::from_utf8(bundle?)?.contains(certificate.trim()))
}

pub(super) fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/{GATEWAY_NAMESPACE}/secrets/{name}")
}
