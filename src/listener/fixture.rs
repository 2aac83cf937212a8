//! Test fixtures: the certificate of a watcher and the header that a gateway writes for it; and, in `running`, a listener.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use testkit::pki::rcgen::{CertificateParams, SanType};
use testkit::pki::{Authority, Leaf, today};

pub(crate) use self::running::{Running, disabled, forwarded, in_time, options, post, post_to};
use crate::{CertificateCheck, RuntimeIdFromCommonName, TrustAnchors};

mod running;

pub(crate) const RUNTIME: &str = "0b7c9a6e-runtime-1";
pub(crate) const DOMAIN: &str = "one.skr.example";
pub(crate) const GATEWAY: &str = "spiffe://cluster.local/ns/istio-system/sa/gateway";
pub(crate) const EVENT: &str = r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#;

/// Characters that Envoy encodes in a certificate.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

pub(crate) fn ca() -> Authority {
    Authority::new("a test authority").unwrap()
}

/// Returns a certificate of a watcher.
pub(crate) fn watcher(authority: &Authority) -> Leaf {
    watcher_with(authority, |_| {})
}

/// Returns a certificate of a watcher with changed parameters.
pub(crate) fn watcher_with(
    authority: &Authority,
    change: impl FnOnce(&mut CertificateParams),
) -> Leaf {
    let change = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName(DOMAIN.try_into().unwrap())];
        change(params);
    };
    authority.leaf_with(RUNTIME, change).unwrap()
}

pub(crate) fn trust_anchors(authority: &Authority) -> TrustAnchors {
    TrustAnchors::from_pem(authority.pem().as_bytes()).unwrap()
}

/// Returns a check that accepts certificates of `authority`, at the time [`today`].
pub(crate) fn check(authority: &Authority) -> CertificateCheck {
    CertificateCheck {
        clock: today,
        ..CertificateCheck::new(trust_anchors(authority), RuntimeIdFromCommonName)
    }
}

/// Returns the header element that a gateway writes for this client.
pub(crate) fn element(leaf: &Leaf) -> String {
    format!(
        r#"Hash={};Cert="{}";Subject="CN={RUNTIME},O=Kyma";URI=;DNS={DOMAIN}"#,
        hash(leaf),
        url_encode(&leaf.pem)
    )
}

/// Returns the header line that a gateway writes for a watcher.
pub(crate) fn watcher_header(authority: &Authority) -> String {
    forwarded(&element(&watcher(authority)))
}

/// Returns the SHA-256 of a certificate in hexadecimal digits.
pub(crate) fn hash(leaf: &Leaf) -> String {
    let digest = Sha256::digest(&leaf.der);
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Returns the text URL-encoded, as Envoy encodes it.
pub(crate) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}
