use std::sync::LazyLock;

use proptest::prelude::*;
use rstest::rstest;
use testkit::pki::rcgen::CertificateParams;
use testkit::pki::{Authority, expired};

use super::*;

/// A time at which the certificates of the tests are valid.
const NOW: i64 = 1_800_000_000;
/// The start of the validity of the CAs of the tests: 2020-01-01.
const CA_CREATED: i64 = 1_577_836_800;
const DAY: i64 = 24 * 60 * 60;
const GRACE: i64 = 4 * DAY;

/// Two CAs with one name, as in a rotation by cert-manager.
struct Pki {
    old: Authority,
    new: Authority,
}

fn leaf(authority: &Authority) -> KeyPair {
    leaf_with(authority, |_| ())
}

fn leaf_with(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> KeyPair {
    let leaf = authority.leaf_with("gateway", |it| {
        it.use_authority_key_identifier_extension = true;
        change(it);
    });
    let leaf = leaf.unwrap();
    KeyPair {
        certificate: leaf.pem.into_bytes(),
        key: zeroize::Zeroizing::new(leaf.key.serialize_pem().into_bytes()),
    }
}

impl Pki {
    fn new() -> Self {
        let [old, new] = [(), ()].map(|()| Authority::new("klm-watcher-selfsigned-ca").unwrap());
        Self { old, new }
    }

    /// Returns the bundle in the format of the product.
    fn bundle(authorities: &[&Authority]) -> String {
        let all = authorities.iter();
        all.map(|it| CertificateInfo::first(it.pem().as_bytes()).unwrap().pem())
            .collect()
    }
}

/// Returns the desired Secret for a state.
fn decided(state: GatewayState<'_>) -> Gateway {
    gateway(&state).unwrap()
}

fn state<'a>(ca: &'a Authority, leaf: Option<&'a KeyPair>) -> GatewayState<'a> {
    GatewayState {
        ca: ca.pem().as_bytes(),
        leaf,
        live_bundle: None,
        published: None,
        live_pair: None,
        ca_added: None,
        is_acknowledged: false,
        grace_period: GRACE,
        now: NOW,
    }
}

#[test]
fn a_first_installation_serves_at_once() {
    let pki = Pki::new();
    let leaf = leaf(&pki.old);
    let decided = decided(state(&pki.old, Some(&leaf)));
    assert_eq!(decided.bundle, Pki::bundle(&[&pki.old]));
    assert_eq!(decided.pair, leaf);
    assert_eq!(decided.ca_added, CA_CREATED);
    assert_eq!(
        (decided.waits_until, decided.is_leaf_outdated),
        (None, false)
    );
}

#[test]
fn a_new_ca_is_trusted_before_it_is_used() {
    let pki = Pki::new();
    let [old, new] = [leaf(&pki.old), leaf(&pki.new)];
    let bundle = Pki::bundle(&[&pki.old]);
    // cert-manager has rotated the CA, and has issued a certificate with the new CA.
    let rotated = GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&old),
        ca_added: Some(NOW - 90 * DAY),
        ..state(&pki.new, Some(&new))
    };
    let first = decided(rotated);
    assert_eq!(first.bundle, Pki::bundle(&[&pki.new, &pki.old]));
    assert_eq!(first.pair, old);
    assert_eq!(
        (first.ca_added, first.waits_until),
        (NOW, Some(NOW + GRACE))
    );
    // The next reconciles change nothing until the grace period ends.
    let waiting = GatewayState {
        live_bundle: Some(first.bundle.as_bytes()),
        ca_added: Some(NOW),
        now: NOW + GRACE - 1,
        ..rotated
    };
    let second = decided(waiting);
    assert_eq!(second, first);
    let over = decided(GatewayState {
        now: NOW + GRACE,
        ..waiting
    });
    assert_eq!(over.pair, new);
    assert_eq!(over.waits_until, None);
    let acknowledged = decided(GatewayState {
        is_acknowledged: true,
        ..waiting
    });
    assert_eq!(acknowledged.pair, new);
    // An acknowledgement of the previous bundle does not count for a CA that is added now.
    let unwritten = decided(GatewayState {
        is_acknowledged: true,
        ..rotated
    });
    assert_eq!(unwritten.pair, old);
}

#[test]
fn a_certificate_of_the_earlier_ca_is_used_and_renewed_when_the_new_one_is_trusted() {
    let pki = Pki::new();
    let [old, renewed] = [leaf(&pki.old), leaf(&pki.old)];
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let waiting = GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&old),
        ca_added: Some(NOW),
        ..state(&pki.new, Some(&renewed))
    };
    let first = decided(waiting);
    assert_eq!(
        (first.pair, first.is_leaf_outdated),
        (renewed.clone(), false)
    );
    let over = decided(GatewayState {
        now: NOW + GRACE,
        ..waiting
    });
    assert_eq!((over.pair, over.is_leaf_outdated), (renewed, true));
}

