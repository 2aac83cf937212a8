//! The history of the sources, which distinguishes a deletion from a source that never existed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;

use super::samples::{AT_ONCE, absent, after, secret, source_names, sources, unreadable, what};
use crate::sync::ObjectNames;
use crate::sync::SourceKind;
use crate::sync::history::{Absence, Grace, SourceHistory};
use crate::sync::sources::{PullSecret, SourceState, Sources};

/// Creation, change and deletion are detected, also while no controller runs, because the sources are compared with
/// the history. A source that never existed is not a change.
#[test]
fn the_history_distinguishes_deleted_from_never_seen() {
    let mut known = SourceHistory::default();
    assert_eq!(known.advance(&absent(), AT_ONCE), []);
    assert_eq!(
        known.advance(&sources(), AT_ONCE),
        SourceKind::ALL,
        "created"
    );
    assert_eq!(known.advance(&sources(), AT_ONCE), [], "nothing new");
    let changed = Sources {
        pull_secret: secret("two"),
        ..sources()
    };
    assert_eq!(known.advance(&changed, AT_ONCE), [SourceKind::PullSecret]);
    let broken = Sources {
        trust_bundle: unreadable(),
        ..changed
    };
    assert_eq!(known.advance(&broken, AT_ONCE), [], "invalid is no change");
    let unmanaged = Sources {
        trust_bundle: SourceState::Unmanaged,
        ..broken
    };
    assert_eq!(
        known.advance(&unmanaged, AT_ONCE),
        [],
        "nor is one not looked for"
    );
    let deleted = Sources {
        trust_bundle: SourceState::Absent,
        ..unmanaged
    };
    assert_eq!(known.advance(&deleted, AT_ONCE), [SourceKind::TrustBundle]);
    let name = deleted.names.get(SourceKind::TrustBundle);
    assert_eq!(
        known.absence(SourceKind::TrustBundle, name),
        Absence::Deleted
    );
    let mut data = BTreeMap::new();
    known.write(&mut data);
    assert_eq!(
        SourceHistory::read(&data).unwrap(),
        known,
        "after a restart"
    );
}

/// Returns the sources with another configured name of the pull Secret.
fn renamed(pull_secret: SourceState<Arc<PullSecret>>) -> Sources {
    Sources {
        names: ObjectNames {
            pull_secret: Some("pul".to_owned()),
            ..source_names()
        },
        pull_secret,
        ..sources()
    }
}

#[test]
fn source_absent_under_a_name_that_was_never_rolled_out_is_not_deleted() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let mistyped = renamed(SourceState::Absent);
    assert_eq!(known.advance(&mistyped, AT_ONCE), []);
    let desired = after(&mistyped, &known);
    assert_eq!(what(&desired.pull_secret), "never");
    let corrected = Sources {
        pull_secret: SourceState::Absent,
        ..sources()
    };
    assert_eq!(known.advance(&corrected, AT_ONCE), [SourceKind::PullSecret]);
    assert_eq!(what(&after(&corrected, &known).pull_secret), "removed");
}

#[test]
fn source_with_the_same_content_under_another_name_is_remembered_under_that_name() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    assert_eq!(known.advance(&renamed(secret("one")), AT_ONCE), []);
    let mut data = BTreeMap::new();
    known.write(&mut data);
    assert_eq!(data["lastSeen.pullSecret.name"], "pul");
    let mut known = SourceHistory::read(&data).unwrap();
    let deleted = renamed(SourceState::Absent);
    assert_eq!(known.advance(&deleted, AT_ONCE), [SourceKind::PullSecret]);
    assert_eq!(what(&after(&deleted, &known).pull_secret), "removed");
}

/// A recorded source without a name is never deleted. Its name is recorded with the next content.
#[rstest]
#[case::content(&"0".repeat(64))]
#[case::deleted("deleted")]
fn remembered_source_without_a_name_is_not_deleted(#[case] last: &str) {
    let data = BTreeMap::from([("lastSeen.pullSecret".to_owned(), last.to_owned())]);
    let mut known = SourceHistory::read(&data).unwrap();
    let gone = Sources {
        pull_secret: SourceState::Absent,
        ..sources()
    };
    known.advance(&gone, AT_ONCE);
    assert_eq!(what(&after(&gone, &known).pull_secret), "never");
    known.advance(&sources(), AT_ONCE);
    known.advance(&gone, AT_ONCE);
    assert_eq!(what(&after(&gone, &known).pull_secret), "removed");
}

