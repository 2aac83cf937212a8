//! What is remembered of a client, and what is not.

use http::HeaderValue;

use super::*;
use crate::fixture::{Authority, GATEWAY, today};
use crate::forwarded::XFCC_HEADER;

const LATER: Duration = Duration::from_hours(2 * 365 * 24);

fn accepts(check: &CertificateCheck, header: &str) -> bool {
    let value = HeaderValue::from_bytes(header.as_bytes()).unwrap();
    check
        .client(&HeaderMap::from_iter([(XFCC_HEADER, value)]))
        .is_ok()
}

#[test]
fn a_header_that_was_believed_is_read_once() {
    let authority = Authority::new();
    let (check, leaf) = (authority.check(), authority.leaf(|_| {}));
    let value = HeaderValue::from_str(&leaf.element()).unwrap();
    let headers = HeaderMap::from_iter([(XFCC_HEADER, value)]);
    let [first, second] = [0, 1].map(|_| check.client(&headers).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.der(), &leaf.der);
}

#[test]
fn another_header_with_a_certificate_that_was_believed_is_read_again() {
    let authority = Authority::new();
    let (check, leaf) = (authority.check(), authority.leaf(|_| {}));
    assert!(accepts(&check, &leaf.element()));
    let (hash, encoded) = (leaf.hash(), leaf.encoded());
    assert!(!accepts(
        &check,
        &format!("Hash={};Cert={encoded}", "0".repeat(64))
    ));
    assert!(!accepts(
        &check,
        &format!("Hash={hash};Cert={encoded};Cert={encoded}")
    ));
    assert!(!accepts(&check, &format!("{0},{0}", leaf.element())));
}

/// Two listeners of one operator share authorities, and one of them is behind a sidecar.
#[test]
fn what_one_way_of_reading_believes_another_does_not() {
    let authority = Authority::new();
    let (plain, leaf) = (authority.check(), authority.leaf(|_| {}));
    let gateway = GATEWAY.to_owned();
    let behind = |gateway| CertificateCheck {
        trusted_hops: TrustedHops::One { gateway },
        ..plain.clone()
    };
    let one = leaf.element();
    let two = format!("{one},By=a;URI={GATEWAY}");
    for _ in 0..2 {
        assert!(accepts(&behind(gateway.clone()), &two) && !accepts(&plain, &two));
        assert!(accepts(&plain, &one) && !accepts(&behind(gateway.clone()), &one));
        assert!(!accepts(&behind("spiffe://other".to_owned()), &two));
    }
}

#[test]
fn nobody_is_believed_after_the_dates_or_the_authority_are_gone() {
    let (authority, next) = (Authority::new(), Authority::new());
    let (check, header) = (authority.check(), authority.leaf(|_| {}).element());
    let later = CertificateCheck {
        clock: || today() + LATER,
        ..check.clone()
    };
    assert!(accepts(&check, &header) && !accepts(&later, &header));
    assert!(accepts(&check, &header));
    let bundle = next.certificate.pem.as_bytes();
    check.authorities.replace(bundle).unwrap();
    assert!(!accepts(&check, &header));
}
