use std::collections::BTreeMap;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::samples::{AT_ONCE, NOT_YET, secret, source_names, sources, unreadable};
use crate::sync::ObjectNames;
use crate::sync::rollout::MaxFailures;
use crate::sync::signal::{
    Advance, Counts, Eligibility, Gates, KimActivity, Limits, ObservedKeys, ObservedRuntime,
    PersistedState, Place, Revisions, RuntimeState, SignalKeys, Signaled, Step, StopReason, Target,
    needs_kim_signal,
};
use crate::sync::sources::{SourceState, Sources};
use crate::sync::status::Goal;
use crate::sync::{Hash, SourceKind};

const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";
const REVISION: &str = "rt-bootstrapper.kyma-project.io/signaled-revision";
const OLD: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NOW: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const BOTH: SignalKeys = SignalKeys::Both { obeyed: None };

fn hash(text: &str) -> Hash {
    text.parse().unwrap()
}

/// Returns a target with the current revision `NOW` and this baseline for Runtimes that were never signaled.
fn target(baseline: &str, keys: SignalKeys) -> Target {
    Target {
        revisions: Revisions {
            current: hash(NOW),
            baseline: hash(baseline),
            since: None,
        },
        keys,
        usable: true,
    }
}

/// Returns a selected Runtime; `keys` are `l` (label) and `a` (annotation).
fn runtime(signaled: Option<&str>, keys: &str) -> ObservedRuntime {
    ObservedRuntime {
        eligibility: Eligibility::Selected,
        signaled: Signaled::from(signaled),
        keys: ObservedKeys {
            label: keys.contains('l'),
            annotation: keys.contains('a'),
        },
        foreign: false,
        spoiled: false,
        activity: KimActivity::None,
        state: RuntimeState::Ready,
        created: None,
    }
}

fn rotated(password: &str) -> Sources {
    Sources {
        pull_secret: secret(password),
        ..sources()
    }
}

fn without_secret() -> Sources {
    Sources {
        pull_secret: SourceState::Absent,
        ..sources()
    }
}

fn started() -> PersistedState {
    let mut state = PersistedState::default();
    assert_eq!(state.advance(&sources(), AT_ONCE), Advance::First);
    state
}

fn current(state: &PersistedState) -> Hash {
    state.revisions().unwrap().current
}

#[rstest]
#[case::never_signaled_with_current_baseline(None, "", NOW, Step::Nothing)]
#[case::never_signaled_with_old_baseline(None, "", OLD, Step::Signal)]
#[case::never_signaled_by_us(None, "la", NOW, Step::Wait)]
#[case::old_revision(Some(OLD), "", NOW, Step::Signal)]
#[case::old_revision_unacknowledged(Some(OLD), "la", NOW, Step::Wait)]
#[case::old_revision_with_leftover(Some(OLD), "l", NOW, Step::Signal)]
#[case::unacknowledged(Some(NOW), "la", OLD, Step::Wait)]
#[case::acknowledged(Some(NOW), "", OLD, Step::Nothing)]
#[case::label_left(Some(NOW), "l", OLD, Step::RemoveLeftover)]
#[case::annotation_left(Some(NOW), "a", OLD, Step::RemoveLeftover)]
#[case::stale(Some("stale"), "", NOW, Step::Signal)]
#[case::garbage(Some("1"), "", NOW, Step::Signal)]
#[case::empty(Some(""), "", NOW, Step::Signal)]
fn step_of_selected_runtime(
    #[case] signaled: Option<&str>,
    #[case] keys: &str,
    #[case] baseline: &str,
    #[case] step: Step,
) {
    let target = target(baseline, BOTH);
    let runtime = runtime(signaled, keys);
    assert_eq!(target.step(&runtime), step);
    let suspended = ObservedRuntime {
        state: RuntimeState::Suspended,
        ..runtime
    };
    assert_eq!(target.step(&suspended), step);
}

