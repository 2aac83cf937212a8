use std::num::NonZeroU32;
use std::time::Duration;

use rstest::rstest;

use crate::sync::waves::{
    Budget, Counts, ReconcileResult, Rollout, Settings, State, Stopped, order,
};

mod recall;

const DEADLINE: Duration = Duration::from_mins(15);

fn settings(size: u32, budget: Budget) -> Settings {
    Settings {
        size: NonZeroU32::new(size),
        failure_budget: budget,
        paused: false,
        deadline: DEADLINE,
    }
}

fn members(list: &[(&str, u32)]) -> Vec<(String, u32)> {
    list.iter()
        .map(|(name, order)| ((*name).to_owned(), *order))
        .collect()
}

fn starters(rollout: &Rollout, names: &[&str]) -> Vec<String> {
    names
        .iter()
        .filter(|name| rollout.may_start(name))
        .map(|name| (*name).to_owned())
        .collect()
}

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn without_settings_all_start_at_once() {
    let rollout = Rollout::begin(
        settings(0, Budget::Count(0)),
        FIVE.map(|it| (it.to_owned(), 9)),
    );
    assert_eq!(starters(&rollout, &FIVE), FIVE);
    assert_eq!(rollout.progress().waves, 1);
    assert!(!rollout.may_start("stranger"));
}

#[test]
fn waves_go_by_order_then_name_and_wait_for_each_other() {
    let list = members(&[("a", 2), ("b", 2), ("c", 1), ("d", 2), ("e", u32::MAX)]);
    let mut rollout = Rollout::begin(settings(2, Budget::Count(0)), list);
    assert_eq!(starters(&rollout, &FIVE), ["c"]);
    rollout.set("c", State::Running);
    assert_eq!(starters(&rollout, &FIVE), ["c"]);
    rollout.set("c", State::Done);
    assert_eq!(starters(&rollout, &FIVE), ["a", "b", "c"]);
    rollout.set("a", State::Done);
    assert!(!rollout.may_start("d"));
    rollout.set("b", State::Unreachable);
    assert_eq!(
        rollout.progress().wave,
        3,
        "who cannot be reached holds up nobody"
    );
    rollout.set("d", State::Done);
    rollout.set("e", State::Done);
    let progress = rollout.progress();
    assert!(progress.finished);
    assert_eq!((progress.wave, progress.waves), (4, 4));
    assert_eq!(
        progress.counts,
        Counts {
            done: 4,
            unreachable: 1,
            ..Counts::default()
        }
    );
    rollout.set("b", State::Waiting);
    assert!(rollout.may_start("b"), "its wave has come long ago");
}

#[rstest]
#[case::none_allowed(Budget::Count(0), 1, true)]
#[case::one_allowed(Budget::Count(1), 1, false)]
#[case::one_too_many(Budget::Count(1), 2, true)]
#[case::percent_rounds_down(Budget::Percent(49), 1, false)]
#[case::percent_spent(Budget::Percent(49), 2, true)]
#[case::nothing_of_a_few(Budget::Percent(10), 1, true)]
fn budgets(#[case] budget: Budget, #[case] failures: usize, #[case] stopped: bool) {
    let mut rollout = Rollout::begin(settings(4, budget), FIVE.map(|it| (it.to_owned(), 0)));
    for name in &FIVE[..failures] {
        rollout.set(name, State::Failed);
    }
    assert_eq!(rollout.progress().stopped.is_some(), stopped);
    assert_eq!(rollout.may_start("d"), !stopped);
    assert!(rollout.may_start("a"), "who has begun tries again");
    for name in &FIVE[failures..4] {
        rollout.set(name, State::Done);
    }
    assert_eq!(
        rollout.may_start("e"),
        !stopped,
        "a wave that failed stops the rest"
    );
    for name in &FIVE[..4] {
        rollout.set(name, State::Done);
    }
    assert!(rollout.may_start("e"), "and goes on once it is mended");
}

