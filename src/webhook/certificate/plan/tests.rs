use rstest::rstest;

use super::*;
use crate::certificate::testing::{after, epoch, material, pair_for, secret_of, settings};
use crate::certificate::{Material, StoredSecret};

/// What stands in the Secret that was issued on day 0.
fn stored(change: impl FnOnce(&mut StoredSecret)) -> StoredSecret {
    let mut secret = secret_of(material(epoch()));
    change(&mut secret);
    secret
}

fn other() -> Material {
    material(epoch())
}

#[rstest]
#[case::missing(None::<StoredSecret>, 0, Reason::Missing)]
#[case::opaque(stored(|s| s.kind = Some("Opaque".to_owned())), 0, Reason::WrongType)]
#[case::no_type(stored(|s| s.kind = None), 0, Reason::WrongType)]
#[case::empty(stored(|s| s.material = Material::default()), 0, Reason::Unreadable)]
#[case::garbage_chain(stored(|s| s.material.chain = b"-----BEGIN".to_vec()), 0, Reason::Unreadable)]
#[case::garbage_key(stored(|s| s.material.key = b"garbage".to_vec()), 0, Reason::Unreadable)]
#[case::key_of_another(stored(|s| s.material.key = other().key), 0, Reason::KeyMismatch)]
#[case::chain_of_another(stored(|s| s.material.chain = other().chain), 0, Reason::KeyMismatch)]
#[case::expired(stored(|_| ()), 91, Reason::Expired)]
#[case::near_expiry(stored(|_| ()), 60, Reason::NearExpiry)]
#[case::no_authorities(stored(|s| s.material.authorities = Vec::new()), 0, Reason::Untrusted)]
#[case::garbage_authorities(stored(|s| s.material.authorities = b"garbage".to_vec()), 0, Reason::Untrusted)]
#[case::authorities_of_another(stored(|s| s.material.authorities = other().authorities), 0, Reason::Untrusted)]
#[case::fewer_names(
    stored(|s| s.material = pair_for(epoch(), Bundle::default(), &settings().dns_names[..2])), 0, Reason::OtherNames
)]
#[case::other_namespace(
    stored(|s| s.material = pair_for(epoch(), Bundle::default(), &["webhook.default.svc".to_owned()])),
    0, Reason::OtherNames
)]
fn what_does_not_serve_is_replaced(
    #[case] secret: impl Into<Option<StoredSecret>>,
    #[case] day: u32,
    #[case] reason: Reason,
) {
    let secret = secret.into();
    let plan = plan(secret.as_ref(), after(epoch(), day), &settings());
    assert_eq!(plan, Plan::Reissue(reason));
}

#[test]
fn a_leaf_of_the_future_is_replaced() {
    let secret = secret_of(material(after(epoch(), 1)));
    assert_eq!(
        plan(Some(&secret), epoch(), &settings()),
        Plan::Reissue(Reason::NotYetValid)
    );
}

#[rstest]
#[case::at_once(0)]
#[case::before_two_thirds(59)]
fn what_serves_is_kept_until_two_thirds_of_its_life(#[case] day: u32) {
    let start = epoch();
    let secret = secret_of(material(start));
    let Plan::Keep { renew_at } = plan(Some(&secret), after(start, day), &settings()) else {
        panic!("not kept");
    };
    // 90 days and the hour that it is backdated by.
    assert_eq!(renew_at.duration_until(after(start, 60)).as_secs(), 20 * 60);
}