/// The selector may have been extended since; KIM provisions a newer Runtime with the current sources.
#[rstest]
#[case::older(None, 99, NOW, Step::Signal)]
#[case::of_the_same_second(None, 100, NOW, Step::Nothing)]
#[case::newer(None, 101, NOW, Step::Nothing)]
#[case::newer_while_others_wait(None, 101, OLD, Step::Signal)]
#[case::older_and_signaled(Some(NOW), 99, NOW, Step::Nothing)]
fn step_of_a_runtime_by_its_age(
    #[case] signaled: Option<&str>,
    #[case] created: i64,
    #[case] baseline: &str,
    #[case] step: Step,
) {
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let mut target = target(baseline, BOTH);
    target.revisions.since = at(100);
    let runtime = ObservedRuntime {
        created: at(created),
        ..runtime(signaled, "")
    };
    assert_eq!(target.step(&runtime), step);
}

/// KIM stops at some errors before it acknowledges, until an annotation changes.
#[rstest]
#[case::old_revision_unacknowledged(Some(OLD), "la", Step::MarkStale)]
#[case::marked(Some("stale"), "la", Step::Wait)]
#[case::of_another_client(None, "la", Step::Wait)]
#[case::unacknowledged(Some(NOW), "la", Step::Wait)]
#[case::acknowledged(Some(OLD), "", Step::Signal)]
fn step_of_a_runtime_that_is_not_ready(
    #[case] signaled: Option<&str>,
    #[case] keys: &str,
    #[case] step: Step,
) {
    let runtime = ObservedRuntime {
        state: RuntimeState::NotReady,
        ..runtime(signaled, keys)
    };
    assert_eq!(target(NOW, BOTH).step(&runtime), step);
}

#[rstest]
#[case::not_selected(Eligibility::NotSelected, Some(OLD), "l", Step::Nothing)]
#[case::direct(Eligibility::Direct, None, "", Step::Nothing)]
#[case::direct_and_old(Eligibility::Direct, Some(OLD), "", Step::Nothing)]
#[case::direct_and_unacknowledged(Eligibility::Direct, Some(NOW), "la", Step::Withdraw)]
#[case::direct_and_acknowledged(Eligibility::Direct, Some(NOW), "l", Step::RemoveLeftover)]
#[case::orphaned(Eligibility::Direct, None, "la", Step::Nothing)]
fn step_of_runtime_that_is_not_selected(
    #[case] eligibility: Eligibility,
    #[case] signaled: Option<&str>,
    #[case] keys: &str,
    #[case] step: Step,
) {
    let runtime = ObservedRuntime {
        eligibility,
        ..runtime(signaled, keys)
    };
    assert_eq!(target(OLD, BOTH).step(&runtime), step);
}

#[rstest]
#[case::unacknowledged(Some(NOW), "la", Step::MarkStale)]
#[case::orphaned(None, "la", Step::MarkStale)]
#[case::followed_by_another_anyway(Some(OLD), "la", Step::Wait)]
#[case::acknowledged(Some(NOW), "", Step::Nothing)]
fn signal_is_marked_stale_while_a_source_cannot_be_used(
    #[case] signaled: Option<&str>,
    #[case] keys: &str,
    #[case] step: Step,
) {
    let target = Target {
        usable: false,
        ..target(NOW, BOTH)
    };
    let mut runtime = runtime(signaled, keys);
    runtime.spoiled = target.spoils(&runtime);
    assert_eq!(target.step(&runtime), step);
    // KIM acknowledges the signal before it is marked.
    let before = runtime;
    runtime.keys = ObservedKeys::default();
    runtime.follow(Some(&before), BOTH);
    let acknowledged = target.step(&runtime);
    assert_eq!(acknowledged == Step::MarkStale, step == Step::MarkStale);
    // The signal is marked.
    let before = runtime;
    runtime.signaled = Signaled::Stale;
    runtime.follow(Some(&before), BOTH);
    assert_eq!(target.step(&runtime), Step::Signal);
}

