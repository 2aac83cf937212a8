use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::certificate::fixtures::{
    DAY, after, entry_with, epoch, material, present, secret_of, settings, successor,
};

fn bundle(material: &Material) -> Bundle {
    Bundle::read(&material.authorities)
}

/// Returns the plan of a new leader.
fn planned(
    secret: &Observed<StoredCertificate>,
    entry: &Observed<LiveEntry>,
    now: SystemTime,
) -> Plan {
    SecretPlanner::default().plan(secret, entry, &settings(), now)
}

fn decide(
    secret: &Observed<StoredCertificate>,
    entry: &Observed<LiveEntry>,
    now: SystemTime,
) -> Option<Write> {
    planned(secret, entry, now).write
}

fn published(action: Option<Write>) -> String {
    match action {
        Some(Write::Publish { bundle, entry }) => {
            assert_eq!(entry.resource_version, "41", "the state that was seen");
            bundle
        }
        Some(Write::Issue { reason, .. }) => panic!("issues: {reason:?}"),
        None => panic!("does nothing"),
    }
}

fn issued(action: Option<Write>) -> (&'static str, Bundle, bool) {
    match action {
        Some(Write::Issue {
            reason,
            replaces,
            carried,
        }) => (reason, carried, replaces.is_some()),
        Some(Write::Publish { .. }) => panic!("publishes"),
        None => panic!("does nothing"),
    }
}

#[test]
fn nothing_is_written_before_both_objects_are_known() {
    let secret = present(secret_of(Material::default()));
    let entry = present(entry_with(""));
    assert!(decide(&Observed::Unknown, &entry, epoch()).is_none());
    assert!(decide(&Observed::Unknown, &Observed::Absent, epoch()).is_none());
    assert!(decide(&secret, &Observed::Unknown, epoch()).is_none());
    assert!(decide(&Observed::Absent, &Observed::Unknown, epoch()).is_none());
}

#[test]
fn the_first_certificate_needs_no_entry() {
    let (reason, carried, based_on) = issued(decide(&Observed::Absent, &Observed::Absent, epoch()));
    assert_eq!((reason, based_on), ("missing", false));
    assert!(carried.is_empty());
}

#[test]
fn nothing_is_written_when_nothing_differs_or_there_is_no_entry() {
    let material = material(epoch());
    let live = present(entry_with(material.authorities.clone()));
    let secret = present(secret_of(material));
    assert!(decide(&secret, &live, epoch()).is_none());
    assert!(decide(&secret, &Observed::Absent, epoch()).is_none());
}

#[rstest]
#[case::none("".into())]
#[case::garbage("garbage".into())]
#[case::of_another_issuer(material(epoch()).authorities)]
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
    assert_eq!((reason, based_on), ("near_expiry", true));
    assert_eq!(carried, bundle(&old));

    let new = successor(day_60, &carried);
    let both = published(decide(&present(secret_of(new.clone())), &live, day_60));
    let both = Bundle::read(both.as_bytes());
    assert_eq!(both.certificates().count(), 2);
    let old_pair = old.pair().unwrap();
    let new_pair = new.pair().unwrap();
    let name = settings().server_name().to_owned();
    assert!(both.verifies(&old_pair, &name, day_60));
    assert!(both.verifies(&new_pair, &name, day_60));

    // On day 91 a write of the bundle removes the old CA, and the leader wakes up for it.
    let secret = present(secret_of(new.clone()));
    let live = present(entry_with(both.to_pem()));
    let quiet = planned(&secret, &live, after(start, 61));
    assert!(quiet.write.is_none());
    assert_eq!(quiet.again, Some(after(start, 90)));
    let only_new = published(decide(&secret, &live, after(start, 91)));
    assert_eq!(Bundle::read(only_new.as_bytes()), bundle(&new).first(1));
}

