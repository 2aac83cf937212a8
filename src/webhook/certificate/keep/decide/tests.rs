use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::certificate::testing::{
    DAY, after, entry_with, epoch, material, present, secret_of, settings, successor,
};

fn bundle(material: &Material) -> Bundle {
    Bundle::read(&material.authorities)
}

fn decide(
    secret: &Sighting<StoredSecret>,
    entry: &Sighting<LiveEntry>,
    now: Timestamp,
) -> Option<Action> {
    next(secret, entry, &settings(), now).action
}

fn published(action: Option<Action>) -> String {
    match action {
        Some(Action::Publish { bundle, entry }) => {
            let version = entry.resource_version.as_deref();
            assert_eq!(version, Some("41"), "the state that was seen");
            bundle
        }
        Some(Action::Issue { reason, .. }) => panic!("issues: {reason:?}"),
        None => panic!("does nothing"),
    }
}

fn issued(action: Option<Action>) -> (Reason, Bundle, bool) {
    match action {
        Some(Action::Issue {
            reason,
            based_on,
            carried,
        }) => (reason, carried, based_on.is_some()),
        Some(Action::Publish { .. }) => panic!("publishes"),
        None => panic!("does nothing"),
    }
}

#[test]
fn nothing_is_written_before_both_objects_are_known() {
    let secret = present(secret_of(Material::default()));
    let entry = present(entry_with(""));
    assert!(decide(&Sighting::Unknown, &entry, epoch()).is_none());
    assert!(decide(&Sighting::Unknown, &Sighting::Absent, epoch()).is_none());
    assert!(decide(&secret, &Sighting::Unknown, epoch()).is_none());
    assert!(decide(&Sighting::Absent, &Sighting::Unknown, epoch()).is_none());
}

#[test]
fn the_first_certificate_needs_no_entry() {
    let (reason, carried, based_on) = issued(decide(&Sighting::Absent, &Sighting::Absent, epoch()));
    assert_eq!((reason, based_on), (Reason::Missing, false));
    assert!(carried.is_empty());
}

#[test]
fn nothing_is_written_when_nothing_differs_or_there_is_no_entry() {
    let material = material(epoch());
    let live = present(entry_with(material.authorities.clone()));
    let secret = present(secret_of(material));
    assert!(decide(&secret, &live, epoch()).is_none());
    assert!(decide(&secret, &Sighting::Absent, epoch()).is_none());
}

#[rstest]
#[case::none("".into())]
#[case::garbage("garbage".into())]
#[case::of_somebody_else(material(epoch()).authorities)]
fn an_overwritten_bundle_is_repaired_from_the_secret(#[case] live: Vec<u8>) {
    let material = material(epoch());
    let secret = present(secret_of(material.clone()));
    let action = decide(&secret, &present(entry_with(live)), epoch());
    assert_eq!(published(action).into_bytes(), material.authorities);
}

#[test]
fn a_rotation_carries_the_old_authority_and_publishes_both_before_anything_else() {
    let start = epoch();
    let old = material(start);
    let live = present(entry_with(old.authorities.clone()));
    let secret = present(secret_of(old.clone()));
    let day_60 = after(start, 60);
    let (reason, carried, based_on) = issued(decide(&secret, &live, day_60));
    assert_eq!((reason, based_on), (Reason::NearExpiry, true));
    assert_eq!(carried, bundle(&old));

    let new = successor(day_60, carried);
    let both = published(decide(&present(secret_of(new.clone())), &live, day_60));
    let both = Bundle::read(both.as_bytes());
    assert_eq!(both.certificates().count(), 2);
    let old_pair = Pair::read(&old).unwrap();
    let new_pair = Pair::read(&new).unwrap();
    let name = settings().server_name().to_owned();
    assert!(old_pair.verified_by(&both, &name, day_60));
    assert!(new_pair.verified_by(&both, &name, day_60));

    // On day 91 the old one goes, by a write of the bundle alone, and the leader wakes up for it.
    let secret = present(secret_of(new.clone()));
    let live = present(entry_with(both.to_pem()));
    let quiet = next(&secret, &live, &settings(), after(start, 61));
    assert!(quiet.action.is_none());
    assert_eq!(quiet.look_again, after(start, 90));
    let only_new = published(decide(&secret, &live, after(start, 91)));
    assert_eq!(Bundle::read(only_new.as_bytes()), bundle(&new).newest(1));
}