#[test]
fn a_pause_holds_new_ones_only() {
    let mut rollout = Rollout::begin(
        settings(0, Budget::Count(0)),
        members(&[("a", 0), ("b", 0)]),
    );
    rollout.set("a", State::Running);
    rollout.configure(Settings {
        paused: true,
        ..settings(0, Budget::Count(0))
    });
    assert_eq!(starters(&rollout, &FIVE), ["a"]);
    assert_eq!(rollout.progress().stopped, Some(Stopped::Paused));
    rollout.configure(settings(0, Budget::Count(0)));
    assert_eq!(starters(&rollout, &FIVE), ["a", "b"]);
}

#[test]
fn members_come_and_go() {
    let mut rollout = Rollout::begin(
        settings(2, Budget::Count(0)),
        members(&[("a", 1), ("b", 2), ("c", 2)]),
    );
    rollout.join("d", 1);
    rollout.join("d", 1);
    assert_eq!(starters(&rollout, &FIVE), ["a", "d"]);
    rollout.join("e", 2);
    assert_eq!(
        rollout.progress().waves,
        3,
        "no capacity in the wave of its order"
    );
    rollout.leave("a");
    rollout.leave("d");
    rollout.leave("stranger");
    assert_eq!(starters(&rollout, &FIVE), ["b", "c"]);
    assert_eq!(rollout.state("a"), None);
    assert_eq!(rollout.progress().counts.all(), 3);
}

#[test]
fn nobody_is_a_finished_rollout() {
    let rollout = Rollout::begin(settings(2, Budget::Percent(100)), []);
    assert!(rollout.progress().finished);
    assert_eq!((rollout.progress().wave, rollout.progress().waves), (0, 0));
}

#[rstest]
#[case(Some("1"), 1)]
#[case(Some(" 7 "), 7)]
#[case(Some("first"), u32::MAX)]
#[case(Some("-1"), u32::MAX)]
#[case(None, u32::MAX)]
fn orders(#[case] label: Option<&str>, #[case] expected: u32) {
    assert_eq!(order(label), expected);
}

#[rstest]
#[case::of_a_later_wave("c")]
#[case::unknown("stranger")]
fn a_member_that_may_not_start_neither_runs_nor_fails(#[case] name: &str) {
    let mut rollout = Rollout::begin(
        settings(2, Budget::Count(1)),
        members(&[("a", 1), ("b", 1), ("c", 2)]),
    );
    let before = rollout.state(name);
    assert!(!rollout.start(name, Duration::ZERO));
    rollout.set(name, State::Running);
    rollout.set(name, State::Failed);
    assert_eq!(rollout.state(name), before);
    assert!(!rollout.may_start(name));
    assert!(rollout.start("a", Duration::ZERO));
    assert_eq!(rollout.state("a"), Some(State::Running));
}

#[test]
fn a_paused_rollout_lets_no_member_begin() {
    let paused = Settings {
        paused: true,
        ..settings(0, Budget::Count(0))
    };
    let mut rollout = Rollout::begin(paused, FIVE.map(|it| (it.to_owned(), 0)));
    for name in FIVE {
        rollout.set(name, State::Running);
        rollout.set(name, State::Failed);
    }
    assert_eq!(rollout.progress().counts.waiting, 5);
    // One that holds the version already is done, whoever wrote it.
    rollout.set("a", State::Done);
    assert_eq!(starters(&rollout, &FIVE), ["a"]);
}

