//! Tests of the cache of verified clients.

use http::HeaderValue;

mod verifiers;

use super::*;
use testkit::pki::today;

use crate::fixture::{GATEWAY, ca, check, element, hash, url_encode, watcher};
use crate::xfcc::XFCC_HEADER;

/// Time after the end of the validity of all certificates in these tests.
const LATER: Duration = Duration::from_hours(80 * 365 * 24);

fn accepts(check: &CertificateCheck, header: &str) -> bool {
    let value = HeaderValue::from_bytes(header.as_bytes()).unwrap();
    check
        .client(&HeaderMap::from_iter([(XFCC_HEADER, value)]))
        .is_ok()
}

#[test]
fn a_certificate_that_was_believed_is_verified_once_whatever_the_header() {
    let authority = ca();
    let (check, leaf) = (check(&authority), watcher(&authority));
    let encoded = url_encode(&leaf.pem);
    let headers = [element(&leaf), element(&leaf), format!("Cert={encoded}")];
    let [first, second, other_header] = headers.map(|header| {
        let value = HeaderValue::from_str(&header).unwrap();
        let headers = HeaderMap::from_iter([(XFCC_HEADER, value)]);
        check.client(&headers).unwrap()
    });
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &other_header));
    assert_eq!(first.der(), &leaf.der);
}

#[test]
fn another_header_with_a_certificate_that_was_believed_is_read_again() {
    let authority = ca();
    let (check, leaf) = (check(&authority), watcher(&authority));
    assert!(accepts(&check, &element(&leaf)));
    let (hash, encoded) = (hash(&leaf), url_encode(&leaf.pem));
    assert!(!accepts(
        &check,
        &format!("Hash={};Cert={encoded}", "0".repeat(64))
    ));
    assert!(!accepts(
        &check,
        &format!("Hash={hash};Cert={encoded};Cert={encoded}")
    ));
    assert!(!accepts(&check, &format!("{0},{0}", element(&leaf))));
}

/// Two listeners of one operator share CAs, and one of them is behind a sidecar.
#[test]
fn what_one_way_of_reading_believes_another_does_not() {
    let authority = ca();
    let (plain, leaf) = (check(&authority), watcher(&authority));
    let gateway = GATEWAY.to_owned();
    let behind = |gateway| CertificateCheck {
        trusted_hops: TrustedHops::One { gateway },
        ..plain.clone()
    };
    let one = element(&leaf);
    let two = format!("{one},By=a;URI={GATEWAY}");
    for _ in 0..2 {
        assert!(accepts(&behind(gateway.clone()), &two) && !accepts(&plain, &two));
        assert!(accepts(&plain, &one) && !accepts(&behind(gateway.clone()), &one));
        assert!(!accepts(&behind("spiffe://other".to_owned()), &two));
    }
}

#[test]
fn no_certificate_is_accepted_after_its_dates_or_its_authority() {
    let (authority, next) = (ca(), ca());
    let (check, header) = (check(&authority), element(&watcher(&authority)));
    let later = CertificateCheck {
        clock: || today() + LATER,
        ..check.clone()
    };
    assert!(accepts(&check, &header) && !accepts(&later, &header));
    assert!(accepts(&check, &header));
    let bundle = next.pem().as_bytes();
    check.trust_anchors.replace(bundle).unwrap();
    assert!(!accepts(&check, &header));
}
