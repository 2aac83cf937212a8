//! Steps, soak duration, limits, pauses and the state of the next leader.

use std::time::Duration;

use rstest::rstest;

use crate::sync::Hash;
use crate::sync::rollout::{
    Begin, Initial, LaneResult, MaxFailures, Name, Observation, Phase, RUNNING_DEADLINE, Resumed,
    Rollout, Settings, Step, Stopped, WritePermit, order,
};

pub(super) const SOAK: Duration = Duration::from_mins(2);

pub(super) fn revision(number: u8) -> Hash {
    format!("{number:064x}").parse().unwrap()
}

pub(super) fn name(number: usize) -> Name {
    format!("r{number:04}").into()
}

/// Returns the default settings of the webhook lane.
pub(super) fn defaults() -> Settings {
    let steps = [1, 10].map(Step::Percent);
    Settings {
        soak: SOAK,
        max_failures: Some(MaxFailures::Percent(2)),
        keeps_revisions: true,
        ..Settings::new([vec![Step::Count(1)], steps.to_vec()].concat())
    }
}

pub(super) fn begin(target: Hash, completed: Option<Hash>, resumed: Option<usize>) -> Begin {
    Begin {
        target,
        completed,
        resumed: resumed.map(|step| Resumed {
            step,
            is_complete: completed == Some(target),
        }),
        now: Duration::ZERO,
    }
}

pub(super) fn note(
    rollout: &mut Rollout,
    name: &str,
    permit: Option<WritePermit>,
    (result, wrote): (LaneResult, bool),
    now: Duration,
) {
    let report = Observation {
        permit,
        result,
        wrote,
    };
    rollout.note(name, report, now);
}

/// Returns the rollout of revision 2, with members that have revision 1 completely.
pub(super) fn upgrade(settings: Settings, members: usize) -> Rollout {
    let mut rollout = Rollout::new(settings);
    for number in 0..members {
        rollout.join(&name(number), u32::MAX, Initial::default(), Duration::ZERO);
    }
    let old = revision(1);
    rollout.begin(begin(revision(2), Some(old), None), |_| holds(old));
    rollout
}

pub(super) fn holds(revision: Hash) -> Initial {
    Initial {
        revision: Some(revision),
        is_complete: true,
        ..Initial::default()
    }
}

/// Starts every member that may start, with this result. Returns the number of started members.
pub(super) fn run(rollout: &mut Rollout, result: LaneResult, now: Duration) -> usize {
    let names: Vec<Name> = rollout.startable().cloned().collect();
    for name in &names {
        let permit = rollout.start(name, now);
        assert_eq!(permit.map(WritePermit::revision), rollout.target());
        note(rollout, name, permit, (result, true), now);
    }
    names.len()
}

/// Observes every member that soaks, with this result.
pub(super) fn observe(rollout: &mut Rollout, members: usize, result: LaneResult, now: Duration) {
    for name in (0..members).map(name) {
        if let Some(Phase::Soaking { .. }) = rollout.phase(&name) {
            let permit = rollout.access(&name);
            note(rollout, &name, permit, (result, false), now);
        }
    }
}

#[test]
fn default_steps_admit_one_then_1_percent_then_10_percent_then_all() {
    const MEMBERS: usize = 5_000;
    let mut rollout = upgrade(defaults(), MEMBERS);
    let mut now = Duration::ZERO;
    let mut started = Vec::new();
    for step in 1..=4 {
        assert_eq!(rollout.progress().step, step);
        started.push(run(&mut rollout, LaneResult::Done, now));
        now += SOAK.saturating_sub(Duration::from_secs(1));
        observe(&mut rollout, MEMBERS, LaneResult::Done, now);
        assert_eq!(rollout.progress().step, step, "the step is not soaked");
        now += Duration::from_secs(1);
        observe(&mut rollout, MEMBERS, LaneResult::Done, now);
    }
    assert_eq!(started, [1, 49, 450, 4_500]);
    assert!(rollout.progress().is_complete);
    assert_eq!(rollout.completed(), Some(revision(2)));
}