#[rstest]
#[case::set_by_another_client(Some(NOW), "", Some(NOW), "a", Step::Nothing)]
#[case::left_by_kim(Some(NOW), "la", Some(NOW), "a", Step::RemoveLeftover)]
#[case::left_of_a_signal_of_another_client(None, "la", None, "l", Step::RemoveLeftover)]
#[case::ours(Some(OLD), "", Some(NOW), "l", Step::RemoveLeftover)]
fn key_of_another_client_is_not_removed(
    #[case] signaled_before: Option<&str>,
    #[case] keys_before: &str,
    #[case] signaled: Option<&str>,
    #[case] keys: &str,
    #[case] step: Step,
) {
    let before = runtime(signaled_before, keys_before);
    let mut now = runtime(signaled, keys);
    now.follow(Some(&before), BOTH);
    assert_eq!(target(NOW, BOTH).step(&now), step);
    // Another observation does not change the result.
    let mut again = now;
    again.follow(Some(&now), BOTH);
    assert_eq!(again, now);
}

/// A new leader does not know who set a key, and another client sets only the key that KIM reads.
#[rstest]
#[case::one_of_two_keys_that_kim_may_read(BOTH, "a", Step::Nothing)]
#[case::the_key_that_kim_does_not_read(SignalKeys::Both { obeyed: Some(Place::Label) }, "a", Step::RemoveLeftover)]
#[case::a_signal(BOTH, "la", Step::Wait)]
fn key_is_not_removed_by_the_next_leader(
    #[case] keys_of_signal: SignalKeys,
    #[case] keys: &str,
    #[case] step: Step,
) {
    let mut first = runtime(Some(NOW), keys);
    first.follow(None, keys_of_signal);
    assert_eq!(target(NOW, keys_of_signal).step(&first), step);
}

#[rstest]
#[case::label(SignalKeys::Only(Place::Label), "la", json!({"labels": {KEY: "true"}, "annotations": {REVISION: NOW}}))]
#[case::annotation(SignalKeys::Only(Place::Annotation), "", json!({"annotations": {KEY: "true", REVISION: NOW}}))]
#[case::both(BOTH, "l", json!({"labels": {KEY: "true"}, "annotations": {KEY: "true", REVISION: NOW}}))]
fn signal_is_one_patch(#[case] keys: SignalKeys, #[case] on: &str, #[case] metadata: Value) {
    let patch = target(NOW, keys).patch(Step::Signal, &runtime(None, on));
    assert_eq!(patch, Some(json!({"metadata": metadata})));
}

#[rstest]
#[case(Step::RemoveLeftover, "l", Some(json!({"labels": {KEY: null}})))]
#[case(Step::RemoveLeftover, "a", Some(json!({"annotations": {KEY: null}})))]
#[case(Step::MarkStale, "la", Some(json!({"annotations": {REVISION: "stale"}})))]
#[case(Step::Withdraw, "la", Some(json!({"labels": {KEY: null}, "annotations": {KEY: null, REVISION: "stale"}})))]
#[case(Step::Nothing, "la", None)]
#[case(Step::Wait, "la", None)]
fn other_patches(#[case] step: Step, #[case] keys: &str, #[case] metadata: Option<Value>) {
    let patch = target(NOW, BOTH).patch(step, &runtime(Some(NOW), keys));
    assert_eq!(patch, metadata.map(|it| json!({ "metadata": it })));
}

#[test]
fn orphaned_runtime_is_signaled_without_a_revision() {
    let metadata = json!({"labels": {KEY: "true"}, "annotations": {KEY: "true", REVISION: null}});
    assert_eq!(BOTH.set(), json!({ "metadata": metadata }));
}

/// A signal exists while the key that KIM reads exists.
#[rstest]
#[case(Place::Label, "l", Step::Wait)]
#[case(Place::Label, "a", Step::RemoveLeftover)]
#[case(Place::Annotation, "a", Step::Wait)]
#[case(Place::Annotation, "l", Step::RemoveLeftover)]
fn key_that_kim_reads_decides(#[case] place: Place, #[case] keys: &str, #[case] step: Step) {
    let keys_of_signal = SignalKeys::Both {
        obeyed: Some(place),
    };
    let target = target(NOW, keys_of_signal);
    assert_eq!(target.step(&runtime(Some(NOW), keys)), step);
}