/// A CA that was not trusted yet issued the renewed certificate, and then the CA was rotated again.
#[test]
fn a_certificate_of_a_ca_between_the_live_and_the_newest_is_not_used() {
    let pki = Pki::new();
    let newest = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    let [live, between] = [leaf(&pki.old), leaf(&pki.new)];
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let rotated = GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&live),
        ca_added: Some(NOW - DAY),
        ..state(&newest, Some(&between))
    };
    let first = decided(rotated);
    assert_eq!(first.bundle, Pki::bundle(&[&newest, &pki.new, &pki.old]));
    assert_eq!((&first.pair, first.is_leaf_outdated), (&live, false));
    let trusted = decided(GatewayState {
        live_bundle: Some(first.bundle.as_bytes()),
        ca_added: Some(NOW),
        is_acknowledged: true,
        ..rotated
    });
    assert_eq!(trusted.pair, between);
    assert!(trusted.is_leaf_outdated);
}

#[test]
fn an_expired_ca_leaves_the_bundle() {
    let pki = Pki::new();
    let expired = Authority::with("klm-watcher-selfsigned-ca", expired).unwrap();
    let leaf = leaf(&pki.new);
    let bundle = Pki::bundle(&[&pki.new, &expired, &pki.old]);
    let decided = decided(GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&leaf),
        ca_added: Some(NOW - DAY),
        ..state(&pki.new, Some(&leaf))
    });
    assert_eq!(decided.bundle, Pki::bundle(&[&pki.new, &pki.old]));
    assert_eq!(decided.ca_added, NOW - DAY);
    let error = gateway(&state(&expired, Some(&leaf))).unwrap_err();
    assert_eq!(error, GatewayError::CAExpired);
}

#[rstest]
#[case::garbage(b"garbage")]
#[case::damaged(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
#[case::empty(b"")]
fn a_bundle_that_cannot_be_read_is_replaced(#[case] bundle: &[u8]) {
    let pki = Pki::new();
    let leaf = leaf(&pki.new);
    let decided = decided(GatewayState {
        live_bundle: Some(bundle),
        live_pair: Some(&leaf),
        ca_added: Some(NOW - DAY),
        ..state(&pki.new, Some(&leaf))
    });
    assert_eq!(decided.bundle, Pki::bundle(&[&pki.new]));
    assert_eq!(decided.ca_added, CA_CREATED);
}

/// A client deleted or damaged the Secret while both CAs are trusted, and runtimes have certificates of both.
#[rstest]
#[case::deleted(None)]
#[case::damaged(Some(&b"garbage"[..]))]
#[case::empty(Some(&b""[..]))]
fn a_secret_that_is_lost_during_a_rotation_keeps_the_overlap(#[case] live: Option<&[u8]>) {
    let pki = Pki::new();
    let [old, new] = [leaf(&pki.old), leaf(&pki.new)];
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let lost = GatewayState {
        live_bundle: live,
        published: Some((bundle.as_bytes(), NOW - DAY)),
        ..state(&pki.new, Some(&old))
    };
    let waits = decided(lost);
    assert_eq!(waits.bundle, bundle);
    assert_eq!(waits.pair, old);
    assert_eq!(waits.ca_added, NOW - DAY);
    assert_eq!(waits.waits_until, Some(NOW - DAY + GRACE));
    let over = decided(GatewayState {
        leaf: Some(&new),
        now: NOW + GRACE,
        ..lost
    });
    assert_eq!((over.bundle, over.pair), (bundle, new));
}

/// Another client wrote a certificate into the Secret of cert-manager, or that certificate has expired.
#[rstest]
#[case::unknown(false)]
#[case::expired(true)]
fn an_unusable_certificate_replaces_no_valid_one(#[case] is_expired: bool) {
    let pki = Pki::new();
    let live = leaf(&pki.old);
    let bundle = Pki::bundle(&[&pki.old]);
    let issued = if is_expired {
        leaf_with(&pki.old, expired)
    } else {
        leaf(&pki.new)
    };
    let decided = decided(GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&live),
        ca_added: Some(NOW - 90 * DAY),
        ..state(&pki.old, Some(&issued))
    });
    assert_eq!(decided.pair, live);
    assert_eq!(decided.is_leaf_outdated, !is_expired);
}