#[rstest]
#[case::rejected(LaneResult::Failed)]
#[case::unreachable_after_a_write(LaneResult::Unreachable)]
fn a_bad_revision_reaches_one_of_5000(#[case] result: LaneResult) {
    let mut rollout = upgrade(defaults(), 5_000);
    assert_eq!(run(&mut rollout, result, Duration::ZERO), 1);
    assert_eq!(
        rollout.progress().stopped,
        Some(Stopped::FailureLimitExceeded)
    );
    assert_eq!(rollout.startable().count(), 0);
    assert_eq!(rollout.progress().counts.waiting, 4_999);
}

#[test]
fn readiness_lost_during_the_soak_is_a_failure_until_the_member_is_complete_again() {
    let mut rollout = upgrade(defaults(), 10);
    run(&mut rollout, LaneResult::Done, Duration::ZERO);
    observe(&mut rollout, 10, LaneResult::Progressing, SOAK / 2);
    assert!(rollout.phase("r0000").unwrap().is_failed());
    assert_eq!(rollout.startable().count(), 0);
    let permit = rollout.access("r0000");
    let next = SOAK / 2 + Duration::from_secs(2);
    let report = (LaneResult::Progressing, false);
    note(&mut rollout, "r0000", permit, report, next);
    assert!(rollout.phase("r0000").unwrap().is_failed());
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Done, false),
        SOAK,
    );
    assert_eq!(rollout.progress().stopped, None);
    assert_eq!(rollout.startable().count(), 0, "it soaks again");
    observe(&mut rollout, 10, LaneResult::Done, SOAK * 2);
    assert_eq!(rollout.startable().count(), 9);
}

#[test]
fn a_member_that_is_not_ready_by_its_deadline_has_failed() {
    let mut rollout = upgrade(defaults(), 2);
    run(&mut rollout, LaneResult::Progressing, Duration::ZERO);
    let permit = rollout.access("r0000");
    for result in [LaneResult::Progressing, LaneResult::Interrupted] {
        let early = RUNNING_DEADLINE.saturating_sub(Duration::from_secs(1));
        note(&mut rollout, "r0000", permit, (result, false), early);
        assert_eq!(rollout.progress().counts.failed, 0);
    }
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Interrupted, false),
        RUNNING_DEADLINE,
    );
    assert_eq!(
        rollout.progress().stopped,
        Some(Stopped::FailureLimitExceeded)
    );
}

#[test]
fn a_member_that_was_unreachable_before_delays_no_step_and_starts_when_it_is_back() {
    let mut rollout = upgrade(Settings::new(vec![Step::Count(1)]), 3);
    note(
        &mut rollout,
        "r0000",
        None,
        (LaneResult::Unreachable, false),
        Duration::ZERO,
    );
    assert_eq!(rollout.phase("r0000"), Some(Phase::Unreachable));
    run(&mut rollout, LaneResult::Done, Duration::ZERO);
    assert!(!rollout.progress().is_complete);
    run(&mut rollout, LaneResult::Done, Duration::ZERO);
    assert!(rollout.progress().is_complete);
    let permit = rollout.start("r0000", Duration::ZERO);
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Done, true),
        Duration::ZERO,
    );
    assert_eq!(rollout.progress().counts.done, 3);
}

