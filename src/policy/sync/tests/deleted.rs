//! Members that failed and then leave the rollout. Their deletion must not let the rollout start others: each deletion would let
//! another member fail.

use std::time::Duration;

use rstest::rstest;

use super::rollout::{SOAK, begin, defaults, holds, name, note, observe, revision, run, upgrade};
use crate::sync::rollout::{Initial, LaneResult, MaxFailures, Rollout, Settings, Step, Stopped};

const NOW: Duration = Duration::ZERO;

/// Returns the rollout of revision 2 to ten members, stopped because the first one failed.
fn stopped() -> Rollout {
    let mut rollout = upgrade(defaults(), 10);
    assert_eq!(run(&mut rollout, LaneResult::Failed, NOW), 1);
    rollout
}

fn failed(rollout: &Rollout) -> Vec<&str> {
    rollout.failed().map(|it| &**it).collect()
}

fn assert_stopped(rollout: &Rollout) {
    let progress = rollout.progress();
    assert_eq!(progress.stopped, Some(Stopped::FailureLimitExceeded));
    assert_eq!(rollout.startable().count(), 0);
}

#[test]
fn the_deletion_of_a_failed_member_starts_no_other() {
    let mut rollout = stopped();
    rollout.delete("r0000");
    assert_stopped(&rollout);
    assert_eq!(failed(&rollout), ["r0000"], "operators see which one");
    let progress = rollout.progress();
    assert_eq!((progress.counts.failed, progress.deleted), (0, 1));
    assert_eq!(progress.counts.total(), 9);
}

#[test]
fn the_deletion_of_a_member_that_has_not_failed_is_no_failure() {
    let mut rollout = upgrade(defaults(), 10);
    run(&mut rollout, LaneResult::Done, NOW);
    rollout.delete("r0000");
    assert_eq!(rollout.progress().deleted, 0);
    assert_eq!(
        rollout.startable().count(),
        1,
        "the next one takes its place"
    );
}

/// The operator excludes the runtime on purpose.
#[test]
fn a_failed_member_that_is_paused_does_not_count_also_if_it_is_deleted_then() {
    let mut rollout = stopped();
    rollout.leave("r0000");
    assert_eq!(rollout.progress().stopped, None);
    rollout.delete("r0000");
    assert_eq!(rollout.progress().stopped, None);
    assert_eq!(rollout.startable().count(), 1);
}

#[test]
fn a_rollout_that_is_resumed_does_not_count_deleted_members() {
    let mut rollout = stopped();
    rollout.delete("r0000");
    rollout.pause(false);
    assert_stopped(&rollout);
    rollout.pause(true);
    assert_eq!(rollout.startable().count(), 0);
    rollout.pause(false);
    assert_eq!(rollout.progress().stopped, None);
    assert_eq!(rollout.startable().count(), 1);
    assert_eq!(failed(&rollout), [""; 0]);
}

#[test]
fn another_revision_does_not_count_members_that_were_deleted_before() {
    let mut rollout = stopped();
    rollout.delete("r0000");
    let old = revision(1);
    rollout.begin(begin(revision(3), Some(old), None), |_| holds(old));
    assert_eq!(rollout.progress().stopped, None);
    assert_eq!(rollout.startable().count(), 1);
}

/// The controller creates the resource of a Runtime in mode `direct` again when it is deleted.
#[test]
fn a_failed_member_that_is_created_again_counts_until_it_is_excluded() {
    let mut rollout = stopped();
    rollout.delete("r0000");
    rollout.join(&name(0), u32::MAX, Initial::default(), NOW);
    assert_stopped(&rollout);
    rollout.leave("r0000");
    assert_eq!(rollout.progress().stopped, None);
    assert_eq!(rollout.startable().count(), 1);
}

#[test]
fn a_failed_member_that_is_created_again_and_starts_is_counted_once() {
    let settings = Settings {
        steps: Vec::new(),
        max_failures: Some(MaxFailures::Count(1)),
        ..defaults()
    };
    let mut rollout = upgrade(settings, 10);
    for _ in 0..2 {
        let permit = rollout.start("r0000", NOW);
        let report = (LaneResult::Failed, true);
        note(&mut rollout, "r0000", permit, report, NOW);
        assert_eq!(failed(&rollout), ["r0000"]);
        assert_eq!(rollout.progress().stopped, None);
        rollout.delete("r0000");
        assert_eq!(rollout.progress().deleted, 1);
        rollout.join(&name(0), u32::MAX, Initial::default(), NOW);
    }
}

#[test]
fn the_next_leader_counts_deleted_members() {
    let mut rollout = upgrade(defaults(), 10);
    rollout.delete("r0000");
    rollout.recall_failed([name(0)]);
    let old = revision(1);
    rollout.begin(begin(revision(2), Some(old), Some(0)), |_| holds(old));
    assert_stopped(&rollout);
}

/// The next leader finds a member of the same name, which has not started with the revision.
#[rstest]
#[case::nothing_is_written(Initial::default())]
#[case::the_last_completed_revision_is_written(holds(revision(1)))]
#[case::it_is_unreachable(Initial { is_unreachable: true, ..Initial::default() })]
fn the_next_leader_counts_a_failed_member_that_was_created_again(#[case] again: Initial) {
    let (mut rollout, old) = (upgrade(defaults(), 10), revision(1));
    rollout.recall_failed([name(0)]);
    rollout.begin(begin(revision(2), Some(old), Some(0)), |it| {
        if *it == name(0) { again } else { holds(old) }
    });
    assert_stopped(&rollout);
    assert_eq!(failed(&rollout), ["r0000"]);
    assert_eq!(rollout.progress().deleted, 1);
    rollout.leave("r0000");
    assert_eq!(rollout.progress().stopped, None, "an operator excludes it");
}

#[test]
fn the_next_leader_counts_a_failed_member_once() {
    let (mut rollout, old) = (upgrade(defaults(), 10), revision(1));
    rollout.recall_failed([name(0)]);
    rollout.begin(begin(revision(2), Some(old), Some(0)), |it| {
        let is_failed = *it == name(0);
        let revision = if is_failed { revision(2) } else { old };
        Initial {
            is_failed,
            ..holds(revision)
        }
    });
    assert_stopped(&rollout);
    assert_eq!(failed(&rollout), ["r0000"]);
    assert_eq!(rollout.progress().deleted, 0);
    let permit = rollout.access("r0000");
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Done, false),
        SOAK,
    );
    assert_eq!(rollout.progress().stopped, None, "it is complete after all");
}

/// Failures within the limit stop nothing, and a complete rollout has none of members that do not exist.
#[test]
fn a_rollout_completes_with_as_many_deleted_failures_as_allowed() {
    let settings = Settings {
        steps: vec![Step::Percent(100)],
        ..defaults()
    };
    let mut rollout = upgrade(settings, 100);
    let permit = rollout.start("r0000", NOW);
    note(
        &mut rollout,
        "r0000",
        permit,
        (LaneResult::Failed, true),
        NOW,
    );
    rollout.delete("r0000");
    assert_eq!(run(&mut rollout, LaneResult::Done, NOW), 99);
    observe(&mut rollout, 100, LaneResult::Done, SOAK);
    assert!(rollout.progress().is_complete);
    assert_eq!(failed(&rollout), [""; 0]);
}
