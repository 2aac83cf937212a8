//! The Certificate of the gateway, and the Secret with which the gateway serves and verifies runtimes.
//!
//! A reconcile starts after a change of one of the three Secrets or of an Istio Gateway, and at the end of a grace period.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use component_base::telemetry::error_chain;
use component_base::watch::{watch_if_served, watch_object};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt as _};
use policy::certificates::{
    Gateway, GatewayError, GatewayState, KeyPair, bundle_sha256, gateway, gateway_certificate,
    is_current,
};
use policy::watchers::ISTIO_API_VERSION;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::istio::{address, hosts};
use super::{
    CERT_MANAGER_API_NOT_SERVED, CertificateOptions, GATEWAY_CERTIFICATE_PENDING, GatewayStatus,
    IssuedGateway, RESYNC, RETRY,
};
use crate::RECONCILE_BACKOFF;
use crate::dynamic::objects;
use crate::requests::Answer as _;
use crate::secret::{ZeroizedSecret, zeroize_data};

/// Annotation of the Secret of the gateway with the time at which the newest CA was added, as in the public lifecycle-manager.
const CA_ADDED: &str = "caAddedToBundleAt";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";

struct Reconciler {
    options: CertificateOptions,
    secrets: Api<Secret>,
    certificates: Api<DynamicObject>,
    gateways: Api<DynamicObject>,
    current: Sender<GatewayStatus>,
}