#[rstest]
#[case::deleted(Observed::Absent, "missing")]
#[case::garbage(present(secret_of(Material { authorities: b"x".to_vec(), ..material(epoch()) })), "untrusted")]
fn a_lost_secret_carries_what_the_api_server_trusts(
    #[case] secret: Observed<StoredCertificate>,
    #[case] expected: &str,
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
fn another_ca_in_the_live_bundle_is_not_kept_while_the_secret_says_which_are_trusted() {
    let material = material(epoch());
    let other = self::material(epoch());
    let secret = present(secret_of(material.clone()));
    let live = present(entry_with(other.authorities));
    let (_, carried, _) = issued(decide(&secret, &live, after(epoch(), 60)));
    assert_eq!(carried, bundle(&material));
}

/// A backup was restored, or a certificate of another installation was copied.
#[test]
fn the_authority_of_the_certificate_in_use_stays_for_a_day_after_another_client_replaced_the_secret()
 {
    let start = epoch();
    let (old, foreign) = (material(start), material(start));
    let mut planner = SecretPlanner::default();
    let mut decide = |stored: &Material, live: &[u8], now| {
        let entry = present(entry_with(live));
        planner.plan(
            &present(secret_of(stored.clone())),
            &entry,
            &settings(),
            now,
        )
    };
    assert!(decide(&old, &old.authorities, start).write.is_none());
    let both = bundle(&foreign).with(&bundle(&old)).to_pem();
    let replaced = decide(&foreign, &old.authorities, start);
    assert_eq!(published(replaced.write), both);
    assert_eq!(replaced.again, Some(start + DAY));
    let later = start + DAY - Duration::from_secs(1);
    assert!(decide(&foreign, both.as_bytes(), later).write.is_none());
    let over = decide(&foreign, both.as_bytes(), start + DAY);
    assert_eq!(published(over.write).into_bytes(), foreign.authorities);
}

#[test]
fn a_certificate_in_place_of_an_unusable_one_carries_the_authority_of_the_one_in_use() {
    let start = epoch();
    let (old, foreign) = (material(start), material(start));
    let mut planner = SecretPlanner::default();
    let live = present(entry_with(old.authorities.clone()));
    planner.plan(&present(secret_of(old.clone())), &live, &settings(), start);
    let unusable = Material {
        key: old.key.clone(),
        ..foreign.clone()
    };
    let plan = planner.plan(&present(secret_of(unusable)), &live, &settings(), start);
    let (reason, carried, _) = issued(plan.write);
    assert_eq!(
        (reason, carried),
        ("key_mismatch", bundle(&foreign).with(&bundle(&old)))
    );
}

/// The procedure from the documentation of a leaked key.
#[test]
fn an_authority_that_is_removed_from_the_secret_is_removed_from_the_bundle() {
    let start = epoch();
    let leaked = material(start);
    let mut planner = SecretPlanner::default();
    let mut decide = |stored: &Material, live: &[u8]| {
        let entry = present(entry_with(live));
        planner
            .plan(
                &present(secret_of(stored.clone())),
                &entry,
                &settings(),
                start,
            )
            .write
    };
    assert!(decide(&leaked, &leaked.authorities).is_none());
    let mut new = successor(start, &bundle(&leaked));
    let both = published(decide(&new, &leaked.authorities)).into_bytes();
    new.authorities = bundle(&new).first(1).to_pem().into_bytes();
    assert_eq!(published(decide(&new, &both)).into_bytes(), new.authorities);
}

#[test]
fn the_leader_sleeps_until_two_thirds_of_the_life() {
    let start = epoch();
    let material = material(start);
    let live = present(entry_with(material.authorities.clone()));
    let Plan { again, .. } = planned(&present(secret_of(material)), &live, start);
    let expected = start + DAY * 60;
    let again = again.unwrap();
    assert!(again <= expected && again > expected - Duration::from_hours(1));
}

#[rstest]
#[case::no_authorities(|m: &mut Material| m.authorities = Vec::new())]
#[case::authorities_of_another_generation(|m: &mut Material| m.authorities = material(epoch()).authorities)]
#[case::half_written(|m: &mut Material| m.key = material(epoch()).key)]
fn files_that_do_not_match_publish_nothing(#[case] change: fn(&mut Material)) {
    let mut files = material(epoch());
    let entry = present(entry_with(""));
    let publishes = |files: &Material| {
        let files = present(files.clone().into());
        FilesPlanner::default()
            .plan(&files, &entry, &settings(), epoch())
            .write
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
    let mut planner = FilesPlanner::default();
    let mut decide = |files: &Material, live: Vec<u8>, now| {
        let entry = present(entry_with(live));
        planner.plan(&present(files.clone().into()), &entry, &settings(), now)
    };
    let settled = decide(&old, old.authorities.clone(), start);
    assert!(settled.write.is_none() && settled.again.is_none());
    let changed = decide(&new, old.authorities.clone(), start);
    assert_eq!(changed.again, Some(start + DAY));
    let both = published(changed.write).into_bytes();
    assert!(decide(&new, both.clone(), start).write.is_none());
    let over = decide(&new, both, start + DAY);
    assert_eq!(published(over.write).into_bytes(), new.authorities);
}

/// The clock of the issuer is ahead. Pairs of the tests are backdated by an hour.
#[test]
fn files_that_are_not_valid_yet_are_published_when_they_are() {
    let now = epoch();
    let valid = now + Duration::from_mins(10);
    let files = material(valid + Duration::from_hours(1));
    let source = present(files.clone().into());
    let entry = present(entry_with(""));
    let mut planner = FilesPlanner::default();
    let early = planner.plan(&source, &entry, &settings(), now);
    assert!(early.write.is_none());
    assert_eq!(early.again, Some(valid));
    let later = planner.plan(&source, &entry, &settings(), valid);
    assert_eq!(published(later.write).into_bytes(), files.authorities);
}

/// The clocks of two leaders and of an API server differ by at most twenty minutes.
#[rstest]
#[case::of_a_fast_leader(true)]
#[case::of_a_slow_leader(false)]
fn a_certificate_is_taken_by_clocks_that_differ(#[case] fast: bool) {
    let skew = Duration::from_mins(10);
    let clocks = |time: SystemTime| {
        let (slow, fast_clock) = (time - skew, time + skew);
        if fast {
            (fast_clock, slow)
        } else {
            (slow, fast_clock)
        }
    };
    let name = settings().server_name().to_owned();
    let start = epoch();
    let (issuer, other) = clocks(start);
    let old = material(issuer);
    let live = present(entry_with(old.authorities.clone()));
    assert!(decide(&present(secret_of(old.clone())), &live, other).is_none());
    assert!(bundle(&old).verifies(&old.pair().unwrap(), &name, other));

    let (issuer, other) = clocks(after(start, 61));
    let new = successor(issuer, &bundle(&old));
    let live = present(entry_with(new.authorities.clone()));
    assert!(decide(&present(secret_of(new.clone())), &live, other).is_none());
    for pair in [old.pair().unwrap(), new.pair().unwrap()] {
        assert!(bundle(&new).verifies(&pair, &name, other));
    }
}
