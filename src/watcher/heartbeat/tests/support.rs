//! Tests of which managers are asked again after they did not support heartbeats.

use super::*;

/// Returns the rounds in which a manager with these responses gets a heartbeat.
fn asked(rounds: u32, answer: impl Fn(u32) -> Answer, reached: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut support = HeartbeatSupport::default();
    let mut asked = Vec::new();
    for round in 1..=rounds {
        let reached = reached(round);
        if support.is_asked(reached) {
            asked.push(round);
            support.answered(answer(round), reached);
        }
    }
    asked
}

#[test]
fn a_public_listener_that_took_an_event_is_asked_again_after_an_hour() {
    assert_eq!(asked(150, |_| Answer::NotFound, |_| true), [1, 61, 121]);
}

/// The manager moves to a listener that supports heartbeats.
#[test]
fn a_listener_that_comes_to_support_heartbeats_gets_all() {
    let answer = |round| match round {
        ..30 => Answer::NotFound,
        _ => Answer::Accepted,
    };
    let rounds = asked(70, answer, |_| true);
    assert_eq!(rounds, [&[1][..], &(61..=70).collect::<Vec<_>>()].concat());
}

#[test]
fn one_that_took_none_is_asked_every_second_round_and_once_more_when_it_has() {
    let expected = [1, 2, 4, 6, 8, 10, 12, 13, 73];
    assert_eq!(
        asked(100, |_| Answer::NotFound, |round| round > 12),
        expected
    );
}

#[test]
fn a_route_that_comes_late_is_found_and_may_go_and_come_again() {
    let answer = |round| match round {
        ..7 | 30..40 => Answer::NotFound,
        _ => Answer::Accepted,
    };
    let rounds = asked(50, answer, |round| round > 25);
    assert_eq!(rounds[..4], [1, 2, 4, 6]);
    assert!(rounds[4..].iter().copied().eq(8..=50), "{rounds:?}");
}

#[test]
fn a_failure_says_nothing() {
    let answer = |round| {
        if round == 60 {
            Answer::NotFound
        } else {
            Answer::Failed
        }
    };
    assert!(asked(60, answer, |_| true).into_iter().eq(1..=60));
    assert_eq!(asked(100, answer, |_| true).len(), 60);
}