/// Reconciles until the future is dropped. Sends the CA to `current` once the bundle contains the CA. `acknowledged`
/// contains the SHA-256 of the bundle that all runtimes trust.
pub(super) async fn run(
    options: CertificateOptions,
    current: Sender<GatewayStatus>,
    mut acknowledged: Receiver<Option<String>>,
) {
    let reconciler = Reconciler::new(options, current);
    let mut changes = pin!(reconciler.changes());
    let (mut failures, mut writes) = (0, 0);
    loop {
        let trusted = acknowledged.borrow_and_update().clone();
        let pause = match reconciler.reconcile(trusted.as_deref()).await {
            Ok((pause, is_written)) => {
                failures = 0;
                // Another client may change the Secret back each time, and the watch reports it.
                if is_written {
                    sleep(RECONCILE_BACKOFF.delay(writes, fastrand::u64(..))).await;
                }
                writes = if is_written { writes + 1 } else { 0 };
                pause
            }
            Err(error) => {
                let error = error_chain(&*error);
                tracing::warn!(
                    error,
                    "failed to reconcile certificate of gateway, backing off"
                );
                reconciler.options.metrics.failed();
                failures += 1;
                RECONCILE_BACKOFF.delay(failures - 1, fastrand::u64(..))
            }
        };
        tokio::select! {
            Some(()) = changes.next() => {}
            Ok(()) = acknowledged.changed() => {}
            () = sleep(pause) => {}
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Reconciler {
    fn new(options: CertificateOptions, current: Sender<GatewayStatus>) -> Self {
        let gateways = (ISTIO_API_VERSION, "Gateway");
        let (client, settings) = (&options.client, &options.settings);
        Self {
            secrets: Api::namespaced(client.clone(), &settings.certificates.namespace),
            certificates: options.certificates(),
            gateways: objects(client, &settings.gateway_namespace, gateways),
            current,
            options,
        }
    }

    fn changes(&self) -> impl futures::Stream<Item = ()> + use<> {
        let settings = &self.options.settings;
        let names = [
            &settings.ca_secret,
            &settings.gateway_certificate,
            &settings.gateway_secret,
        ];
        let secrets = names.map(|name| {
            let check = self.options.readiness.check(format!("{name}-watch"));
            watch_object(self.secrets.clone(), name, check)
                .map(|it| drop(it.map(ZeroizedSecret)))
                .boxed()
        });
        let check = self.options.readiness.check("certificate-gateways-watch");
        let gateways = watch_if_served(self.gateways.clone(), Config::default(), check);
        stream::select(stream::select_all(secrets), gateways.map(drop))
    }

    /// Reconciles once. Returns the time after which the next reconcile is due, and whether the Secret was written.
    /// `trusted` is the SHA-256 of the bundle that all runtimes trust.
    async fn reconcile(&self, trusted: Option<&str>) -> Result<(Duration, bool), BoxError> {
        let settings = &self.options.settings;
        let gateways = self.gateways().await?;
        let secret = &settings.gateway_secret;
        let hosts = gateways.iter().flat_map(|it| hosts(it, secret));
        let hosts = hosts.chain(settings.gateway_host.clone());
        // If the request fails, for example without cert-manager, certificates that were issued before are still used.
        let requested = self.request_certificate(&hosts.collect::<Vec<_>>()).await;
        let outcome = self.synchronize(&gateways, trusted).await?;
        requested?;
        Ok(outcome)
    }

    /// Writes the Secret and publishes the gateway. The result is that of [`Self::reconcile`].
    async fn synchronize(
        &self,
        gateways: &[Value],
        trusted: Option<&str>,
    ) -> Result<(Duration, bool), BoxError> {
        let settings = &self.options.settings;
        let Some(ca) = self.secret(&settings.ca_secret).await? else {
            tracing::debug!(secret = settings.ca_secret, "CA not issued yet");
            return Ok((self.publish_pending().await?, false));
        };
        let ca = value(&ca, CERTIFICATE).unwrap_or_default();
        let leaf = self.secret(&settings.gateway_certificate).await?;
        let live = self.secret(&settings.gateway_secret).await?;
        let leaf = leaf.as_deref().and_then(pair);
        let live_pair = live.as_deref().and_then(pair);
        let live_bundle = live.as_deref().and_then(|it| value(it, CA));
        let now = Timestamp::now().as_second();
        let annotation = live.as_ref().and_then(|it| it.annotations().get(CA_ADDED));
        let added = annotation.and_then(|it| it.parse::<Timestamp>().ok());
        let published = self.current.borrow().clone().ok();
        let state = GatewayState {
            ca: &ca,
            leaf: leaf.as_ref(),
            live_bundle: live_bundle.as_ref().map(|it| &it[..]),
            published: published
                .as_ref()
                .map(|it| (it.bundle.as_bytes(), it.ca_added)),
            live_pair: live_pair.as_ref(),
            ca_added: added.map(Timestamp::as_second),
            is_acknowledged: live_bundle
                .as_ref()
                .is_some_and(|it| trusted == Some(&bundle_sha256(it))),
            grace_period: settings
                .grace_period
                .as_secs()
                .try_into()
                .unwrap_or(i64::MAX),
            now,
        };
        let desired = match gateway(&state) {
            Ok(desired) => desired,
            Err(GatewayError::LeafPending) => return Ok((self.publish_pending().await?, false)),
            Err(error) => return Err(error.into()),
        };
        let is_written = self.write_if_different(&state, &desired).await?;
        self.options.metrics.show_gateway(desired.not_after);
        let secret = &settings.gateway_secret;
        self.publish(&desired, gateways.iter().find_map(|it| address(it, secret)));
        if desired.is_leaf_outdated {
            self.renew_certificate().await?;
        }
        let wait = desired
            .waits_until
            .map(|it| it.saturating_sub(now).max(1).unsigned_abs());
        let pause = wait.map_or(RESYNC, |it| Duration::from_secs(it).min(RESYNC));
        Ok((pause, is_written))
    }

    /// Publishes the reason why a certificate is not issued, unless one was issued before. Returns the time after which
    /// the next reconcile is due. cert-manager writes a Secret when it issues a certificate, and that change starts a
    /// reconcile earlier.
    async fn publish_pending(&self) -> kube::Result<Duration> {
        let one = ListParams::default().limit(1);
        let certificates = self.certificates.list(&one).await.unless_gone()?;
        let (reason, pause) = match certificates {
            Some(_) => (GATEWAY_CERTIFICATE_PENDING, RESYNC),
            None => (CERT_MANAGER_API_NOT_SERVED, RETRY.base),
        };
        self.current.send_if_modified(|before| {
            let is_new = before.as_ref().is_err_and(|it| *it != reason);
            if is_new {
                *before = Err(reason);
            }
            is_new
        });
        Ok(pause)
    }

    async fn secret(&self, name: &str) -> kube::Result<Option<ZeroizedSecret>> {
        Ok(self.secrets.get_opt(name).await?.map(ZeroizedSecret))
    }

    fn publish(&self, desired: &Gateway, address: Option<Arc<str>>) {
        let current = Ok(IssuedGateway {
            ca: desired.ca.clone(),
            ca_added: desired.ca_added,
            bundle: desired.bundle.as_str().into(),
            address,
            waits_for: desired
                .waits_until
                .map(|_| bundle_sha256(desired.bundle.as_bytes())),
        });
        self.current.send_if_modified(|before| {
            let is_new = *before != current;
            *before = current;
            is_new
        });
    }

    /// Returns all Istio Gateways by name. Without Istio, the result is empty.
    async fn gateways(&self) -> kube::Result<Vec<Value>> {
        let gateways = self.gateways.list(&ListParams::default()).await;
        let gateways = gateways.unless_gone()?.into_iter().flatten();
        Ok(gateways.map(|it| json!(it)).collect())
    }

    /// Writes the Certificate of the gateway if it differs. Its names are the hosts of all Istio Gateways with the Secret.
    async fn request_certificate(&self, hosts: &[String]) -> kube::Result<()> {
        let settings = &self.options.settings;
        let name = &settings.gateway_certificate;
        let Some(desired) = gateway_certificate(name, hosts, &settings.certificates) else {
            return Ok(());
        };
        let live = self.certificates.get_opt(name).await?.map(|it| json!(it));
        if live.is_some_and(|live| is_current(&desired, &live)) {
            return Ok(());
        }
        let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
        self.certificates
            .patch(name, &parameters, &Patch::Apply(&desired))
            .await?;
        self.options.metrics.wrote("apply");
        tracing::info!(certificate = name, "Certificate of gateway written");
        Ok(())
    }

    async fn renew_certificate(&self) -> kube::Result<()> {
        let name = &self.options.settings.gateway_certificate;
        match self.certificates.get_opt(name).await? {
            Some(live) => self.options.renew(&live).await,
            None => Ok(()),
        }
    }

    /// Writes the Secret of the gateway if it differs. Returns whether it was written.
    async fn write_if_different(
        &self,
        state: &GatewayState<'_>,
        desired: &Gateway,
    ) -> kube::Result<bool> {
        let is_same = state.live_bundle == Some(desired.bundle.as_bytes())
            && state.live_pair == Some(&desired.pair)
            && state.ca_added == Some(desired.ca_added);
        if !is_same {
            self.write(desired).await?;
        }
        Ok(!is_same)
    }

    async fn write(&self, desired: &Gateway) -> kube::Result<()> {
        let name = &self.options.settings.gateway_secret;
        let added = Timestamp::from_second(desired.ca_added).unwrap_or_default();
        let added = added.strftime("%FT%TZ").to_string();
        // `json!` copies the text.
        let bytes = |it: &[u8]| Zeroizing::new(STANDARD.encode(it));
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "annotations": { CA_ADDED: added },
                "labels": { api::watcher::MANAGED_BY_LABEL: CONTROLLER_FIELD_MANAGER },
            },
            "data": {
                CERTIFICATE: bytes(&desired.pair.certificate).as_str(),
                KEY: bytes(&desired.pair.key).as_str(),
                CA: bytes(desired.bundle.as_bytes()).as_str(),
            },
        });
        let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
        let patch = Patch::Apply(&object);
        let written = self.secrets.patch(name, &parameters, &patch).await;
        zeroize_data(&mut object);
        drop(written.map(ZeroizedSecret)?);
        self.options.metrics.wrote("gateway");
        let waits = desired.waits_until.is_some();
        tracing::info!(
            secret = name,
            ca_added = added,
            waits,
            "Secret of gateway written"
        );
        Ok(())
    }
}

fn value(secret: &Secret, key: &str) -> Option<Zeroizing<Vec<u8>>> {
    let value = secret.data.as_ref()?.get(key)?;
    (!value.0.is_empty()).then(|| Zeroizing::new(value.0.clone()))
}

fn pair(secret: &Secret) -> Option<KeyPair> {
    Some(KeyPair {
        certificate: value(secret, CERTIFICATE)?.to_vec(),
        key: value(secret, KEY)?,
    })
}

impl Drop for Reconciler {
    /// Resets the metrics: a replica that is not the leader reports 0.
    fn drop(&mut self) {
        self.options.metrics.show_gateway(0);
    }
}
