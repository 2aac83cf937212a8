use rstest::rstest;
use serde_json::{Value, json};

use super::samples::{AT_ONCE, secret, source_names, sources};
use crate::sync::SourceKind;
use crate::sync::known::Last;
use crate::sync::signal::{
    Advance, Eligibility, Keys, Record, Seen, Step, Tally, is_told_of, patch,
};
use crate::sync::sources::{SourceError, SourceNames, SourceState, Sources};
use crate::sync::status::Goal;

const NONE: Seen = Seen {
    label: false,
    annotation: false,
};
const LABEL: Seen = Seen {
    label: true,
    annotation: false,
};
const ANNOTATION: Seen = Seen {
    label: false,
    annotation: true,
};
const BOTH: Seen = Seen {
    label: true,
    annotation: true,
};
const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";

fn rotated(password: &str) -> Sources {
    Sources {
        pull_secret: secret(password),
        ..sources()
    }
}

/// A record that has seen the sources.
fn started() -> Record {
    let mut record = Record::default();
    assert_eq!(record.advance(&sources(), AT_ONCE, ["a"]), Advance::First);
    record
}

/// A record in which `a` is due.
fn due() -> Record {
    let mut record = started();
    assert_eq!(
        record.advance(&rotated("two"), AT_ONCE, ["a"]),
        Advance::Changed(vec![SourceKind::PullSecret])
    );
    record
}

/// A record in which a signal of ours stands on `a`.
fn standing() -> Record {
    let mut record = due();
    record.done("a", Step::Set, record.epoch());
    record
}

/// The same, and a change came after it.
fn outdated() -> Record {
    let mut record = standing();
    record.advance(&rotated("three"), AT_ONCE, ["a"]);
    record
}

fn unusable<T>() -> SourceState<T> {
    SourceState::Invalid(SourceError::Key("x"))
}

/// The pull Secret cannot be used, and nothing else changed.
fn broken() -> Sources {
    Sources {
        pull_secret: unusable(),
        ..sources()
    }
}

/// The same record, since a source cannot be used.
fn withheld(mut record: Record) -> Record {
    record.advance(&broken(), AT_ONCE, ["a"]);
    record
}

/// A flag that is changed or mistyped is no deletion; a name that is new is stored, or its deletion would be missed.
#[test]
fn source_under_another_name_signals_no_runtime() {
    let names = || SourceNames {
        pull_secret: Some("another".to_owned()),
        ..source_names()
    };
    let mut record = started();
    let mistyped = Sources {
        names: names(),
        pull_secret: SourceState::Absent,
        ..sources()
    };
    assert_eq!(
        record.advance(&mistyped, AT_ONCE, ["a"]),
        Advance::Unchanged
    );
    let renamed = Sources {
        names: names(),
        ..sources()
    };
    assert_eq!(record.advance(&renamed, AT_ONCE, ["a"]), Advance::Noted);
    assert_eq!(record.pending().count(), 0);
    assert_eq!(
        record.advance(&mistyped, AT_ONCE, ["a"]),
        Advance::Changed(vec![SourceKind::PullSecret])
    );
}

/// A signal is exactly `true`.
#[rstest]
#[case(Some("true"), None, LABEL)]
#[case(None, Some("true"), ANNOTATION)]
#[case(Some("True"), Some("1"), NONE)]
#[case(Some(""), Some("true "), NONE)]
fn values(#[case] label: Option<&str>, #[case] annotation: Option<&str>, #[case] seen: Seen) {
    assert_eq!(Seen::read(label, annotation), seen);
}

