//! Tests of the fields that are read from certificates.

mod anchors;

use rstest::rstest;
use testkit::pki::rcgen::{CertificateParams, DnType, KeyUsagePurpose, SanType};

use super::*;
use crate::fixture::{DOMAIN, RUNTIME, ca, watcher, watcher_with};

fn read(change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
    ClientCertificate::read(watcher_with(&ca(), change).der).unwrap()
}

#[test]
fn common_name_and_alternative_names_are_read() {
    let client = read(|_| {});
    assert_eq!(client.common_name(), Some(RUNTIME));
    assert_eq!(client.alternative_names(), [DOMAIN]);
    assert!(client.may_sign);
}

#[test]
fn alternative_names_are_text_sorted_by_kind() {
    let client = read(|params| {
        params.subject_alt_names = vec![
            SanType::IpAddress([10, 0, 0, 1].into()),
            SanType::DnsName("b.example".try_into().unwrap()),
            SanType::Rfc822Name("mail@a.example".try_into().unwrap()),
            SanType::URI("spiffe://a/b".try_into().unwrap()),
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::IpAddress("fd00::1".parse().unwrap()),
        ];
    });
    let expected = [
        "b.example",
        "a.example",
        "spiffe://a/b",
        "10.0.0.1",
        "fd00::1",
    ];
    assert_eq!(client.alternative_names(), expected);
    assert_eq!(client.dns_names(), &expected[..2]);
    for name in expected {
        assert!(client.is_named(name), "{name}");
    }
}

/// A CA of the mesh may sign a name of one kind for a workload to which it would not sign the same text as another kind.
#[test]
fn a_name_counts_as_its_own_kind_only() {
    let client = read(|params| {
        params.subject_alt_names = vec![
            SanType::DnsName("10.0.0.1".try_into().unwrap()),
            SanType::DnsName("spiffe://a/b".try_into().unwrap()),
            SanType::URI(DOMAIN.try_into().unwrap()),
        ];
    });
    for name in ["10.0.0.1", "spiffe://a/b", DOMAIN] {
        assert!(!client.is_named(name), "{name}");
    }
}

/// An empty common name counts as missing. With two common names the result would depend on the reader.
#[rstest]
#[case::no_name(|params: &mut CertificateParams| { params.distinguished_name.remove(DnType::CommonName); })]
#[case::an_empty_name(|params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, ""))]
#[case::two_names(|params: &mut CertificateParams| {
    let again = DnType::from_oid(&[2, 5, 4, 3, 0][..4]);
    assert_eq!(again, DnType::CommonName);
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "another");
})]
fn without_exactly_one_common_name_there_is_none(#[case] change: fn(&mut CertificateParams)) {
    assert_eq!(read(change).common_name(), None);
}

#[rstest]
#[case::not_given(vec![], true)]
#[case::given(vec![KeyUsagePurpose::DigitalSignature], true)]
#[case::given_without(vec![KeyUsagePurpose::KeyEncipherment], false)]
fn a_key_may_sign_unless_its_usage_says_otherwise(
    #[case] usages: Vec<KeyUsagePurpose>,
    #[case] expected: bool,
) {
    assert_eq!(read(|params| params.key_usages = usages).may_sign, expected);
}

#[rstest]
#[case::nothing(|_| Vec::new())]
#[case::cut_off(|mut der: Vec<u8>| { der.pop(); der })]
#[case::bytes_behind(|mut der: Vec<u8>| { der.push(0); der })]
fn other_bytes_are_no_certificate(#[case] change: fn(Vec<u8>) -> Vec<u8>) {
    let der = change(watcher(&ca()).der.to_vec());
    let read = ClientCertificate::read(der.into());
    assert!(matches!(read, Err(CertificateError::Malformed)));
}

#[rstest]
#[case::a_uuid("0b7c9a6e-3c5f-4a63-9b1e-6f7f3d2c1b0a", true)]
#[case::the_public_tests_name("test-cert", true)]
#[case::empty("", false)]
#[case::a_line_break("a\nb", false)]
#[case::endless(&"a".repeat(129), false)]
fn runtime_ids_are_short_lines(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(RuntimeId::parse(text).is_some(), expected);
}