/// Returns the sources without the pull Secret.
fn missing() -> Sources {
    Sources {
        pull_secret: SourceState::Absent,
        ..sources()
    }
}

/// Returns a time in seconds, with a grace period of five minutes.
fn at(seconds: i64) -> Grace {
    Grace {
        now: Timestamp::from_second(seconds).unwrap(),
        period: Duration::from_mins(5),
    }
}

fn restarted(known: &SourceHistory) -> SourceHistory {
    let mut data = BTreeMap::new();
    known.write(&mut data);
    SourceHistory::read(&data).unwrap()
}

#[test]
fn missing_source_is_deleted_at_the_end_of_the_grace_period_also_after_restarts() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), at(0));
    let wanted = |known: &SourceHistory| what(&after(&missing(), known).pull_secret);
    for seconds in [1000, 1100, 1239] {
        known = restarted(&known);
        assert_eq!(known.advance(&missing(), at(seconds)), []);
        assert_eq!(known.next_deletion(), Timestamp::from_second(1300).ok());
        assert_eq!(wanted(&known), "pending");
    }
    assert_eq!(
        known.advance(&missing(), at(1300)),
        [SourceKind::PullSecret],
        "now it is deleted"
    );
    assert_eq!(known.next_deletion(), None);
    assert_eq!(wanted(&known), "removed");
    assert_eq!(restarted(&known), known);
}

/// The clock of the new leader is ahead of the clock of the previous leader, or no leader observed the absence in between.
#[test]
fn leader_deletes_nothing_before_it_has_observed_the_absence_for_a_minute() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), at(0));
    known.advance(&missing(), at(1000));
    let mut known = restarted(&known);
    for seconds in [5000, 5030, 5059] {
        assert_eq!(known.advance(&missing(), at(seconds)), []);
        assert_eq!(known.next_deletion(), Timestamp::from_second(5060).ok());
    }
    let deleted = known.advance(&missing(), at(5060));
    assert_eq!(deleted, [SourceKind::PullSecret]);
}

#[rstest]
#[case::there_again(sources(), &[])]
#[case::with_another_content(Sources { pull_secret: secret("two"), ..sources() }, &[SourceKind::PullSecret])]
#[case::invalid(Sources { pull_secret: unreadable(), ..sources() }, &[])]
#[case::not_looked_for(Sources { pull_secret: SourceState::Unmanaged, ..sources() }, &[])]
#[case::looked_for_under_another_name(renamed(SourceState::Absent), &[])]
fn missing_source_that_comes_back_has_a_whole_grace_period_again(
    #[case] back: Sources,
    #[case] changed: &[SourceKind],
) {
    let mut known = SourceHistory::default();
    known.advance(&sources(), at(0));
    known.advance(&missing(), at(1000));
    assert_eq!(known.advance(&back, at(1299)), changed);
    assert_eq!(known.next_deletion(), None);
    let mut known = restarted(&known);
    assert_eq!(known.advance(&missing(), at(1310)), []);
    assert_eq!(known.next_deletion(), Timestamp::from_second(1610).ok());
}

#[test]
fn clock_that_is_set_back_does_not_prolong_a_grace_period_beyond_its_length() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), at(100_000));
    known.advance(&missing(), at(100_000));
    known.advance(&missing(), at(1000));
    assert_eq!(known.next_deletion(), Timestamp::from_second(1300).ok());
}

/// Before the end of the grace period, neither the revision nor the requirements of the document change.
#[test]
fn a_missing_source_does_not_change_version_and_requirements() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), at(0));
    let before = after(&sources(), &known);
    known.advance(&missing(), at(1000));
    let pending = after(&missing(), &known);
    assert_eq!(pending.complete_revision, before.complete_revision);
    assert_eq!(pending.configuration, before.configuration);
}

#[test]
fn a_damaged_record_is_no_empty_one() {
    let data = BTreeMap::from([("lastSeen.pullSecret".to_owned(), "x".to_owned())]);
    let error = SourceHistory::read(&data).unwrap_err();
    assert_eq!(error.kind, SourceKind::PullSecret);
}
