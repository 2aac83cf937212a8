//! A header has one interpretation or none, and a certificate that is found in it is also found in its normalized notation.

use http::{HeaderMap, HeaderValue};
use rustls_pki_types::CertificateDer;

use crate::xfcc::{
    Element, TrustedHops, XFCC_BYTES, XFCC_HEADER, client_certificate, only_value, parse,
};

/// Keys of Envoy, and an unknown key.
const KEYS: [&str; 7] = ["By", "Hash", "Cert", "Subject", "URI", "DNS", "x"];

const GATEWAY: &str = "spiffe://gateway";

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(elements) = parse(text) else { return };
    let written: Vec<_> = elements.iter().map(write).collect();
    let again = written.join(",");
    let Ok(again) = parse(&again) else {
        unreachable!("{text} is read, {again} is not");
    };
    assert_eq!(again.len(), elements.len());
    for (one, other) in elements.iter().zip(&again) {
        for key in KEYS {
            let (one, other) = (one.values(key), other.values(key));
            assert_eq!(one.collect::<Vec<_>>(), other.collect::<Vec<_>>());
        }
    }
    if let Some(certificate) = found(text, &TrustedHops::None) {
        let behind_a_sidecar = format!("{},URI={GATEWAY}", written.concat());
        let gateway = TrustedHops::One {
            gateway: GATEWAY.to_owned(),
        };
        if behind_a_sidecar.len() <= XFCC_BYTES {
            assert_eq!(found(&behind_a_sidecar, &gateway), Some(certificate));
        }
    }
}

/// Returns the known pairs of an element, with each value in quotes.
fn write(element: &Element<'_>) -> String {
    let pairs = KEYS.into_iter().flat_map(|key| {
        element.values(key).map(move |value| {
            let value = value.replace('\\', r"\\").replace('"', r#"\""#);
            format!(r#"{key}="{value}""#)
        })
    });
    let pairs: Vec<_> = pairs.collect();
    match pairs.as_slice() {
        [] => "other=".to_owned(),
        pairs => pairs.join(";"),
    }
}

fn found(header: &str, hops: &TrustedHops) -> Option<CertificateDer<'static>> {
    let mut headers = HeaderMap::new();
    headers.insert(XFCC_HEADER, HeaderValue::from_str(header).ok()?);
    client_certificate(only_value(&headers).ok()?, hops).ok()
}