#[rstest]
#[case::deleted(Sighting::Absent, Reason::Missing)]
#[case::garbage(present(secret_of(Material { authorities: b"x".to_vec(), ..material(epoch()) })), Reason::Untrusted)]
fn a_lost_secret_carries_what_the_api_server_trusts(
    #[case] secret: Sighting<StoredSecret>,
    #[case] expected: Reason,
) {
    let lost = material(epoch());
    let live = present(entry_with(lost.authorities.clone()));
    let (reason, carried, _) = issued(decide(&secret, &live, epoch()));
    assert_eq!(reason, expected);
    assert_eq!(carried, bundle(&lost), "replicas still serve its leaf");
    let (_, carried, _) = issued(decide(&secret, &live, after(epoch(), 91)));
    assert!(carried.is_empty(), "expired");
}

#[test]
fn a_stranger_in_the_live_bundle_is_not_carried_while_the_secret_says_who_is_trusted() {
    let material = material(epoch());
    let stranger = self::material(epoch());
    let secret = present(secret_of(material.clone()));
    let live = present(entry_with(stranger.authorities));
    let (_, carried, _) = issued(decide(&secret, &live, after(epoch(), 60)));
    assert_eq!(carried, bundle(&material));
}

#[test]
fn the_leader_sleeps_until_two_thirds_of_the_life() {
    let start = epoch();
    let material = material(start);
    let live = present(entry_with(material.authorities.clone()));
    let Next { look_again, .. } = next(&present(secret_of(material)), &live, &settings(), start);
    let expected = start + DAY * 60;
    assert!(look_again <= expected && look_again > expected - Duration::from_hours(1));
}

#[rstest]
#[case::no_authorities(|m: &mut Material| m.authorities = Vec::new())]
#[case::authorities_of_another_generation(|m: &mut Material| m.authorities = material(epoch()).authorities)]
#[case::half_written(|m: &mut Material| m.key = material(epoch()).key)]
fn files_that_do_not_match_publish_nothing(#[case] change: fn(&mut Material)) {
    let mut files = material(epoch());
    let entry = present(entry_with(""));
    let publishes = |files: &Material| {
        let files = present(files.clone());
        let mut overlap = Overlap::default();
        next_of_files(&files, &entry, &mut overlap, &settings(), epoch())
            .action
            .is_some()
    };
    assert!(publishes(&files));
    change(&mut files);
    assert!(!publishes(&files));
}

#[test]
fn after_a_change_of_files_the_earlier_authority_is_taken_away_on_time() {
    let start = epoch();
    let (old, new) = (material(start), material(start));
    let mut overlap = Overlap::default();
    let mut decide = |files: &Material, live: Vec<u8>, now| {
        let entry = present(entry_with(live));
        next_of_files(
            &present(files.clone()),
            &entry,
            &mut overlap,
            &settings(),
            now,
        )
    };
    let settled = decide(&old, old.authorities.clone(), start);
    assert!(settled.action.is_none() && settled.look_again == Timestamp::MAX);
    let changed = decide(&new, old.authorities.clone(), start);
    assert_eq!(changed.look_again, start + DAY);
    let both = published(changed.action).into_bytes();
    assert!(decide(&new, both.clone(), start).action.is_none());
    let over = decide(&new, both, start + DAY);
    assert_eq!(published(over.action).into_bytes(), new.authorities);
}
