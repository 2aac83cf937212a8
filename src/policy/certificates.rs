//! Decisions about the certificates of watchers: one for each runtime, one for the gateway of KCP, and the bundle of CAs.
//!
//! cert-manager issues the certificates. A rotation of the CA overlaps. First the new CA is added to the bundle, then
//! certificates of runtimes are renewed. The gateway uses a certificate of the new CA when all runtimes trust the CA
//! or a grace period has passed. Invariants: a certificate that has not expired stays in the bundle; the gateway
//! never gets the certificate of a CA that runtimes may not trust yet, unless it has no other certificate. Not in
//! here: requests and clocks.

use api::syntax::{is_label, is_subdomain};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

mod gateway;
mod x509;

#[cfg(test)]
mod tests;

pub use gateway::{Gateway, GatewayError, GatewayState, KeyPair, bundle_sha256, gateway};
pub use x509::{CertificateInfo, X509Error};

use crate::sync::is_applied;

/// `apiVersion` of cert-manager.
pub const CERT_MANAGER_API_VERSION: &str = "cert-manager.io/v1";

/// Suffix of the name of the Certificate and the Secret of a Kyma.
pub const NAME_SUFFIX: &str = "-webhook-tls";

/// Label of these Certificates and Secrets, as in the public lifecycle-manager.
pub const PURPOSE_LABEL: &str = "operator.kyma-project.io/purpose";

/// Value of [`PURPOSE_LABEL`].
pub const PURPOSE: &str = "klm-watcher-cert-manager";

/// Annotation of a Certificate with the namespace of its Kyma.
pub const KYMA_NAMESPACE_ANNOTATION: &str = "rt-bootstrapper.kyma-project.io/kyma-namespace";

/// Name of the watcher's Service on runtimes; the certificate of a runtime also serves its webhook.
const SERVICE: &str = crate::change::CONFIGURATION;

/// Maximum length of a common name, in characters (RFC 5280).
const MAX_COMMON_NAME: usize = 64;

/// Algorithm and size of private keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// ECDSA over P-256.
    #[default]
    EcdsaP256,
    /// RSA with 4096 bits, as in the public lifecycle-manager.
    Rsa4096,
}

impl KeyAlgorithm {
    /// Returns the fields `algorithm` and `size` of `spec.privateKey` of a Certificate.
    #[must_use]
    pub fn fields(self) -> (&'static str, u32) {
        match self {
            Self::EcdsaP256 => ("ECDSA", 256),
            Self::Rsa4096 => ("RSA", 4096),
        }
    }
}

/// Settings of all certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// Namespace of Certificates, Issuers and their Secrets on KCP.
    pub namespace: String,
    /// Issuer that signs with the CA.
    pub issuer: String,
    /// Algorithm of private keys.
    pub algorithm: KeyAlgorithm,
    /// Validity in seconds.
    pub duration: u64,
    /// Seconds before the end of the validity at which a certificate is renewed.
    pub renew_before: u64,
    /// Namespace of the watcher on runtimes.
    pub skr_namespace: String,
}

/// The fields of a Kyma that determine the certificate of its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kyma {
    /// Namespace of the Kyma.
    pub namespace: String,
    /// Name of the Kyma.
    pub name: String,
    /// Label with the runtime ID.
    pub runtime_id: Option<String>,
    /// Annotation with the domain of the runtime.
    pub domain: Option<String>,
}

/// Reason why a runtime gets no certificate.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
pub enum CertificateError {
    /// The runtime ID is not known.
    #[error(
        "label {} missing: the runtime ID is the common name of the certificate",
        api::kcp::RUNTIME_ID
    )]
    RuntimeIDMissing,
    /// The runtime ID cannot be a common name.
    #[error(
        "label {}: at most {MAX_COMMON_NAME} characters expected",
        api::kcp::RUNTIME_ID
    )]
    InvalidRuntimeID,
    /// The domain is not known.
    #[error(
        "annotation {} missing: the domain is a name of the certificate",
        api::kcp::SKR_DOMAIN
    )]
    SKRDomainMissing,
    /// The domain cannot be a DNS name.
    #[error("annotation {}: not a valid DNS name", api::kcp::SKR_DOMAIN)]
    InvalidSKRDomain,
}

