//! Tests of the validity of certificates.

use std::time::Duration;

use rstest::rstest;
use testkit::pki::rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    date_time_ymd,
};

use super::super::*;
use testkit::pki::{Authority, Leaf, today};

use crate::fixture::{ca, trust_anchors, watcher, watcher_with};

fn read(leaf: &Leaf) -> ClientCertificate {
    ClientCertificate::read(leaf.der.clone()).unwrap()
}

fn believes(anchors: &TrustAnchors, leaf: &Leaf, now: SystemTime) -> bool {
    anchors.bundle().client(leaf.der.clone(), now).is_ok()
}

fn holds(change: fn(&mut CertificateParams)) -> bool {
    let authority = ca();
    let leaf = watcher_with(&authority, change);
    believes(&trust_anchors(&authority), &leaf, today())
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
    |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
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
    let until_2028 = |params: &mut CertificateParams| params.not_after = date_time_ymd(2028, 1, 1);
    let authority = Authority::with("one", until_2028).unwrap();
    let leaf = watcher_with(&authority, |params| {
        params.not_after = date_time_ymd(2040, 1, 1);
    });
    let in_three_years = today() + Duration::from_hours(3 * 365 * 24);
    // The validity of a trust anchor is ignored; the validity of the leaf is decisive.
    let anchors = trust_anchors(&authority);
    assert!(believes(&anchors, &leaf, in_three_years));
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    for now in [SystemTime::UNIX_EPOCH, before_1970] {
        assert!(!believes(&anchors, &leaf, now));
    }
}

#[test]
fn a_verified_client_is_known_by_its_certificate_while_its_dates_hold() {
    let (authority, unknown) = (ca(), ca());
    let bundle = TrustBundle::from_pem(authority.pem().as_bytes()).unwrap();
    let day = |date| SystemTime::UNIX_EPOCH + Duration::from_secs(date);
    let client = |leaf: &Leaf, now| bundle.client(leaf.der.clone(), day(now));

    let leaf = watcher(&authority);
    let (begin, end) = read(&leaf).dates;
    let [begin, end] = [begin, end].map(|it| u64::try_from(it).unwrap());
    let first = client(&leaf, begin).unwrap();
    for now in [begin, end] {
        assert!(Arc::ptr_eq(&client(&leaf, now).unwrap(), &first), "{now}");
    }
    for now in [begin - 1, end + 1] {
        assert!(client(&leaf, now).is_err(), "{now}");
    }
    let other = client(&watcher(&authority), begin).unwrap();
    assert!(!Arc::ptr_eq(&other, &first));

    let foreign = watcher(&unknown);
    for _ in 0..2 {
        assert!(client(&foreign, begin).is_err());
    }
    assert_eq!(bundle.cache().clients.len(), 2);
}

/// During a rotation both CAs are trusted, afterwards only the new CA.
#[test]
fn a_rotation_overlaps() {
    let (old, new) = (ca(), ca());
    let both = format!("{}{}", old.pem(), new.pem());
    let leaves = [watcher(&old), watcher(&new)];
    let anchors = trust_anchors(&old);
    let held = |anchors: &TrustAnchors| [0, 1].map(|at| believes(anchors, &leaves[at], today()));
    assert_eq!(held(&anchors), [true, false]);
    anchors.clone().replace(both.as_bytes()).unwrap();
    assert_eq!(held(&anchors), [true, true]);
    anchors.replace(new.pem().as_bytes()).unwrap();
    assert_eq!(held(&anchors), [false, true]);
}

/// Operators read the file of a mounted Secret repeatedly.
#[test]
fn the_same_bundle_again_keeps_the_clients_that_were_verified() {
    let (old, new) = (ca(), ca());
    let anchors = trust_anchors(&old);
    assert!(believes(&anchors, &watcher(&old), today()));
    let cached = || anchors.bundle().cache().clients.len();
    anchors.replace(old.pem().as_bytes()).unwrap();
    assert_eq!(cached(), 1);
    anchors.replace(new.pem().as_bytes()).unwrap();
    assert_eq!(cached(), 0);
}

#[rstest]
#[case::nothing("")]
#[case::no_pem("-----BEGIN CERTIFICATE-----\nabc")]
#[case::no_certificate("-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n")]
fn a_bundle_of_no_use_changes_nothing(#[case] bundle: &str) {
    let authority = ca();
    let anchors = trust_anchors(&authority);
    assert!(anchors.replace(bundle.as_bytes()).is_err());
    let leaf = watcher(&authority);
    assert!(believes(&anchors, &leaf, today()));
}

/// The signature of the certificate is invalid, because one bit was changed after the signing.
#[test]
fn no_bit_of_a_certificate_can_be_changed() {
    let authority = ca();
    let (leaf, anchors) = (watcher(&authority), trust_anchors(&authority));
    assert!(believes(&anchors, &leaf, today()));
    for at in 0..leaf.der.len() {
        let mut der = leaf.der.to_vec();
        der[at] ^= 1 << (at % 8);
        let changed = anchors.bundle().client(der.into(), today());
        assert!(changed.is_err(), "byte {at}");
    }
}

/// A new client in a full cache evicts exactly one other client.
#[test]
fn a_full_cache_replaces_one_client_at_a_time() {
    let client = Arc::new(read(&watcher(&ca())));
    let mut cache = VerificationCache::default();
    let of = |number: usize| -> Fingerprint { Sha256::digest(number.to_le_bytes()).into() };
    for number in (0..CACHED_CLIENTS).chain(0..10) {
        cache.insert(of(number), Arc::clone(&client));
    }
    let held = |cache: &VerificationCache| {
        assert_eq!(cache.clients.len(), cache.fingerprints.len());
        let held = (0..CACHED_CLIENTS).filter(|it| cache.clients.contains_key(&of(*it)));
        held.count()
    };
    assert_eq!(held(&cache), CACHED_CLIENTS);
    for number in 0..100 {
        let fingerprint = of(CACHED_CLIENTS + number);
        cache.insert(fingerprint, Arc::clone(&client));
        assert!(cache.clients.contains_key(&fingerprint));
        assert_eq!(cache.clients.len(), CACHED_CLIENTS);
        assert!(held(&cache) >= CACHED_CLIENTS - 1 - number);
    }
}
