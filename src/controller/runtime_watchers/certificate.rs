//! The Secret with the certificate of a watcher, copied from KCP to a runtime. Its bytes are zeroized as soon as they
//! are not needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use policy::certificates::{CertificateInfo, NAME_SUFFIX};
use policy::sync::plan::Action;
use policy::sync::plan::watcher::{DesiredWatcher, certificate_secret};
use policy::sync::target::Target;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Context;
use crate::clients::RuntimeId;
use crate::secret::{ZeroizedSecret, zeroize_data};

/// Reason of the outcome while cert-manager has not issued the certificate of a runtime.
pub(super) const CERTIFICATE_PENDING: &str = "CertificatePending";

/// The Secret for a runtime, or the reason why there is none.
pub(super) type Certificate = Result<Arc<Value>, &'static str>;

impl Context {
    /// The Secret for the runtime `id` of a Kyma with the CAs `bundle`, as PEM in base64, for this watcher; or the reason why there
    /// is none.
    ///
    /// # Errors
    /// KCP does not return the Secret of cert-manager.
    pub(super) async fn certificate(
        &self,
        kyma: &str,
        id: &RuntimeId,
        desired: &DesiredWatcher,
        bundle: &str,
    ) -> kube::Result<Certificate> {
        let name = format!("{kyma}{NAME_SUFFIX}");
        let found = self.certificates.get_opt(&name).await?;
        let Some(secret) = found.map(ZeroizedSecret) else {
            return Ok(Err(CERTIFICATE_PENDING));
        };
        Ok(secret_for_runtime(&secret, id, desired, bundle))
    }
}

/// The Secret for a runtime, from that of cert-manager.
fn secret_for_runtime(
    secret: &Secret,
    id: &RuntimeId,
    desired: &DesiredWatcher,
    bundle: &str,
) -> Certificate {
    let value = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        (!value.0.is_empty()).then_some(&value.0)
    };
    let (Some(certificate), Some(key)) = (value("tls.crt"), value("tls.key")) else {
        return Err(CERTIFICATE_PENDING);
    };
    let leaf = CertificateInfo::first(certificate).map_err(|_| "InvalidCertificate")?;
    // After a change of the runtime ID, cert-manager keeps the certificate of the other runtime until it has issued this one.
    if leaf.common_name.as_deref() != Some(id.as_str()) {
        return Err(CERTIFICATE_PENDING);
    }
    let authorities = STANDARD.decode(bundle).unwrap_or_default();
    let authorities = CertificateInfo::read_all(&authorities).map_err(|_| "InvalidBundle")?;
    // The API server and the gateway would reject a certificate of another CA.
    if !authorities.iter().any(|it| leaf.is_issued_by(it)) {
        return Err("CertificateOfUnknownCA");
    }
    let key = Zeroizing::new(STANDARD.encode(key));
    let certificate = STANDARD.encode(certificate);
    Ok(certificate_secret(
        desired.namespace(),
        [bundle, &certificate, &key],
        &STANDARD.encode(desired.managers()),
    ))
}

/// Overwrites the data of the Secrets among the objects of a runtime.
pub(super) fn zeroize_secrets(live: &mut BTreeMap<Target, Value>) {
    let secrets = live
        .iter_mut()
        .filter(|(target, _)| target.kind() == "Secret");
    secrets.for_each(|(_, secret)| zeroize_data(secret));
}

/// Overwrites the data of a Secret that has no other owner.
pub(super) fn zeroize_unshared(object: Arc<Value>) {
    if let Some(mut object) = Arc::into_inner(object) {
        zeroize_data(&mut object);
    }
}

/// Overwrites the data of the Secret that an action has written.
pub(super) fn zeroize_action(action: Action) {
    if let Action::Apply { target, object } = action
        && target.kind() == "Secret"
    {
        zeroize_unshared(object);
    }
}