impl CertificateError {
    /// Returns the reason for Events: the name of the variant.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}

/// Returns the Certificate of a runtime: the client certificate of its watcher, and the serving certificate of its webhook.
///
/// # Errors
/// [`CertificateError`] if a label or annotation of the Kyma is missing or invalid.
pub fn runtime_certificate(
    kyma: &Kyma,
    settings: &CertificateSettings,
) -> Result<Value, CertificateError> {
    let id = kyma.runtime_id.as_deref().filter(|it| !it.is_empty());
    let id = id.ok_or(CertificateError::RuntimeIDMissing)?;
    if id.len() > MAX_COMMON_NAME {
        return Err(CertificateError::InvalidRuntimeID);
    }
    let domain = kyma.domain.as_deref().filter(|it| !it.is_empty());
    let domain = domain.ok_or(CertificateError::SKRDomainMissing)?;
    if !is_dns_name(domain) {
        return Err(CertificateError::InvalidSKRDomain);
    }
    let name = format!("{}{NAME_SUFFIX}", kyma.name);
    let service = format!("{SERVICE}.{}.svc", settings.skr_namespace);
    let names = [
        domain.to_owned(),
        format!("{service}.cluster.local"),
        service,
    ];
    let mut certificate = certificate(&name, id, &names, settings);
    let annotations = json!({ KYMA_NAMESPACE_ANNOTATION: kyma.namespace });
    certificate["metadata"]["annotations"] = annotations.clone();
    certificate["spec"]["secretTemplate"]["annotations"] = annotations;
    certificate["spec"]["usages"] = json!(["digital signature", "client auth", "server auth"]);
    Ok(certificate)
}

/// Returns the Certificate of the gateway. It is separate from the certificate of the CA, because `rustls` rejects a
/// CA as a server.
///
/// `None` if no host is a DNS name.
#[must_use]
pub fn gateway_certificate(
    name: &str,
    hosts: &[String],
    settings: &CertificateSettings,
) -> Option<Value> {
    let mut names: Vec<String> = hosts.iter().filter(|it| is_dns_name(it)).cloned().collect();
    names.sort_unstable();
    names.dedup();
    let first = names.iter().find(|it| it.len() <= MAX_COMMON_NAME);
    let common_name = first.cloned().unwrap_or_else(|| name.to_owned());
    let mut certificate = certificate(name, &common_name, &names, settings);
    certificate["spec"]["usages"] = json!(["digital signature", "server auth"]);
    (!names.is_empty()).then_some(certificate)
}

fn certificate(
    name: &str,
    common_name: &str,
    names: &[String],
    settings: &CertificateSettings,
) -> Value {
    let (algorithm, size) = settings.algorithm.fields();
    let labels = json!({
        PURPOSE_LABEL: PURPOSE,
        api::watcher::MANAGED_BY_LABEL: api::kcp::CONTROLLER_FIELD_MANAGER,
    });
    json!({
        "apiVersion": CERT_MANAGER_API_VERSION,
        "kind": "Certificate",
        "metadata": { "name": name, "namespace": settings.namespace, "labels": labels },
        "spec": {
            "commonName": common_name,
            "dnsNames": names,
            "duration": format!("{}s", settings.duration),
            "renewBefore": format!("{}s", settings.renew_before),
            "privateKey": { "algorithm": algorithm, "size": size, "rotationPolicy": "Always" },
            "secretName": name,
            "secretTemplate": { "labels": labels },
            "issuerRef": { "name": settings.issuer, "kind": "Issuer", "group": "cert-manager.io" },
        },
    })
}

/// Returns whether a live Certificate is as desired.
#[must_use]
pub fn is_current(desired: &Value, live: &Value) -> bool {
    is_applied(desired, live)
}

/// Time after a failed issuance in which no renewal is requested, which equals the first backoff of cert-manager.
const RENEWAL_BACKOFF: SignedDuration = SignedDuration::from_hours(1);

/// Maximum difference between the clocks of cert-manager and of the controller, in seconds.
const CLOCK_SKEW: i64 = 15 * 60;

/// Returns whether a certificate may have been issued by an earlier CA: its validity starts not later than the time
/// at which the newest CA was added to the bundle, plus the clock skew. The issuer of a certificate is decisive
/// ([`CertificateInfo::is_issued_by`]). The times, in Unix seconds, show which certificates have to be read.
#[must_use]
pub fn may_be_outdated(not_before: Option<i64>, ca_added: i64) -> bool {
    not_before.is_some_and(|it| it <= ca_added.saturating_add(CLOCK_SKEW))
}

/// Returns the conditions of a live Certificate, with the condition that makes cert-manager renew it. `None` if it is
/// being issued already, or if an issuance failed within the last hour: the request would end the backoff of
/// cert-manager.
#[must_use]
pub fn renewal(live: &Value, now: Timestamp) -> Option<Value> {
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    let is_issuing = |it: &Value| it["type"] == "Issuing";
    let mut requests = conditions.iter().filter(|it| is_issuing(it));
    if requests.any(|it| it["status"] == "True") {
        return None;
    }
    let failed = live.pointer("/status/lastFailureTime");
    let failed = failed.and_then(|it| it.as_str()?.parse::<Timestamp>().ok());
    if failed.is_some_and(|it| now.duration_since(it) < RENEWAL_BACKOFF) {
        return None;
    }
    let mut after: Vec<Value> = conditions
        .iter()
        .filter(|it| !is_issuing(it))
        .cloned()
        .collect();
    after.push(json!({
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "The CA was rotated",
        "lastTransitionTime": now.strftime("%FT%TZ").to_string(),
        "observedGeneration": live["metadata"]["generation"],
    }));
    Some(Value::Array(after))
}

/// Returns whether a text is a DNS name without a wildcard. In contrast to the name of an object, each part is limited.
fn is_dns_name(text: &str) -> bool {
    is_subdomain(text) && text.split('.').all(is_label)
}