/// Another client wrote its certificate into the Secret of the gateway while a new CA is not trusted yet.
#[test]
fn a_live_certificate_of_an_unknown_ca_is_replaced() {
    let pki = Pki::new();
    let other = Authority::new("another").unwrap();
    let (foreign, issued) = (leaf(&other), leaf(&pki.new));
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let decided = decided(GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&foreign),
        ca_added: Some(NOW - DAY),
        ..state(&pki.new, Some(&issued))
    });
    assert_eq!(decided.pair, issued);
}

#[test]
fn a_ca_that_cannot_be_read_changes_nothing() {
    let pki = Pki::new();
    let leaf = leaf(&pki.old);
    let invalid = GatewayState {
        ca: b"garbage",
        ..state(&pki.old, Some(&leaf))
    };
    assert_eq!(gateway(&invalid), Err(GatewayError::CA(X509Error::Empty)));
}

/// The gateway keeps a valid certificate if cert-manager has none.
#[test]
fn a_missing_or_invalid_certificate_leaves_the_live_one() {
    let pki = Pki::new();
    let live = leaf(&pki.old);
    let garbage = KeyPair {
        certificate: b"garbage".to_vec(),
        key: live.key.clone(),
    };
    for leaf in [None, Some(&garbage)] {
        let decided = decided(GatewayState {
            live_pair: Some(&live),
            ..state(&pki.old, leaf)
        });
        assert_eq!(decided.pair, live);
    }
    assert_eq!(
        gateway(&state(&pki.old, None)),
        Err(GatewayError::LeafPending)
    );
    let error = gateway(&state(&pki.old, Some(&garbage))).unwrap_err();
    assert_eq!(error, GatewayError::Leaf(X509Error::Empty));
}

/// An expired certificate fails every handshake. A certificate of a CA that runtimes may not trust yet fails only
/// some handshakes.
#[test]
fn an_expired_certificate_is_replaced_within_the_grace_period() {
    let pki = Pki::new();
    let expired = pki.old.leaf_with("gateway", expired).unwrap();
    let expired = KeyPair {
        certificate: expired.pem.into_bytes(),
        key: zeroize::Zeroizing::new(Vec::new()),
    };
    let new = leaf(&pki.new);
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let decided = decided(GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&expired),
        ca_added: Some(NOW),
        ..state(&pki.new, Some(&new))
    });
    assert_eq!(decided.pair, new);
}

/// The public lifecycle-manager serves with the CA itself. Its bundle and annotation are reused.
#[test]
fn the_ca_as_server_certificate_is_replaced() {
    let pki = Pki::new();
    let leaf = leaf(&pki.old);
    let public = KeyPair {
        certificate: pki.old.pem().as_bytes().to_vec(),
        key: zeroize::Zeroizing::new(Vec::new()),
    };
    let decided = decided(GatewayState {
        live_bundle: Some(pki.old.pem().as_bytes()),
        live_pair: Some(&public),
        ca_added: Some(NOW - 10 * DAY),
        ..state(&pki.old, Some(&leaf))
    });
    assert_eq!(decided.pair, leaf);
    assert_eq!(decided.ca_added, NOW - 10 * DAY);
}

/// After the clock was set back, a grace period does not end early.
#[test]
fn a_time_in_the_future_counts_as_now() {
    let pki = Pki::new();
    let [old, new] = [leaf(&pki.old), leaf(&pki.new)];
    let bundle = Pki::bundle(&[&pki.new, &pki.old]);
    let decided = decided(GatewayState {
        live_bundle: Some(bundle.as_bytes()),
        live_pair: Some(&old),
        ca_added: Some(NOW + 600),
        ..state(&pki.new, Some(&new))
    });
    assert_eq!(decided.ca_added, NOW);
    assert_eq!(decided.pair, old);
}

#[test]
fn a_key_is_not_in_debug_output() {
    let pki = Pki::new();
    let leaf = leaf(&pki.old);
    assert_eq!(format!("{leaf:?}"), "KeyPair");
}

/// What happens between two reconciles.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// cert-manager replaces the CA by a new one.
    RotateCA,
    /// cert-manager issues a certificate of the current CA for the gateway.
    IssueLeaf,
    /// Every reachable runtime reports the bundle.
    Acknowledge,
    /// Time passes.
    Wait(i64),
    /// Another client removes the annotation of the live Secret.
    LoseAnnotation,
    /// Another replica leads, which knows only the live Secret.
    ChangeLeader,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::RotateCA),
        Just(Step::IssueLeaf),
        Just(Step::Acknowledge),
        (1..3 * SHORT_GRACE).prop_map(Step::Wait),
        Just(Step::LoseAnnotation),
        Just(Step::ChangeLeader),
    ]
}