/// Otherwise an unreachable runtime would be the first step of every rollout, and the revision would reach many
/// runtimes without a test.
#[test]
fn an_unreachable_member_takes_no_place_in_a_step() {
    let mut rollout = upgrade(defaults(), 5_000);
    let unreachable = |rollout: &mut Rollout, name: &str| {
        let report = (LaneResult::Unreachable, false);
        note(rollout, name, None, report, Duration::ZERO);
    };
    unreachable(&mut rollout, "r0000");
    assert!(rollout.is_startable("r0001"));
    assert_eq!(rollout.startable().count(), 1);
    // A member that is found unreachable at its start is replaced by the next member.
    let permit = rollout.start("r0001", Duration::ZERO);
    let report = (LaneResult::Unreachable, false);
    note(&mut rollout, "r0001", permit, report, Duration::ZERO);
    assert!(rollout.is_startable("r0002"));
    // A member that is reachable again waits for a later step.
    let report = (LaneResult::Deferred, false);
    note(&mut rollout, "r0000", None, report, Duration::ZERO);
    assert_eq!(rollout.startable().count(), 1);
    assert_eq!(rollout.progress().step, 1);
    // A rollout that reaches no member does not progress.
    for number in 0..5_000 {
        unreachable(&mut rollout, &name(number));
    }
    assert_eq!(rollout.progress().step, 1);
    assert!(!rollout.progress().is_complete);
}

#[test]
fn a_new_member_gets_the_last_completed_revision_whatever_stops_the_rollout() {
    let mut rollout = upgrade(defaults(), 3);
    rollout.pause(true);
    rollout.join(&name(9), u32::MAX, Initial::default(), Duration::ZERO);
    let permit = rollout.start("r0009", Duration::ZERO).unwrap();
    assert_eq!(permit.revision(), revision(1));
    note(
        &mut rollout,
        "r0009",
        Some(permit),
        (LaneResult::Done, true),
        Duration::ZERO,
    );
    assert_eq!(rollout.phase("r0009"), Some(Phase::Waiting));
    // The member is part of the rollout from then on.
    rollout.pause(false);
    let mut now = Duration::ZERO;
    for _ in 0..4 {
        run(&mut rollout, LaneResult::Done, now);
        now += SOAK;
        observe(&mut rollout, 10, LaneResult::Done, now);
    }
    assert_eq!(rollout.revision("r0009"), Some(revision(2)));
}

#[test]
fn a_waiting_member_keeps_the_completed_revision_and_no_other_one_is_written() {
    let mut rollout = upgrade(defaults(), 3);
    let kept = rollout.access("r0002").unwrap();
    assert_eq!(kept.revision(), revision(1), "drift is repaired");
    let other = |_: &Name| holds(revision(7));
    rollout.begin(begin(revision(2), Some(revision(1)), None), other);
    assert_eq!(rollout.access("r0002"), None);
}

#[test]
fn the_first_revision_of_all_is_stepped() {
    let mut rollout = Rollout::new(defaults());
    rollout.begin(begin(revision(1), None, None), |_| Initial::default());
    assert!(
        !rollout.progress().is_complete,
        "no member shows that it works"
    );
    for number in 0..3 {
        rollout.join(&name(number), u32::MAX, Initial::default(), Duration::ZERO);
    }
    assert_eq!(run(&mut rollout, LaneResult::Done, Duration::ZERO), 1);
    assert_eq!(rollout.access("r0001"), None);
    observe(&mut rollout, 3, LaneResult::Done, SOAK);
    assert_eq!(run(&mut rollout, LaneResult::Done, SOAK), 2);
}

#[test]
fn a_member_without_configuration_gets_the_current_one_where_no_other_is_kept() {
    let mut rollout = Rollout::new(Settings::new(Vec::new()));
    rollout.pause(true);
    rollout.join(&name(0), u32::MAX, Initial::default(), Duration::ZERO);
    rollout.begin(begin(revision(2), Some(revision(1)), None), |_| {
        Initial::default()
    });
    let permit = rollout.start("r0000", Duration::ZERO);
    assert_eq!(permit.map(WritePermit::revision), Some(revision(2)));
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Done, true),
        Duration::ZERO,
    );
    assert_eq!(rollout.phase("r0000"), Some(Phase::Done));
}