#[rstest]
#[case::orphaned(Goal::Orphan, Eligibility::Selected, true)]
#[case::still_direct(Goal::Orphan, Eligibility::Direct, false)]
#[case::not_selected_or_gone(Goal::Orphan, Eligibility::NotSelected, false)]
#[case::deleted(Goal::Delete, Eligibility::Selected, false)]
#[case::kept(Goal::Sync, Eligibility::Selected, false)]
fn orphaned_runtime_is_signaled(
    #[case] goal: Goal,
    #[case] eligibility: Eligibility,
    #[case] told: bool,
) {
    assert_eq!(needs_kim_signal(goal, eligibility), told);
}

fn counts(runtimes: &[ObservedRuntime]) -> Counts {
    let mut counts = Counts::default();
    for runtime in runtimes {
        counts.add(&target(NOW, BOTH), runtime);
    }
    counts
}

#[test]
fn each_selected_runtime_has_one_state() {
    let not_ready = |it| ObservedRuntime {
        state: RuntimeState::NotReady,
        ..it
    };
    let suspended = |it| ObservedRuntime {
        state: RuntimeState::Suspended,
        ..it
    };
    let foreign = |it| ObservedRuntime {
        foreign: true,
        ..it
    };
    let counts = counts(&[
        runtime(None, ""),
        not_ready(runtime(None, "")),
        runtime(Some(OLD), ""),
        runtime(Some(OLD), "la"),
        not_ready(runtime(Some(OLD), "la")),
        not_ready(runtime(Some("stale"), "la")),
        not_ready(runtime(Some(NOW), "la")),
        suspended(runtime(Some(NOW), "la")),
        foreign(runtime(Some(NOW), "la")),
        not_ready(runtime(Some(NOW), "l")),
        suspended(runtime(Some(NOW), "")),
        ObservedRuntime {
            activity: KimActivity::Copying,
            ..runtime(Some(NOW), "")
        },
        ObservedRuntime {
            eligibility: Eligibility::Direct,
            ..runtime(Some(NOW), "la")
        },
    ]);
    let expected = Counts {
        total: 12,
        waiting: 4,
        progressing: 4,
        copying: 1,
        done: 3,
        failed: 1,
        unacknowledged: 2,
        direct: 1,
    };
    assert_eq!(counts, expected);
}

#[rstest]
#[case::nothing(Gates::default(), (1, 0, 0), None)]
#[case::paused(Gates { paused: true, invalid_source: true, ..Gates::default() }, (0, 0, 0), Some(StopReason::Paused))]
#[case::invalid(Gates { invalid_source: true, deletion_pending: true, ..Gates::default() }, (0, 0, 0), Some(StopReason::InvalidSource))]
#[case::missing(Gates { deletion_pending: true, ..Gates::default() }, (1, 9, 50), Some(StopReason::DeletionPending))]
#[case::as_many_failures_as_allowed(Gates::default(), (1, 2, 0), None)]
#[case::more_failures(Gates::default(), (1, 3, 50), Some(StopReason::FailureLimitExceeded))]
#[case::more_failures_and_none_waits(Gates::default(), (0, 3, 50), None)]
#[case::below_the_limit(Gates::default(), (1, 0, 49), None)]
#[case::at_the_limit(Gates::default(), (1, 0, 50), Some(StopReason::UnacknowledgedLimitReached))]
fn signals_stop(
    #[case] gates: Gates,
    #[case] (waiting, failed, unacknowledged): (u32, u32, u32),
    #[case] reason: Option<StopReason>,
) {
    let counts = Counts {
        total: 100,
        waiting,
        failed,
        unacknowledged,
        ..Counts::default()
    };
    assert_eq!(StopReason::of(gates, &counts, &Limits::default()), reason);
}

#[rstest]
#[case(MaxFailures::Count(3), 5000, 3)]
#[case(MaxFailures::Percent(10), 9, 0)]
#[case(MaxFailures::Percent(10), 5000, 500)]
#[case(MaxFailures::Percent(100), u32::MAX, u32::MAX)]
fn limit_of_failures(#[case] max_failures: MaxFailures, #[case] total: u32, #[case] limit: u32) {
    let limits = Limits {
        max_failures,
        ..Limits::default()
    };
    assert_eq!(limits.failures(total), limit);
}

