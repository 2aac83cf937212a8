//! Which certificates hold, and when.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rstest::rstest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::ClientCertVerified;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use testkit::pki::rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    date_time_ymd,
};

use super::*;
use testkit::pki::{Authority, Leaf, today};

use crate::fixture::{authorities, ca, watcher, watcher_with};
use crate::forwarded::TrustedHops;

fn read(leaf: &Leaf) -> ClientCertificate {
    ClientCertificate::read(leaf.der.clone()).unwrap()
}

/// A header that says so.
fn print(text: &str) -> Print {
    Print::of(text, &TrustedHops::None)
}

fn believes(authorities: &Authorities, client: ClientCertificate, now: SystemTime) -> bool {
    authorities
        .in_force()
        .verify(print(""), client, now)
        .is_ok()
}

fn holds(change: fn(&mut CertificateParams)) -> bool {
    let authority = ca();
    let leaf = watcher_with(&authority, change);
    believes(&authorities(&authority), read(&leaf), today())
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
    // A trust anchor is believed whatever its dates; the leaf's decide.
    let authorities = authorities(&authority);
    assert!(believes(&authorities, read(&leaf), in_three_years));
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    for now in [SystemTime::UNIX_EPOCH, before_1970] {
        assert!(!believes(&authorities, read(&leaf), now));
    }
}

/// Counts what it is asked.
#[derive(Debug)]
struct Counted(Arc<dyn ClientCertVerifier>, AtomicU32);

impl ClientCertVerifier for Counted {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verify_client_cert(leaf, between, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[test]
fn who_has_passed_is_known_by_the_header_as_long_as_the_dates_hold() {
    let (authority, stranger) = (ca(), ca());
    let counted = chain_verifier(authority.pem().as_bytes()).unwrap();
    let counted = Arc::new(Counted(counted, AtomicU32::new(0)));
    let force = Force::new(Arc::clone(&counted) as _);
    let day = |date| SystemTime::UNIX_EPOCH + Duration::from_secs(date);
    let asked = || counted.1.swap(0, Ordering::Relaxed);

    let leaf = watcher(&authority);
    let (begin, end) = read(&leaf).dates().into_inner();
    let [begin, end] = [begin, end].map(|it| u64::try_from(it).unwrap());
    assert!(force.known(&print("a"), day(begin)).is_none());
    assert!(force.verify(print("a"), read(&leaf), day(begin)).is_ok());
    for now in [begin, end] {
        assert!(force.known(&print("a"), day(now)).is_some(), "{now}");
    }
    for now in [begin - 1, end + 1] {
        assert!(force.known(&print("a"), day(now)).is_none(), "{now}");
        assert!(force.verify(print("a"), read(&leaf), day(now)).is_err());
    }
    assert!(force.known(&print("b"), day(begin)).is_none());
    assert_eq!(asked(), 3);

    let strange = read(&watcher(&stranger));
    assert!(force.verify(print("b"), strange, day(begin)).is_err());
    assert!(force.known(&print("b"), day(begin)).is_none());
}

/// During a rotation both authorities are believed, afterwards the new one alone.
#[test]
fn a_rotation_goes_over_both() {
    let (old, new) = (ca(), ca());
    let both = format!("{}{}", old.pem(), new.pem());
    let leaves = [watcher(&old), watcher(&new)];
    let authorities = authorities(&old);
    let held = |authorities: &Authorities| {
        [0, 1].map(|at| believes(authorities, read(&leaves[at]), today()))
    };
    assert_eq!(held(&authorities), [true, false]);
    authorities.clone().replace(both.as_bytes()).unwrap();
    assert_eq!(held(&authorities), [true, true]);
    authorities.replace(new.pem().as_bytes()).unwrap();
    assert_eq!(held(&authorities), [false, true]);
}

#[rstest]
#[case::nothing("")]
#[case::no_pem("-----BEGIN CERTIFICATE-----\nabc")]
#[case::no_certificate("-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n")]
fn a_bundle_of_no_use_changes_nothing(#[case] bundle: &str) {
    let authority = ca();
    let authorities = authorities(&authority);
    assert!(authorities.replace(bundle.as_bytes()).is_err());
    let leaf = watcher(&authority);
    assert!(believes(&authorities, read(&leaf), today()));
}

/// A certificate that nobody would sign: one that was signed, with one bit changed.
#[test]
fn no_bit_of_a_certificate_can_be_changed() {
    let authority = ca();
    let (leaf, authorities) = (watcher(&authority), authorities(&authority));
    assert!(believes(&authorities, read(&leaf), today()));
    for at in 0..leaf.der.len() {
        let mut der = leaf.der.to_vec();
        der[at] ^= 1 << (at % 8);
        if let Ok(client) = ClientCertificate::read(der.into()) {
            assert!(!believes(&authorities, client, today()), "byte {at}");
        }
    }
}
