//! What the next leader or the next rollout knows of failed members, and of those that were written to.

use super::*;

/// A stop outlives the leader that saw it, and ends as it would have there.
#[test]
fn what_failed_under_an_earlier_leader_counts() {
    let members = FIVE.map(|it| (it.to_owned(), 0));
    let settings = settings(0, Budget::Count(1));
    let mut before = Rollout::begin(settings, members.clone());
    for name in ["a", "b", "c"] {
        before.set(name, State::Failed);
    }
    before.leave("c");
    let failed: Vec<&str> = before.failed().collect();
    assert_eq!(failed, ["a", "b"]);

    let mut rollout = Rollout::begin(settings, members);
    rollout.recall(failed.iter().copied().chain(["stranger"]));
    assert_eq!(rollout.progress().stopped, Some(Stopped::BudgetSpent));
    assert_eq!(starters(&rollout, &FIVE), ["a", "b"], "they may try again");
    rollout.set("a", State::Done);
    assert_eq!(starters(&rollout, &FIVE), FIVE);
    rollout.recall(["a"]);
    assert_eq!(rollout.state("a"), Some(State::Done), "it arrived since");
    assert_eq!(rollout.failed().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_failure_that_an_earlier_leader_saw_counts_also_where_the_member_is_lost_since() {
    let all = settings(0, Budget::Count(0));
    let mut rollout = Rollout::begin(all, members(&[("a", 0), ("b", 0)]));
    rollout.set("a", State::Unreachable);
    rollout.recall(["a"]);
    assert!(!rollout.may_start("b"));
    rollout.note("a", ReconcileResult::Unreachable, false, Duration::ZERO);
    assert!(!rollout.may_start("b"));
    rollout.note("a", ReconcileResult::Done, true, Duration::ZERO);
    assert!(rollout.may_start("b"));
}

/// The Pods of `a` were not ready when the leader changed, and no runtime can be reached since.
#[rstest]
#[case::waits(State::Waiting, true)]
#[case::was_lost_meanwhile(State::Unreachable, true)]
#[case::arrived_meanwhile(State::Done, false)]
fn what_an_earlier_leader_wrote_counts_until_it_arrives(
    #[case] begun: State,
    #[case] is_failure: bool,
) {
    let list = members(&[("a", 0), ("b", 1)]);
    let mut before = Rollout::begin(settings(1, Budget::Count(0)), list.clone());
    assert!(before.start("a", Duration::ZERO));
    before.note("a", ReconcileResult::Progressing, true, Duration::ZERO);
    let written: Vec<&str> = before.written().collect();
    assert_eq!(written, ["a"]);

    let mut rollout = Rollout::begin(settings(1, Budget::Count(0)), list);
    rollout.set("a", begun);
    rollout.recall_written(written.iter().copied().chain(["stranger"]));
    assert_eq!(rollout.may_start("b"), !is_failure);
    assert_eq!(rollout.state("stranger"), None);
    assert!(rollout.start("a", Duration::ZERO), "it may try again");
    rollout.note("a", ReconcileResult::Unreachable, false, Duration::ZERO);
    assert_eq!(rollout.failed().next().is_some(), is_failure);
    assert_eq!(rollout.may_start("b"), !is_failure);
    assert_eq!(rollout.written().next(), None, "it failed or arrived");
    rollout.note("a", ReconcileResult::Done, true, Duration::ZERO);
    rollout.note("a", ReconcileResult::Unreachable, false, Duration::ZERO);
    assert_eq!(rollout.state("a"), Some(State::Unreachable));
}

/// It waits like all others, and what was written to it is not forgotten meanwhile.
#[test]
fn a_member_that_an_earlier_leader_wrote_to_waits_for_the_end_of_a_pause() {
    let all = settings(0, Budget::Count(0));
    let paused = Settings {
        paused: true,
        ..all
    };
    let mut rollout = Rollout::begin(paused, members(&[("a", 0)]));
    rollout.recall_written(["a"]);
    assert!(!rollout.start("a", Duration::ZERO));
    for result in [ReconcileResult::Withheld, ReconcileResult::Unreachable] {
        rollout.note("a", result, false, Duration::ZERO);
        assert_eq!(rollout.state("a"), Some(State::Waiting));
        assert_eq!(rollout.written().collect::<Vec<_>>(), ["a"]);
    }
    rollout.configure(all);
    assert!(rollout.start("a", Duration::ZERO));
    rollout.note("a", ReconcileResult::Unreachable, false, Duration::ZERO);
    assert_eq!(rollout.state("a"), Some(State::Failed));
}
