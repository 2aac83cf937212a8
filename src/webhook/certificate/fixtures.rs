//! Certificates, Secrets and webhook entries for tests.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    Bundle, CertificateSettings, LiveEntry, Material, Observed, StoredCertificate, TLS_TYPE, issue,
};

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Time at which the pairs of the tests are created: now, so that real handshakes accept the pairs.
pub(crate) fn epoch() -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UNIX_EPOCH + Duration::from_secs(now.as_secs())
}

pub(crate) fn after(start: SystemTime, days: u32) -> SystemTime {
    start + DAY * days
}

pub(crate) fn settings() -> CertificateSettings {
    CertificateSettings::new("kyma-system", api::names::WEBHOOK_CONFIGURATION)
}

/// Returns a pair of this issuer.
pub(crate) fn material(now: SystemTime) -> Material {
    successor(now, &Bundle::default())
}

/// Returns a pair of this issuer that carries earlier CAs.
pub(crate) fn successor(now: SystemTime, carried: &Bundle) -> Material {
    pair_for(now, carried, &settings().dns_names)
}

pub(crate) fn pair_for(now: SystemTime, carried: &Bundle, dns_names: &[String]) -> Material {
    issue(dns_names, now, carried).unwrap()
}

pub(crate) fn secret_of(material: Material) -> StoredCertificate {
    StoredCertificate {
        identity: kube::api::Preconditions {
            uid: Some("uid-1".to_owned()),
            resource_version: Some("7".to_owned()),
        },
        type_: Some(TLS_TYPE.to_owned()),
        immutable: false,
        material,
    }
}

pub(crate) fn entry_with(ca_bundle: impl Into<Vec<u8>>) -> LiveEntry {
    LiveEntry {
        resource_version: "41".to_owned(),
        index: 0,
        ca_bundle: ca_bundle.into(),
    }
}

pub(crate) fn present<T>(seen: T) -> Observed<T> {
    Observed::Present(Arc::new(seen))
}