/// Every state, every view. Which key is the signal is a setting; what a suspended manager does not take stands, and
/// what stands is not written again.
#[rstest]
#[case::nothing_recorded(started(), Keys::Both, BOTH, Step::Nothing)]
#[case::due(due(), Keys::Both, NONE, Step::Set)]
#[case::due_with_a_leftover(due(), Keys::Both, LABEL, Step::Set)]
#[case::due_and_somebody_else_signalled(due(), Keys::Both, BOTH, Step::Adopt)]
#[case::due_by_label(due(), Keys::Label, ANNOTATION, Step::Set)]
#[case::due_by_annotation(due(), Keys::Annotation, LABEL, Step::Set)]
#[case::due_by_annotation_that_stands(due(), Keys::Annotation, ANNOTATION, Step::Adopt)]
#[case::stands(standing(), Keys::Both, BOTH, Step::Nothing)]
#[case::annotation_taken(standing(), Keys::Both, LABEL, Step::RemoveLeftover)]
#[case::label_taken(standing(), Keys::Both, ANNOTATION, Step::RemoveLeftover)]
#[case::both_taken(standing(), Keys::Both, NONE, Step::Forget)]
#[case::the_only_key_taken(standing(), Keys::Label, ANNOTATION, Step::Forget)]
#[case::outdated_and_stands(outdated(), Keys::Both, BOTH, Step::Nothing)]
#[case::outdated_and_taken(outdated(), Keys::Both, NONE, Step::Set)]
#[case::outdated_and_half_taken(outdated(), Keys::Both, LABEL, Step::Set)]
#[case::withheld_and_nothing_due(withheld(started()), Keys::Both, NONE, Step::Nothing)]
#[case::withheld(withheld(due()), Keys::Both, NONE, Step::Withhold)]
#[case::withheld_with_a_leftover(withheld(due()), Keys::Both, LABEL, Step::Withhold)]
#[case::withheld_and_somebody_else_signalled(withheld(due()), Keys::Both, BOTH, Step::Adopt)]
#[case::withheld_and_stands(withheld(standing()), Keys::Both, BOTH, Step::Nothing)]
#[case::withheld_and_taken(withheld(standing()), Keys::Both, NONE, Step::Withhold)]
#[case::withheld_and_half_taken(withheld(standing()), Keys::Both, ANNOTATION, Step::Withhold)]
#[case::withheld_and_outdated(withheld(outdated()), Keys::Label, NONE, Step::Withhold)]
fn decisions(#[case] record: Record, #[case] keys: Keys, #[case] seen: Seen, #[case] step: Step) {
    assert_eq!(record.decide("a", Eligibility::Selected, keys, seen), step);
}

/// A runtime in `direct` is never signalled; a runtime that is gone is forgotten.
#[rstest]
#[case::due_went_direct(due(), Eligibility::Direct, NONE, Step::Forget)]
#[case::due_direct_with_a_strangers_signal(due(), Eligibility::Direct, BOTH, Step::Forget)]
#[case::stands_went_direct(standing(), Eligibility::Direct, BOTH, Step::RemoveLeftover)]
#[case::outdated_went_direct(outdated(), Eligibility::Direct, LABEL, Step::RemoveLeftover)]
#[case::taken_went_direct(standing(), Eligibility::Direct, NONE, Step::Forget)]
#[case::deleted(standing(), Eligibility::NotSelected, BOTH, Step::Forget)]
#[case::due_deleted(due(), Eligibility::NotSelected, NONE, Step::Forget)]
#[case::withheld_went_direct(withheld(due()), Eligibility::Direct, NONE, Step::Forget)]
#[case::stood_went_direct(withheld(standing()), Eligibility::Direct, BOTH, Step::RemoveLeftover)]
#[case::withheld_deleted(withheld(due()), Eligibility::NotSelected, NONE, Step::Forget)]
fn those_not_affected(
    #[case] mut record: Record,
    #[case] standing: Eligibility,
    #[case] seen: Seen,
    #[case] step: Step,
) {
    assert_eq!(record.decide("a", standing, Keys::Both, seen), step);
    record.done("a", step, record.epoch());
    assert_eq!(record.tally(), Tally::default());
}

/// What `direct` did not bring any more the manager has to; a runtime in `direct` is never signalled.
#[rstest]
#[case::handed_back(Goal::Orphan, Eligibility::Selected, true)]
#[case::still_direct(Goal::Orphan, Eligibility::Direct, false)]
#[case::not_selected_or_gone(Goal::Orphan, Eligibility::NotSelected, false)]
#[case::uninstalled(Goal::Delete, Eligibility::Selected, false)]
#[case::kept(Goal::Sync, Eligibility::Selected, false)]
fn leavers(#[case] purpose: Goal, #[case] standing: Eligibility, #[case] told: bool) {
    assert_eq!(is_told_of(purpose, standing), told);
}

/// Our key alone, nothing of the Runtime's state, and no resource version that a concurrent change could outdate.
#[rstest]
#[case(Step::Set, Keys::Both, NONE, json!({"metadata": {"labels": {KEY: "true"}, "annotations": {KEY: "true"}}}))]
#[case(Step::Set, Keys::Both, LABEL, json!({"metadata": {"annotations": {KEY: "true"}}}))]
#[case(Step::Set, Keys::Label, ANNOTATION, json!({"metadata": {"labels": {KEY: "true"}}}))]
#[case(Step::RemoveLeftover, Keys::Both, LABEL, json!({"metadata": {"labels": {KEY: null}}}))]
#[case(Step::RemoveLeftover, Keys::Annotation, BOTH, json!({"metadata": {"annotations": {KEY: null}}}))]
#[case(Step::Nothing, Keys::Both, BOTH, Value::Null)]
#[case(Step::Adopt, Keys::Both, BOTH, Value::Null)]
#[case(Step::Withhold, Keys::Both, NONE, Value::Null)]
#[case(Step::Forget, Keys::Both, NONE, Value::Null)]
fn patches(#[case] step: Step, #[case] keys: Keys, #[case] seen: Seen, #[case] expected: Value) {
    assert_eq!(patch(step, keys, seen).unwrap_or_default(), expected);
}

