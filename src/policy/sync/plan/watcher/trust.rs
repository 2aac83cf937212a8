//! The CAs that the API server of a runtime trusts, and the certificate with which the watcher serves.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::certificates::CertificateInfo;
use crate::sync::diff::is_applied;

/// The certificate with which the watcher serves, from its Secret, if it can be read.
pub(super) fn serving(secret: Option<&Value>) -> Option<CertificateInfo> {
    let text = secret?.pointer("/data/tls.crt")?.as_str()?;
    CertificateInfo::first(&STANDARD.decode(text).ok()?).ok()
}

/// Returns the CAs for a watcher that keeps the certificate of its Secret: the first ones that issued it, of the desired
/// CAs, of those that the controller stored beside the certificate, and of those in the live webhook configuration, which
/// another client may have replaced. If none is known to have issued it, the CAs of the Secret.
pub(super) fn serving_bundle<'b>(
    secret: &'b Value,
    live: Option<&'b Value>,
    desired: &'b str,
) -> &'b str {
    let stored = secret.pointer("/data/ca.crt").and_then(Value::as_str);
    let stored = stored.filter(|it| !it.is_empty());
    let entries = live.and_then(|it| it["webhooks"].as_array());
    let entries = entries.into_iter().flatten();
    let lives = entries.filter_map(|it| it["clientConfig"]["caBundle"].as_str());
    let serving = serving(Some(secret));
    let is_trusted = |bundle: &&str| {
        let serving = serving.as_ref();
        serving.and_then(|it| is_issued_by(it, bundle)) == Some(true)
    };
    let mut bundles = [desired].into_iter().chain(stored).chain(lives);
    let trusted = bundles.find(is_trusted);
    trusted.or(stored).unwrap_or(desired)
}

/// Returns whether one of the CAs, as PEM in base64, issued a certificate; `None` if they cannot be read.
fn is_issued_by(certificate: &CertificateInfo, bundle: &str) -> Option<bool> {
    let authorities = CertificateInfo::read_all(&STANDARD.decode(bundle).ok()?).ok()?;
    Some(authorities.iter().any(|it| certificate.is_issued_by(it)))
}

/// Whether an entry is in a live webhook configuration, with the CA of the certificate with which the watcher serves. If that
/// is not known, with at least one of its CAs: a rotation always keeps one.
pub(super) fn is_in_force(
    entry: &Value,
    live: Option<&Value>,
    serving: Option<&CertificateInfo>,
) -> bool {
    let mut wanted = json!({ "webhooks": [entry] });
    if let Some(config) = wanted["webhooks"][0]["clientConfig"].as_object_mut() {
        config.remove("caBundle");
    }
    let is_trusted = |live: &Value| {
        let bundle = live["clientConfig"]["caBundle"].as_str();
        if let Some(is_trusted) = serving.and_then(|it| is_issued_by(it, bundle?)) {
            return is_trusted;
        }
        let [wanted, live] = [entry, live].map(|it| authorities(&it["clientConfig"]["caBundle"]));
        wanted == live || !wanted.is_disjoint(&live)
    };
    let entries = live.and_then(|it| it["webhooks"].as_array());
    let mut entries = entries.into_iter().flatten();
    let is_applied = live.is_some_and(|live| is_applied(&wanted, live));
    is_applied && entries.any(|it| it["name"] == entry["name"] && is_trusted(it))
}

/// Returns the certificates of a `caBundle`. One that is not base64 of PEM counts as one certificate.
fn authorities(bundle: &Value) -> BTreeSet<String> {
    let text = bundle.as_str().unwrap_or_default();
    let pem = STANDARD
        .decode(text)
        .ok()
        .and_then(|it| String::from_utf8(it).ok());
    let pem = pem.unwrap_or_else(|| text.to_owned());
    let certificates = pem.split("-----END CERTIFICATE-----").map(str::trim);
    certificates
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}