/// What a member is after two reconciles that both tried to write, the second one a moment later.
#[rstest]
#[case::arrives(ReconcileResult::Progressing, ReconcileResult::Done, State::Done)]
#[case::lost_after_it_was_written(
    ReconcileResult::Progressing,
    ReconcileResult::Unreachable,
    State::Failed
)]
#[case::lost_after_a_failure(ReconcileResult::Failed, ReconcileResult::Unreachable, State::Failed)]
#[case::interrupted(
    ReconcileResult::Interrupted,
    ReconcileResult::Interrupted,
    State::Running
)]
#[case::interrupted_after_a_failure(
    ReconcileResult::Failed,
    ReconcileResult::Interrupted,
    State::Failed
)]
#[case::mended(ReconcileResult::Failed, ReconcileResult::Progressing, State::Running)]
#[case::lost_after_it_arrived(
    ReconcileResult::Done,
    ReconcileResult::Unreachable,
    State::Unreachable
)]
#[case::drift(ReconcileResult::Done, ReconcileResult::Progressing, State::Running)]
fn results(
    #[case] first: ReconcileResult,
    #[case] second: ReconcileResult,
    #[case] expected: State,
) {
    let mut rollout = Rollout::begin(
        settings(1, Budget::Count(0)),
        members(&[("a", 0), ("b", 1)]),
    );
    assert!(rollout.start("a", Duration::ZERO));
    rollout.note("a", first, true, Duration::ZERO);
    rollout.note(
        "a",
        second,
        second != ReconcileResult::Unreachable,
        Duration::from_secs(1),
    );
    assert_eq!(rollout.state("a"), Some(expected));
    let is_settled = matches!(expected, State::Done | State::Unreachable);
    assert_eq!(
        rollout.may_start("b"),
        is_settled || first == ReconcileResult::Done
    );
}

/// What is known already stays known where a reconcile finds out nothing and writes nothing.
#[rstest]
#[case(State::Waiting, State::Running)]
#[case(State::Done, State::Done)]
#[case(State::Unreachable, State::Unreachable)]
fn a_reconcile_without_any_result_changes_little(#[case] before: State, #[case] after: State) {
    let all = settings(0, Budget::Count(0));
    let mut rollout = Rollout::begin(all, members(&[("a", 0)]));
    rollout.set("a", before);
    rollout.note("a", ReconcileResult::Interrupted, false, Duration::ZERO);
    assert_eq!(rollout.state("a"), Some(after));
    rollout.note("a", ReconcileResult::Unreachable, false, Duration::ZERO);
    assert_eq!(
        rollout.state("a"),
        Some(State::Unreachable),
        "never written"
    );
    rollout.note("a", ReconcileResult::Withheld, false, Duration::ZERO);
    assert_eq!(rollout.state("a"), Some(State::Waiting), "reached again");
    rollout.note("stranger", ReconcileResult::Failed, true, Duration::ZERO);
    assert_eq!(rollout.state("stranger"), None);
}

#[rstest]
#[case::pods(ReconcileResult::Progressing)]
#[case::refusals_that_pass(ReconcileResult::Interrupted)]
fn a_member_that_runs_longer_than_the_deadline_has_failed(#[case] result: ReconcileResult) {
    let mut rollout = Rollout::begin(
        settings(1, Budget::Count(1)),
        members(&[("a", 0), ("b", 1)]),
    );
    let begun = Duration::from_secs(7);
    assert!(rollout.start("a", begun));
    let almost = DEADLINE + Duration::from_secs(6);
    rollout.note("a", result, false, almost);
    assert_eq!(rollout.state("a"), Some(State::Running));
    assert!(!rollout.may_start("b"));
    rollout.note("a", result, false, begun + DEADLINE);
    assert_eq!(rollout.state("a"), Some(State::Failed));
    assert!(rollout.may_start("b"), "one failure is allowed");
    rollout.note("a", ReconcileResult::Progressing, true, begun + DEADLINE);
    assert_eq!(rollout.state("a"), Some(State::Failed), "until it arrives");
    rollout.note("a", ReconcileResult::Done, true, begun + 2 * DEADLINE);
    // What happens to its Pods from now on is another matter, with a deadline of its own.
    rollout.note(
        "a",
        ReconcileResult::Progressing,
        false,
        begun + 3 * DEADLINE,
    );
    assert_eq!(rollout.state("a"), Some(State::Running));
}

/// Its reconcile was under way while the gate closed: it is there, and waits for its turn like all others.
#[test]
fn an_unreachable_member_that_comes_back_into_a_pause_waits() {
    let all = settings(0, Budget::Count(0));
    let mut rollout = Rollout::begin(all, members(&[("a", 0)]));
    rollout.set("a", State::Unreachable);
    assert!(rollout.start("a", Duration::ZERO));
    rollout.configure(Settings {
        paused: true,
        ..all
    });
    rollout.note("a", ReconcileResult::Progressing, true, Duration::ZERO);
    assert_eq!(rollout.state("a"), Some(State::Waiting));
}
