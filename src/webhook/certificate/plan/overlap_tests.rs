use super::*;
use crate::certificate::fixtures::{DAY, after, entry_with, epoch, material, pair_for, settings};

fn authority(start: SystemTime) -> Bundle {
    Bundle::read(&material(start).authorities)
}

fn live(bundle: &Bundle) -> LiveEntry {
    entry_with(bundle.to_pem())
}

fn joined(bundles: &[&Bundle]) -> Bundle {
    Bundle::of(bundles.iter().flat_map(|it| it.certificates()).cloned())
}

#[test]
fn the_earlier_authority_is_trusted_for_a_day_after_the_change() {
    let start = epoch();
    let (old, new) = (authority(start), authority(start));
    let mut planner = FilesPlanner::default();
    assert_eq!(planner.with_earlier(&old, &live(&old), start), old);
    assert_eq!(planner.earlier.until, None);

    let changed = after(start, 3);
    let both = joined(&[&new, &old]);
    assert_eq!(planner.with_earlier(&new, &live(&old), changed), both);
    assert_eq!(planner.earlier.until, Some(changed + DAY));
    let later = changed + DAY - Duration::from_secs(1);
    assert_eq!(planner.with_earlier(&new, &live(&both), later), both);
    let over = changed + DAY;
    assert_eq!(planner.with_earlier(&new, &live(&both), over), new);
    assert_eq!(planner.earlier.until, None);
}

#[test]
fn the_next_leader_carries_what_is_live_when_it_begins() {
    let start = epoch();
    let (old, new) = (authority(start), authority(start));
    let both = joined(&[&new, &old]);
    for seen in [&old, &both] {
        let mut planner = FilesPlanner::default();
        assert_eq!(planner.with_earlier(&new, &live(seen), start), both);
        assert_eq!(planner.with_earlier(&new, &live(&both), start + DAY), new);
    }
}

#[test]
fn an_authority_that_overwrites_the_bundle_between_changes_is_not_carried() {
    let start = epoch();
    let (old, new, other) = (authority(start), authority(start), authority(start));
    let mut planner = FilesPlanner::default();
    planner.with_earlier(&old, &live(&old), start);
    assert_eq!(planner.with_earlier(&old, &live(&other), start), old);
    let both = planner.with_earlier(&new, &live(&old), start);
    assert_eq!(planner.with_earlier(&new, &live(&other), start), both);
}

#[test]
fn expired_authorities_are_dropped_and_few_are_carried() {
    let start = epoch();
    let mut planner = FilesPlanner::default();
    let long = pair_for(after(start, 60), &Bundle::default(), &settings().dns_names);
    let (new, old) = (Bundle::read(&long.authorities), authority(start));
    // 90 days after its start the old CA has expired.
    let day_before = after(start, 90) - Duration::from_hours(1);
    let both = planner.with_earlier(&new, &live(&old), day_before);
    assert_eq!(both, joined(&[&new, &old]));
    assert_eq!(
        planner.with_earlier(&new, &live(&both), after(start, 90)),
        new
    );

    let many: Vec<Bundle> = (0..10).map(|day| authority(after(start, day))).collect();
    let mut planner = FilesPlanner::default();
    let bundle = live(&joined(&many.iter().collect::<Vec<_>>()));
    let published = planner.with_earlier(&new, &bundle, after(start, 60));
    let carried: Vec<&Bundle> = many.iter().take(8).collect();
    assert_eq!(published, joined(&[&[&new], &carried[..]].concat()));
}

#[test]
fn the_authority_in_use_is_carried_although_it_is_the_oldest() {
    let start = epoch();
    let issued = [1, 2, 3, 4, 5, 6, 7, 8].map(|hour| authority(start + Duration::from_hours(hour)));
    let (first, second) = (authority(start), authority(start));
    let mut planner = FilesPlanner::default();
    let changed = after(start, 1);
    let before = live(&joined(&issued.each_ref()));
    let published = planner.with_earlier(&first, &before, changed);
    let published = planner.with_earlier(&second, &live(&published), changed);
    let earlier: Vec<&Bundle> = issued.iter().take(7).collect();
    assert_eq!(
        published,
        joined(&[&[&second, &first], &earlier[..]].concat())
    );
}