/// A grace period that is shorter than the time between two rotations in some cases, and longer in others.
const SHORT_GRACE: i64 = 60;

/// The CAs of all cases, each with a certificate of the gateway.
static AUTHORITIES: LazyLock<Vec<(Authority, KeyPair)>> = LazyLock::new(|| {
    let authority = |_| Authority::new("klm-watcher-selfsigned-ca").unwrap();
    let pair = |it: Authority| (leaf(&it), it);
    let pairs = (0..=MOST_STEPS).map(authority).map(pair);
    pairs.map(|(leaf, it)| (it, leaf)).collect()
});

const MOST_STEPS: usize = 12;

/// The live Secret, and what the controller remembers of it.
#[derive(Default)]
struct Live {
    secret: Option<(String, KeyPair, Option<i64>)>,
    published: Option<(String, i64)>,
    acknowledged: Option<String>,
}

impl Live {
    fn reconcile(&mut self, ca: &Authority, leaf: &KeyPair, now: i64) -> Gateway {
        let (bundle, pair, added) = match &self.secret {
            Some((bundle, pair, added)) => (Some(bundle.as_bytes()), Some(pair), *added),
            None => (None, None, None),
        };
        let published = self.published.as_ref();
        let desired = decided(GatewayState {
            live_bundle: bundle,
            live_pair: pair,
            published: published.map(|(bundle, added)| (bundle.as_bytes(), *added)),
            ca_added: added,
            is_acknowledged: bundle
                .is_some_and(|it| self.acknowledged.as_deref() == Some(&bundle_sha256(it))),
            grace_period: SHORT_GRACE,
            now,
            ..state(ca, Some(leaf))
        });
        let secret = (desired.bundle.clone(), desired.pair.clone());
        self.secret = Some((secret.0, secret.1, Some(desired.ca_added)));
        self.published = Some((desired.bundle.clone(), desired.ca_added));
        desired
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// However often the CA is rotated within a grace period, and whenever the live Secret loses its annotation: a runtime trusts the issuer
    /// of the certificate that the gateway presents if it has a bundle that it acknowledged or that is older than the grace period,
    /// and the gateway trusts the issuer of every certificate that a runtime may have.
    #[test]
    fn every_side_trusts_the_other_during_rotations(steps in prop::collection::vec(step(), 1..MOST_STEPS)) {
        let (mut live, mut now, mut current, mut issued) = (Live::default(), NOW, 0, 0);
        // The bundles with the times since which every runtime may have them.
        let mut bundles: Vec<(String, i64)> = Vec::new();
        for step in std::iter::once(Step::Acknowledge).chain(steps) {
            match step {
                Step::RotateCA => current += 1,
                Step::IssueLeaf => issued = current,
                Step::Acknowledge => live.acknowledged = bundles.last().map(|(it, _)| bundle_sha256(it.as_bytes())),
                Step::Wait(seconds) => now += seconds,
                Step::LoseAnnotation => if let Some((_, _, added)) = &mut live.secret { *added = None },
                Step::ChangeLeader => live.published = None,
            }
            let (ca, _) = &AUTHORITIES[current];
            let desired = live.reconcile(ca, &AUTHORITIES[issued].1, now);
            if bundles.last().is_none_or(|(it, _)| *it != desired.bundle) {
                bundles.push((desired.bundle.clone(), now));
            }
            // A runtime has the last bundle that it acknowledged or that is older than the grace period, or a later one.
            let is_old = |(bundle, since): &&(String, i64)| {
                *since + SHORT_GRACE <= now || live.acknowledged.as_deref() == Some(&bundle_sha256(bundle.as_bytes()))
            };
            let first = bundles.iter().rposition(|it| is_old(&it)).unwrap_or(0);
            let presented = CertificateInfo::first(&desired.pair.certificate).unwrap();
            for (bundle, _) in &bundles[first..] {
                let trusted = CertificateInfo::read_all(bundle.as_bytes()).unwrap();
                prop_assert!(trusted.iter().any(|it| presented.is_issued_by(it)), "{:?}", step);
            }
            let accepted = CertificateInfo::read_all(desired.bundle.as_bytes()).unwrap();
            for (authority, _) in &AUTHORITIES[..=current] {
                let ca = CertificateInfo::first(authority.pem().as_bytes()).unwrap();
                let is_bundled = bundles.iter().any(|(it, _)| it.contains(&ca.pem()));
                prop_assert!(!is_bundled || accepted.contains(&ca), "{:?}", step);
            }
        }
    }
}
