use rstest::rstest;
use testkit::pki::{Authority, Leaf};

use super::*;

fn leaf() -> Leaf {
    Authority::new("one").unwrap().leaf("localhost").unwrap()
}

fn read(leaf: &Leaf, key: &str) -> Result<CertificatePair, PairError> {
    CertificatePair::from_pem(leaf.pem.as_bytes(), key.as_bytes())
}

#[test]
fn both_dates_are_part_of_the_time_of_a_certificate() {
    let leaf = leaf();
    let Validity {
        not_before,
        not_after,
    } = read(&leaf, &leaf.key_pem()).unwrap().validity();
    let check = |now| {
        Validity {
            not_before,
            not_after,
        }
        .check(now)
    };
    let second = Duration::from_secs(1);
    assert!(check(not_before).is_ok());
    assert!(check(not_after + second / 2).is_ok());
    assert!(matches!(check(not_after + second), Err(PairError::Expired)));
    assert!(matches!(
        check(not_before - second),
        Err(PairError::NotYetValid)
    ));
}

#[test]
fn a_pair_has_its_chain_its_names_and_the_key_of_its_leaf() {
    let (leaf, other) = (leaf(), leaf());
    let pair = read(&leaf, &leaf.key_pem()).unwrap();
    assert_eq!(pair.chain(), std::slice::from_ref(&leaf.der));
    assert!(pair.covers(&["localhost".to_owned()]));
    assert!(!pair.covers(&["localhost".to_owned(), "other".to_owned()]));
    let mismatch = read(&leaf, &other.key_pem()).err().unwrap();
    assert!(mismatch.is_of_key() && matches!(mismatch, PairError::KeyMismatch));
}

#[test]
fn a_chain_keeps_its_order() {
    let (leaf, issuer) = (leaf(), leaf());
    let chain = format!("{}{}", leaf.pem, issuer.pem);
    let pair = CertificatePair::from_pem(chain.as_bytes(), leaf.key_pem().as_bytes()).unwrap();
    assert_eq!(pair.chain(), [leaf.der, issuer.der]);
}

/// Returns well-formed PEM whose content is neither a certificate nor a key.
fn hollow(label: &str) -> String {
    format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")
}

#[rstest]
#[case::empty_cert(String::new(), leaf().key_pem(), "NoCertificate")]
#[case::text_for_cert("not a certificate".to_owned(), leaf().key_pem(), "NoCertificate")]
#[case::cert_without_end("-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(), leaf().key_pem(), "Pem")]
#[case::hollow_cert(hollow("CERTIFICATE"), leaf().key_pem(), "Malformed")]
#[case::empty_key(leaf().pem, String::new(), "NoKey")]
#[case::key_without_end(leaf().pem, "-----BEGIN PRIVATE KEY-----\nAAAA\n".to_owned(), "KeyPem")]
#[case::hollow_key(leaf().pem, hollow("PRIVATE KEY"), "NoKey")]
#[case::swapped(leaf().key_pem(), leaf().pem, "NoCertificate")]
#[case::key_of_another(leaf().pem, leaf().key_pem(), "KeyMismatch")]
fn bad_material_is_named(#[case] cert: String, #[case] key: String, #[case] variant: &str) {
    let pair = CertificatePair::from_pem(cert.as_bytes(), key.as_bytes());
    let error = pair.err().unwrap();
    let debug = format!("{error:?}");
    assert!(debug.starts_with(variant), "{debug}");
    let inner = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        inner.is_none_or(|inner| !error.to_string().contains(&inner)),
        "{error} repeats its source"
    );
}