/// Only creation, change and deletion of content are a new revision.
#[rstest]
#[case::same(sources(), None)]
#[case::changed(rotated("two"), Some(SourceKind::PullSecret))]
#[case::deleted(without_secret(), Some(SourceKind::PullSecret))]
#[case::invalid(Sources { pull_secret: unreadable(), ..sources() }, None)]
fn content_is_a_new_revision(#[case] now: Sources, #[case] changed: Option<SourceKind>) {
    let mut state = started();
    let before = current(&state);
    let expected = changed.map_or(Advance::Unchanged, |kind| Advance::Changed(vec![kind]));
    assert_eq!(state.advance(&now, AT_ONCE), expected);
    assert_eq!(current(&state) != before, changed.is_some());
    assert_eq!(state.revisions().unwrap().baseline, before);
    let since = changed.map(|_| AT_ONCE.now);
    assert_eq!(state.revisions().unwrap().since, since);
    assert_eq!(state.advance(&now, AT_ONCE), Advance::Unchanged);
}

/// A changed or mistyped flag is not a deletion. A new name is saved, so that its deletion is detected.
#[test]
fn source_under_another_name_is_no_new_revision() {
    let names = || ObjectNames {
        pull_secret: Some("another".to_owned()),
        ..source_names()
    };
    let mut state = started();
    let before = current(&state);
    let mistyped = || Sources {
        names: names(),
        ..without_secret()
    };
    assert_eq!(state.advance(&mistyped(), AT_ONCE), Advance::Unchanged);
    let renamed = Sources {
        names: names(),
        ..sources()
    };
    assert_eq!(state.advance(&renamed, AT_ONCE), Advance::Noted);
    assert_eq!(current(&state), before);
    let deleted = Advance::Changed(vec![SourceKind::PullSecret]);
    assert_eq!(state.advance(&mistyped(), AT_ONCE), deleted);
}

#[test]
fn content_that_returns_before_all_runtimes_were_signaled_is_a_new_revision() {
    let mut state = started();
    let first = current(&state);
    let mut revisions = vec![first];
    for password in ["two", "one"].into_iter().cycle().take(24) {
        state.advance(&rotated(password), AT_ONCE);
        assert!(!revisions.contains(&current(&state)), "{password}");
        revisions.push(current(&state));
        state = PersistedState::read(&state.write()).unwrap();
    }
    assert!(state.complete());
    state.advance(&rotated("two"), AT_ONCE);
    assert!(state.complete() && !state.complete());
    // Every Runtime has been signaled, so that the revision of the content is unambiguous again, as after a loss of the state.
    state.advance(&sources(), AT_ONCE);
    assert_eq!(current(&state), first);
    assert_eq!(current(&started()), first);
    // An earlier revision is not used again.
    state.advance(&rotated("two"), AT_ONCE);
    assert!(!revisions.contains(&current(&state)));
}

#[test]
fn deleted_source_is_as_one_that_never_existed() {
    let mut state = started();
    state.advance(&without_secret(), AT_ONCE);
    let mut lost = PersistedState::default();
    assert_eq!(lost.advance(&without_secret(), AT_ONCE), Advance::First);
    assert_eq!(current(&lost), current(&state));
}

#[test]
fn missing_source_is_no_new_revision_before_the_grace_period_ends() {
    let mut state = started();
    let before = current(&state);
    assert_eq!(state.advance(&without_secret(), NOT_YET), Advance::Noted);
    assert!(state.history().next_deletion().is_some());
    assert_eq!(current(&state), before);
}

#[test]
fn state_survives_a_restart_and_stays_small() {
    let mut state = started();
    for index in 0..100 {
        state.advance(&rotated(&index.to_string()), AT_ONCE);
    }
    let data = state.write();
    assert_eq!(PersistedState::read(&data).unwrap(), state);
    let size: usize = data
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    assert!(size < 2000, "{size}");
    assert_eq!(
        PersistedState::read(&BTreeMap::new()).unwrap(),
        PersistedState::default()
    );
}

#[rstest]
#[case::source("lastSeen.configuration")]
#[case::baseline("baseline")]
#[case::revision("revision")]
fn damaged_state_is_an_error(#[case] key: &str) {
    let mut data = started().write();
    data.insert(key.to_owned(), "?".to_owned());
    assert!(PersistedState::read(&data).is_err());
}
