use rstest::rstest;

use super::*;
use crate::certificate::Material;
use crate::certificate::fixtures::{after, epoch, material, pair_for, secret_of, settings};

/// Returns the content of a Secret that was issued on day 0.
fn stored(change: impl FnOnce(&mut StoredCertificate)) -> StoredCertificate {
    let mut secret = secret_of(material(epoch()));
    change(&mut secret);
    secret
}

fn other() -> Material {
    material(epoch())
}

#[rstest]
#[case::missing(None::<StoredCertificate>, 0, "missing")]
#[case::opaque(stored(|s| s.type_ = Some("Opaque".to_owned())), 0, "wrong_type")]
#[case::no_type(stored(|s| s.type_ = None), 0, "wrong_type")]
#[case::empty(stored(|s| s.material = Material::default()), 0, "unreadable")]
#[case::garbage_chain(stored(|s| s.material.chain = b"-----BEGIN".to_vec()), 0, "unreadable")]
#[case::garbage_key(stored(|s| s.material.key = b"garbage".to_vec().into()), 0, "unreadable")]
#[case::key_of_another(stored(|s| s.material.key = other().key), 0, "key_mismatch")]
#[case::chain_of_another(stored(|s| s.material.chain = other().chain), 0, "key_mismatch")]
#[case::expired(stored(|_| ()), 91, "expired")]
#[case::near_expiry(stored(|_| ()), 60, "near_expiry")]
#[case::no_authorities(stored(|s| s.material.authorities = Vec::new()), 0, "untrusted")]
#[case::garbage_authorities(stored(|s| s.material.authorities = b"garbage".to_vec()), 0, "untrusted")]
#[case::authorities_of_another(stored(|s| s.material.authorities = other().authorities), 0, "untrusted")]
#[case::without_the_name_that_api_servers_verify(
    stored(|s| s.material = pair_for(epoch(), &Bundle::default(), &settings().dns_names[1..])), 0, "other_names"
)]
#[case::other_namespace(
    stored(|s| s.material = pair_for(epoch(), &Bundle::default(), &["webhook.default.svc".to_owned()])),
    0, "other_names"
)]
fn what_does_not_serve_is_replaced(
    #[case] secret: impl Into<Option<StoredCertificate>>,
    #[case] day: u32,
    #[case] reason: &str,
) {
    let secret = secret.into();
    let renewal = renew_at(secret.as_ref(), after(epoch(), day), &settings());
    assert_eq!(renewal, Err(reason));
}

/// For example a certificate of cert-manager before a migration.
#[test]
fn a_leaf_with_fewer_names_serves() {
    let names = &settings().dns_names[..2];
    let secret = secret_of(pair_for(epoch(), &Bundle::default(), names));
    assert!(renew_at(Some(&secret), epoch(), &settings()).is_ok());
}

#[test]
fn a_leaf_of_the_future_is_replaced() {
    let secret = secret_of(material(after(epoch(), 1)));
    assert_eq!(
        renew_at(Some(&secret), epoch(), &settings()),
        Err("not_yet_valid")
    );
}

#[rstest]
#[case::at_once(0)]
#[case::before_two_thirds(59)]
fn what_serves_is_kept_until_two_thirds_of_its_life(#[case] day: u32) {
    let start = epoch();
    let secret = secret_of(material(start));
    let renew_at = renew_at(Some(&secret), after(start, day), &settings()).unwrap();
    // The validity is 90 days plus the hour by which it is backdated.
    assert_eq!(
        after(start, 60).duration_since(renew_at).unwrap().as_secs(),
        20 * 60
    );
}