#[test]
fn a_rollback_to_an_earlier_revision_is_stepped() {
    let mut rollout = upgrade(defaults(), 10);
    rollout.begin(begin(revision(1), Some(revision(2)), None), |_| {
        holds(revision(2))
    });
    assert_eq!(run(&mut rollout, LaneResult::Done, Duration::ZERO), 1);
    assert_eq!(rollout.progress().counts.waiting, 9);
    // A rollback is also stepped while revision 2 is not complete: no member with revision 2 is changed outside a step.
    rollout.begin(begin(revision(1), Some(revision(1)), None), |_| {
        holds(revision(2))
    });
    assert_eq!(rollout.access("r0005"), None);
    assert_eq!(rollout.startable().count(), 1);
}

/// They had the revision before, and do not get it by the rollback.
#[test]
fn a_rollback_is_not_stopped_by_runtimes_that_it_does_not_change() {
    let mut rollout = upgrade(defaults(), 10);
    let old = revision(1);
    let failed = Initial {
        is_failed: true,
        ..holds(old)
    };
    let incomplete = Initial {
        is_complete: false,
        ..holds(old)
    };
    let initial = |it: &Name| match &**it {
        "r0000" => holds(revision(2)),
        "r0001" => failed,
        "r0002" => incomplete,
        _ => holds(old),
    };
    rollout.begin(begin(old, Some(old), None), initial);
    let progress = rollout.progress();
    assert_eq!(progress.stopped, None);
    assert_eq!(progress.counts.failed + progress.counts.progressing, 0);
    let startable: Vec<&Name> = rollout.startable().collect();
    assert_eq!(startable, [&name(0)]);
}

/// The revision of a rollback was completed before.
#[test]
fn the_next_leader_goes_on_with_a_rollback() {
    let mut rollout = upgrade(defaults(), 10);
    let old = revision(1);
    let resumed = Some(Resumed {
        step: 0,
        is_complete: false,
    });
    let begin = Begin {
        resumed,
        ..begin(old, Some(old), None)
    };
    rollout.begin(begin, |_| holds(revision(2)));
    assert!(!rollout.progress().is_complete);
    assert_eq!(rollout.startable().count(), 1);
}

/// A reconcile may end early each time: after a conflict with another client, or without the kubeconfig.
#[test]
fn a_member_that_soaks_and_is_never_observed_has_failed() {
    let mut rollout = upgrade(defaults(), 10);
    assert_eq!(run(&mut rollout, LaneResult::Done, Duration::ZERO), 1);
    let interrupted = (LaneResult::Interrupted, false);
    for (now, is_failed) in [(SOAK, false), (SOAK + RUNNING_DEADLINE, true)] {
        let permit = rollout.access("r0000");
        note(&mut rollout, "r0000", permit, interrupted, now);
        assert_eq!(rollout.phase("r0000").unwrap().is_failed(), is_failed);
    }
    assert_eq!(
        rollout.progress().stopped,
        Some(Stopped::FailureLimitExceeded)
    );
}

#[test]
fn a_relabelled_member_that_has_not_started_goes_to_its_new_place() {
    let mut rollout = Rollout::new(defaults());
    for number in 0..3 {
        rollout.join(&name(number), 1, Initial::default(), Duration::ZERO);
    }
    rollout.begin(begin(revision(2), Some(revision(1)), None), |_| {
        holds(revision(1))
    });
    rollout.reorder(&name(0), 9);
    let startable: Vec<&Name> = rollout.startable().collect();
    assert_eq!(startable, [&name(1)]);
    let permit = rollout.start("r0001", Duration::ZERO);
    rollout.reorder(&name(1), 9);
    assert_eq!(rollout.access("r0001"), permit, "what started is finished");
    assert_eq!(rollout.startable().count(), 0);
}

