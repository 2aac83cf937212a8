use rstest::rstest;

use super::*;
use crate::certificate::testing::{
    after, entry_with, epoch, material, present, settings, successor,
};

#[rstest]
#[case::first_leaf_trusted(Offer::New, Trust::Verifies, Verdict::Swap)]
#[case::nobody_calls(Offer::New, Trust::NobodyCalls, Verdict::Swap)]
#[case::bundle_not_live_yet(Offer::New, Trust::Refuses, Verdict::Hold(Hold::Untrusted))]
#[case::entry_not_read_yet(Offer::New, Trust::Unknown, Verdict::Hold(Hold::EntryUnknown))]
#[case::in_use(Offer::Served, Trust::Verifies, Verdict::Settled)]
#[case::in_use_and_entry_gone(Offer::Served, Trust::NobodyCalls, Verdict::Settled)]
#[case::in_use_and_bundle_overwritten(
    Offer::Served,
    Trust::Refuses,
    Verdict::Hold(Hold::Untrusted)
)]
#[case::nothing_read_yet(Offer::Unknown, Trust::Unknown, Verdict::Hold(Hold::Unknown))]
#[case::deleted(Offer::Missing, Trust::NobodyCalls, Verdict::Hold(Hold::Missing))]
#[case::garbage(Offer::Unusable, Trust::NobodyCalls, Verdict::Hold(Hold::Unusable))]
#[case::expired_though_nobody_calls(
    Offer::Outdated,
    Trust::NobodyCalls,
    Verdict::Hold(Hold::Outdated)
)]
fn a_leaf_is_taken_when_callers_trust_it(
    #[case] offer: Offer,
    #[case] trust: Trust,
    #[case] expected: Verdict,
) {
    assert_eq!(gate(offer, trust), expected);
}

#[test]
fn callers_trust_what_the_live_bundle_verifies() {
    let now = epoch();
    let old = material(now);
    let new = successor(now, Bundle::read(&old.authorities));
    let pair = |material| Pair::read(material).unwrap();
    let name = settings().server_name().to_owned();
    let trust = |pair: &Pair, entry: &Sighting<LiveEntry>| trust(pair, entry, &name, now);
    let (old_pair, new_pair) = (pair(&old), pair(&new));

    let before = present(entry_with(old.authorities));
    assert_eq!(trust(&old_pair, &before), Trust::Verifies);
    assert_eq!(trust(&new_pair, &before), Trust::Refuses);
    let during = present(entry_with(new.authorities));
    assert_eq!(
        trust(&old_pair, &during),
        Trust::Verifies,
        "no gap for who still serves it"
    );
    assert_eq!(trust(&new_pair, &during), Trust::Verifies);

    for garbage in ["", "garbage"] {
        assert_eq!(
            trust(&old_pair, &present(entry_with(garbage))),
            Trust::Refuses
        );
    }
    assert_eq!(trust(&old_pair, &Sighting::Absent), Trust::NobodyCalls);
    assert_eq!(trust(&old_pair, &Sighting::Unknown), Trust::Unknown);
    let late = after(now, 91);
    assert_eq!(
        super::trust(&old_pair, &during, &name, late),
        Trust::Refuses
    );
}