/// Creation, change and deletion count; nothing else does.
#[rstest]
#[case::same(sources(), None)]
#[case::changed(rotated("two"), Some(SourceKind::PullSecret))]
#[case::deleted(Sources { trust_bundle: SourceState::Absent, ..sources() }, Some(SourceKind::TrustBundle))]
#[case::invalid(Sources { pull_secret: SourceState::Invalid(SourceError::Key("x")), ..sources() }, None)]
fn changes(#[case] now: Sources, #[case] changed: Option<SourceKind>) {
    let mut record = started();
    let expected = changed.map_or(Advance::Unchanged, |kind| Advance::Changed(vec![kind]));
    assert_eq!(record.advance(&now, AT_ONCE, ["a"]), expected);
    assert_eq!(record.tally().due, usize::from(changed.is_some()));
    assert_eq!(
        record.advance(&now, AT_ONCE, ["a"]),
        Advance::Unchanged,
        "once is enough"
    );
}

#[test]
fn a_source_that_is_created_counts() {
    let mut record = Record::default();
    let before = Sources {
        trust_bundle: SourceState::Absent,
        ..sources()
    };
    assert_eq!(record.advance(&before, AT_ONCE, ["a"]), Advance::First);
    assert_eq!(
        record.advance(&sources(), AT_ONCE, ["a"]),
        Advance::Changed(vec![SourceKind::TrustBundle])
    );
}

/// What is recorded of a runtime already is worth more than what is seen on it.
#[rstest]
#[case::no_record(Record::default(), Tally::default())]
#[case::not_recorded(started(), Tally { standing: 1, ..Tally::default() })]
#[case::due(due(), Tally { due: 1, ..Tally::default() })]
#[case::outdated(outdated(), Tally { outdated: 1, ..Tally::default() })]
#[case::withheld(withheld(started()), Tally { outdated: 1, ..Tally::default() })]
fn a_signal_of_direct_mode_is_adopted(#[case] mut record: Record, #[case] tally: Tally) {
    record.adopt("a");
    assert_eq!(record.tally(), tally);
}

/// One runtime that fails holds up no other, and what is repeated is what is missing.
#[test]
fn a_failure_concerns_one_runtime() {
    let mut record = started();
    record.advance(&rotated("two"), AT_ONCE, ["a", "b", "c"]);
    for name in ["a", "c"] {
        record.done(name, Step::Set, record.epoch());
    }
    let steps: Vec<Step> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let seen = if *name == "b" { NONE } else { BOTH };
            record.decide(name, Eligibility::Selected, Keys::Both, seen)
        })
        .collect();
    assert_eq!(steps, [Step::Nothing, Step::Set, Step::Nothing]);
}

/// A change that comes between a decision and the answer to its patch.
#[rstest]
#[case::set(due(), Step::Set, Tally { outdated: 1, ..Tally::default() })]
#[case::leftover(standing(), Step::RemoveLeftover, Tally { due: 1, ..Tally::default() })]
#[case::forget(standing(), Step::Forget, Tally { due: 1, ..Tally::default() })]
fn a_change_on_the_way_is_not_lost(
    #[case] mut record: Record,
    #[case] step: Step,
    #[case] tally: Tally,
) {
    let since = record.epoch();
    record.advance(&rotated("four"), AT_ONCE, ["a"]);
    record.done("a", step, since);
    assert_eq!(record.tally(), tally);
}

/// What was decided before the record was read anew is never taken for what was decided after it.
#[test]
fn a_write_outlasts_the_record_that_it_was_decided_by() {
    let before = due();
    let since = before.epoch();
    let mut read = Record::read(&before.write()).unwrap().following(since);
    read.advance(&rotated("three"), AT_ONCE, ["a"]);
    read.done("a", Step::Set, since);
    assert_eq!(read.tally().outdated, 1);
}

/// Changes made while the controller was down are found by what the record says.
#[rstest]
#[case(Record::default())]
#[case(started())]
#[case(due())]
#[case(standing())]
#[case(outdated())]
fn a_record_survives_a_restart(#[case] record: Record) {
    let read = Record::read(&record.write()).unwrap();
    assert_eq!(read.write(), record.write());
    assert_eq!(read.tally(), record.tally());
    assert_eq!(read.known(), record.known());
    assert_eq!(
        read.pending().collect::<Vec<_>>(),
        record.pending().collect::<Vec<_>>()
    );
}

