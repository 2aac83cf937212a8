//! Which certificates hold, and when.

use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, date_time_ymd};
use rstest::rstest;

use super::*;
use crate::fixture::{Authority, Leaf, today};

fn read(leaf: &Leaf) -> ClientCertificate {
    ClientCertificate::read(leaf.der.clone()).unwrap()
}

fn holds(change: fn(&mut CertificateParams)) -> bool {
    let authority = Authority::new();
    let leaf = authority.leaf(change);
    authority
        .authorities()
        .verify(&read(&leaf), today())
        .is_ok()
}

#[rstest]
#[case::as_cert_manager_issues_it(|_: &mut CertificateParams| {}, true)]
#[case::without_extended_usage(|params: &mut CertificateParams| params.extended_key_usages.clear(), true)]
#[case::without_any_usage(|params: &mut CertificateParams| {
    params.extended_key_usages.clear();
    params.key_usages.clear();
}, true)]
#[case::for_servers_only(
    |params: &mut CertificateParams| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
    false
)]
#[case::for_encryption_only(
    |params: &mut CertificateParams| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment],
    false
)]
#[case::expired(|params: &mut CertificateParams| params.not_after = date_time_ymd(2027, 1, 14), false)]
#[case::of_the_future(|params: &mut CertificateParams| params.not_before = date_time_ymd(2027, 1, 16), false)]
#[case::an_authority(
    |params: &mut CertificateParams| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained),
    false
)]
fn a_certificate_holds_now_and_for_clients(
    #[case] change: fn(&mut CertificateParams),
    #[case] expected: bool,
) {
    assert_eq!(holds(change), expected);
}

#[test]
fn the_dates_are_those_of_the_leaf() {
    let authority = Authority::new();
    let leaf = authority.leaf(|params| params.not_after = date_time_ymd(2040, 1, 1));
    let in_three_years = today() + Duration::from_hours(3 * 365 * 24);
    // A trust anchor is believed whatever its dates; the leaf's decide.
    let authorities = authority.authorities();
    assert!(authorities.verify(&read(&leaf), in_three_years).is_ok());
    assert!(
        authorities
            .verify(&read(&leaf), SystemTime::UNIX_EPOCH)
            .is_err()
    );
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert!(authorities.verify(&read(&leaf), before_1970).is_err());
}

/// Runtime-watcher §12 row 46: during a rotation both authorities are believed, afterwards the new one alone.
#[test]
fn a_rotation_goes_over_both() {
    let (old, new) = (Authority::new(), Authority::new());
    let both = format!("{}{}", old.certificate.pem, new.certificate.pem);
    let leaves = [old.leaf(|_| {}), new.leaf(|_| {})];
    let authorities = old.authorities();
    let held = |authorities: &Authorities| {
        [0, 1].map(|at| authorities.verify(&read(&leaves[at]), today()).is_ok())
    };
    assert_eq!(held(&authorities), [true, false]);
    authorities.clone().replace(both.as_bytes()).unwrap();
    assert_eq!(held(&authorities), [true, true]);
    authorities.replace(new.certificate.pem.as_bytes()).unwrap();
    assert_eq!(held(&authorities), [false, true]);
}

#[rstest]
#[case::nothing("")]
#[case::no_pem("-----BEGIN CERTIFICATE-----\nabc")]
#[case::no_certificate("-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n")]
fn a_bundle_of_no_use_changes_nothing(#[case] bundle: &str) {
    let authority = Authority::new();
    let authorities = authority.authorities();
    assert!(authorities.replace(bundle.as_bytes()).is_err());
    let leaf = authority.leaf(|_| {});
    assert!(authorities.verify(&read(&leaf), today()).is_ok());
}

/// A certificate that nobody would sign: one that was signed, with one bit changed.
#[test]
fn no_bit_of_a_certificate_can_be_changed() {
    let authority = Authority::new();
    let (leaf, authorities) = (authority.leaf(|_| {}), authority.authorities());
    for at in 0..leaf.der.len() {
        let mut der = leaf.der.to_vec();
        der[at] ^= 1 << (at % 8);
        if let Ok(client) = ClientCertificate::read(der.into()) {
            assert!(authorities.verify(&client, today()).is_err(), "byte {at}");
        }
    }
}