/// A runtime is resumed long after this leader resumed the rollout, with an installation that is not ready yet.
#[test]
fn a_member_that_joins_late_has_the_time_of_the_deadline() {
    let mut rollout = upgrade(defaults(), 3);
    let target = revision(2);
    rollout.begin(begin(target, Some(revision(1)), Some(0)), |_| {
        holds(revision(1))
    });
    let now = Duration::from_hours(1);
    let started = Initial {
        is_complete: false,
        ..holds(target)
    };
    rollout.join(&name(9), 0, started, now);
    let permit = rollout.access("r0009");
    assert!(permit.is_some());
    let progressing = (LaneResult::Progressing, false);
    let soon = now + Duration::from_secs(1);
    note(&mut rollout, "r0009", permit, progressing, soon);
    assert!(!rollout.phase("r0009").unwrap().is_failed());
    let late = now + defaults().deadline;
    note(&mut rollout, "r0009", permit, progressing, late);
    assert!(rollout.phase("r0009").unwrap().is_failed());
}

#[rstest]
#[case::none(0, 1, false)]
#[case::as_many_as_allowed(2, 2, false)]
#[case::one_more(2, 3, true)]
fn failures_are_counted_against_a_number(
    #[case] allowed: u32,
    #[case] failures: usize,
    #[case] is_stopped: bool,
) {
    let settings = Settings {
        max_failures: Some(MaxFailures::Count(allowed)),
        ..Settings::new(Vec::new())
    };
    let mut rollout = upgrade(settings, 10);
    for name in (0..failures).map(name) {
        let permit = rollout.start(&name, Duration::ZERO);
        note(
            &mut rollout,
            &name,
            permit,
            (LaneResult::Failed, true),
            Duration::ZERO,
        );
    }
    let is_stopped = is_stopped || failures > usize::try_from(allowed).unwrap();
    assert_eq!(rollout.progress().stopped.is_some(), is_stopped);
}

#[test]
fn the_next_leader_continues_the_step_with_its_failures() {
    let now = Duration::ZERO;
    let target = revision(2);
    let mut rollout = Rollout::new(defaults());
    for number in 0..200 {
        rollout.join(&name(number), u32::MAX, Initial::default(), Duration::ZERO);
    }
    let lost = Initial {
        revision: Some(target),
        is_unreachable: true,
        ..Initial::default()
    };
    let initial = |it: &Name| match &**it {
        "r0000" => holds(target),
        "r0001" => lost,
        _ => holds(revision(1)),
    };
    rollout.begin(begin(target, Some(revision(1)), Some(1)), initial);
    assert_eq!(rollout.progress().step, 2);
    assert_eq!(rollout.phase("r0000"), Some(Phase::Soaking { since: now }));
    assert!(rollout.phase("r0001").unwrap().is_failed());
    assert_eq!(rollout.startable().count(), 0);
    // A complete rollout remains complete.
    rollout.begin(begin(target, Some(target), Some(3)), |_| holds(target));
    assert!(rollout.progress().is_complete);
    rollout.join(&name(900), u32::MAX, Initial::default(), Duration::ZERO);
    let permit = rollout.start("r0900", now).unwrap();
    assert_eq!(permit.revision(), target);
}

/// The member was unreachable before, so that the new revision is not the cause, and may be the repair.
#[test]
fn a_runtime_that_an_earlier_revision_left_unreachable_stops_no_rollout() {
    let mut rollout = upgrade(defaults(), 3);
    let lost = Initial {
        revision: Some(revision(1)),
        is_unreachable: true,
        ..Initial::default()
    };
    let initial = |it: &Name| {
        if **it == *"r0000" {
            lost
        } else {
            holds(revision(1))
        }
    };
    rollout.begin(begin(revision(2), Some(revision(1)), None), initial);
    assert_eq!(rollout.phase("r0000"), Some(Phase::Unreachable));
    assert_eq!(rollout.progress().stopped, None);
}

#[rstest]
#[case(Some("1"), 1)]
#[case(Some(" 07 "), 7)]
#[case(Some("-1"), u32::MAX)]
#[case(Some("first"), u32::MAX)]
#[case(None, u32::MAX)]
fn orders(#[case] label: Option<&str>, #[case] expected: u32) {
    assert_eq!(order(label), expected);
}