/// A source that cannot be used is not rolled out, by today's manager neither.
#[rstest]
#[case::pull_secret(Sources { pull_secret: unusable(), ..rotated("two") }, Step::Withhold)]
#[case::trust_bundle(Sources { trust_bundle: unusable(), ..rotated("two") }, Step::Withhold)]
#[case::configuration(Sources { configuration: unusable(), ..rotated("two") }, Step::Withhold)]
#[case::absent(Sources { trust_bundle: SourceState::Absent, ..rotated("two") }, Step::Set)]
#[case::not_looked_for(Sources { trust_bundle: SourceState::Unmanaged, ..rotated("two") }, Step::Set)]
fn signals_wait_for_sources_that_cannot_be_used(#[case] now: Sources, #[case] step: Step) {
    let mut record = due();
    record.advance(&now, AT_ONCE, ["a"]);
    let decided = record.decide("a", Eligibility::Selected, Keys::Both, NONE);
    assert_eq!(decided, step);
}

/// A change, a deletion and a creation while another source cannot be used, and whoever leads then.
#[test]
fn what_changes_meanwhile_is_recorded_and_due() {
    let mut record = started();
    let deleted = Sources {
        trust_bundle: SourceState::Absent,
        ..broken()
    };
    assert_eq!(
        record.advance(&deleted, AT_ONCE, ["a"]),
        Advance::Changed(vec![SourceKind::TrustBundle])
    );
    let known = record.known().get(SourceKind::TrustBundle);
    assert_eq!(known, Some(Last::Deleted), "also for direct mode");
    let mut next = Record::read(&record.write()).unwrap();
    assert_eq!(next.advance(&deleted, AT_ONCE, ["a"]), Advance::Unchanged);
    let step = |record: &Record| record.decide("a", Eligibility::Selected, Keys::Both, NONE);
    assert_eq!(step(&next), Step::Withhold);
    let mended = Sources {
        trust_bundle: SourceState::Absent,
        ..sources()
    };
    assert_eq!(next.advance(&mended, AT_ONCE, ["a"]), Advance::Unchanged);
    assert_eq!(step(&next), Step::Set);
}

/// The manager may take it with what cannot be used, and what is mended to what it was is no change.
#[test]
fn a_signal_that_stands_when_a_source_becomes_unusable_is_followed_by_another() {
    let mut record = standing();
    assert_eq!(record.advance(&broken(), AT_ONCE, ["a"]), Advance::Noted);
    assert_eq!(
        record.advance(&broken(), AT_ONCE, ["a"]),
        Advance::Unchanged
    );
    let mut next = Record::read(&record.write()).unwrap();
    assert_eq!(
        next.advance(&rotated("two"), AT_ONCE, ["a"]),
        Advance::Unchanged
    );
    let step = next.decide("a", Eligibility::Selected, Keys::Both, NONE);
    assert_eq!(step, Step::Set);
}

/// It was decided upon before, and what it brings is not certain any more.
#[test]
fn a_signal_on_its_way_when_a_source_becomes_unusable_is_followed_by_another() {
    let mut record = due();
    let since = record.epoch();
    record.advance(&broken(), AT_ONCE, ["a"]);
    record.done("a", Step::Set, since);
    assert_eq!(record.tally().outdated, 1);
}

#[test]
fn a_first_start_with_a_source_that_cannot_be_used_signals_once_it_can() {
    let mut record = Record::default();
    assert_eq!(record.advance(&broken(), AT_ONCE, ["a"]), Advance::First);
    assert_eq!(
        record.advance(&sources(), AT_ONCE, ["a"]),
        Advance::Changed(vec![SourceKind::PullSecret])
    );
    let step = record.decide("a", Eligibility::Selected, Keys::Both, NONE);
    assert_eq!(step, Step::Set);
}

#[test]
fn a_damaged_record_is_an_error() {
    let mut data = started().write();
    data.insert("lastSeen.configuration".to_owned(), "?".to_owned());
    assert!(Record::read(&data).is_err());
}

/// A ConfigMap holds a mebibyte.
#[test]
fn ten_thousand_runtimes_fit_into_a_record() {
    let names: Vec<String> = (0..10_000)
        .map(|it| format!("{it:08}-3b1f-4c11-9a52-90d38a6ad70f"))
        .collect();
    let mut record = started();
    record.advance(&rotated("two"), AT_ONCE, names.iter().map(String::as_str));
    let bytes: usize = record
        .write()
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    assert!(bytes < 400_000, "{bytes}");
    assert_eq!(Record::read(&record.write()).unwrap().tally().due, 10_000);
}
