//! Pairs, Secrets and entries for the tests beside it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{
    Bundle, CertificateSettings, Keys, LiveEntry, Material, Order, Sighting, StoredSecret,
    TLS_TYPE, issue,
};

pub(super) const DAY: Duration = Duration::from_hours(24);

/// The instant at which the pairs of the tests are made: now, so that real handshakes take them.
pub(super) fn epoch() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

pub(super) fn after(start: Timestamp, days: u32) -> Timestamp {
    start + DAY * days
}

pub(super) fn settings() -> CertificateSettings {
    CertificateSettings::default()
}

/// A pair of ours.
pub(super) fn material(now: Timestamp) -> Material {
    successor(now, Bundle::default())
}

/// A pair of ours that carries earlier CAs.
pub(super) fn successor(now: Timestamp, carried: Bundle) -> Material {
    pair_for(now, carried, &settings().dns_names)
}

pub(super) fn pair_for(now: Timestamp, carried: Bundle, dns_names: &[String]) -> Material {
    let order = Order {
        dns_names,
        now,
        lifetime: DAY * 90,
        carried,
    };
    issue(&order, Keys::generate().unwrap()).unwrap()
}

pub(super) fn secret_of(material: Material) -> StoredSecret {
    StoredSecret {
        uid: Some("uid-1".to_owned()),
        resource_version: Some("7".to_owned()),
        kind: Some(TLS_TYPE.to_owned()),
        immutable: false,
        material,
    }
}

pub(super) fn entry_with(ca_bundle: impl Into<Vec<u8>>) -> LiveEntry {
    LiveEntry {
        resource_version: Some("41".to_owned()),
        index: 0,
        ca_bundle: ca_bundle.into(),
    }
}

pub(super) fn present<T>(seen: T) -> Sighting<T> {
    Sighting::Present(Arc::new(seen))
}
