//! Tests of the missing numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// Count of numbers that may still arrive.
const WINDOW: u64 = WORDS * BITS;

fn after(arrivals: &[u64]) -> Sequences {
    let mut sequences = Sequences::default();
    for &number in arrivals {
        sequences.arrived(number);
    }
    sequences
}

#[rstest]
#[case::none(&[], 0)]
#[case::in_order(&[1, 2, 3], 0)]
#[case::the_first_heard_is_late_in_its_life(&[500, 501], 0)]
#[case::one_missing(&[1, 3], 1)]
#[case::it_comes_later(&[1, 3, 2], 0)]
#[case::twice(&[1, 3, 3, 1], 1)]
#[case::one_before_the_first(&[5, 4], 0)]
#[case::a_leap_within_the_window(&[1, 1001], 999)]
#[case::still_in_time(&[1, 1001, 2], 998)]
#[case::a_leap_of_the_window(&[1, WINDOW], WINDOW - 2)]
#[case::a_leap_beyond_the_window(&[1, 2 * WINDOW], WINDOW - 2)]
#[case::too_late_to_be_counted(&[1, 2 * WINDOW, 2], WINDOW - 2)]
#[case::just_in_time(&[1, 2 * WINDOW, WINDOW + 64], WINDOW - 3)]
#[case::an_absurd_leap(&[1, u64::MAX], WINDOW + 61)]
#[case::a_leap_after_many_numbers_were_missed(&[1, WINDOW, 9 * WINDOW], 2 * WINDOW - 3)]
fn a_gap_counts_as_missed_until_its_events_arrive(#[case] arrivals: &[u64], #[case] missing: u64) {
    assert_eq!(after(arrivals).missing(), missing);
}

#[test]
fn what_a_heartbeat_vouches_for_is_missed_until_it_comes() {
    let mut sequences = after(&[1, 2]);
    sequences.expect(4);
    assert_eq!((sequences.missing(), sequences.highest()), (2, 4));
    sequences.arrived(4);
    sequences.arrived(3);
    assert_eq!(sequences.missing(), 0);
    sequences.expect(2);
    assert_eq!((sequences.missing(), sequences.highest()), (0, 4));
}

/// At the time of a second heartbeat, no number that the first heartbeat confirmed is in progress.
#[test]
fn what_two_heartbeats_vouch_for_is_lost_for_good() {
    let mut sequences = after(&[1, 2]);
    sequences.expect(4);
    sequences.expect(4);
    sequences.arrived(3);
    sequences.arrived(6);
    assert_eq!(sequences.missing(), 3, "3 and 4, and 5 for now");
    sequences.arrived(5);
    assert_eq!(sequences.missing(), 2);
}

/// The first number is missing, so that no word can be removed, until it is lost.
#[test]
fn space_is_bounded_and_given_back() {
    let mut sequences = after(&[0]);
    let most = (2..4 * WINDOW).map(|number| {
        sequences.arrived(number);
        sequences.words.capacity()
    });
    assert!(most.max().unwrap() <= 2 * usize::try_from(WORDS).unwrap());
    sequences.expect(4 * WINDOW);
    sequences.expect(4 * WINDOW);
    assert_eq!(sequences.missing(), 2);
    assert!(sequences.words.capacity() <= 8, "{sequences:?}");
}

#[test]
fn a_heartbeat_before_any_event_is_where_counting_begins() {
    let mut sequences = Sequences::default();
    sequences.expect(7);
    assert_eq!(sequences.missing(), 0);
    sequences.arrived(9);
    assert_eq!(sequences.missing(), 1);
}

proptest! {
    /// Any client with a certificate can set these numbers in a header.
    #[test]
    fn no_numbers_make_it_fail(numbers in prop::collection::vec((any::<bool>(), prop_oneof![any::<u64>(), 0..200_u64, u64::MAX - 200..=u64::MAX]), 0..40)) {
        let mut sequences = Sequences::default();
        for (event, number) in numbers {
            if event {
                sequences.arrived(number);
            } else {
                sequences.expect(number);
            }
            prop_assert!(sequences.missing() <= sequences.highest());
            prop_assert!(sequences.words.len() <= usize::try_from(WORDS).unwrap());
        }
    }

    /// Compares with an implementation that stores all numbers. The numbers arrive in a random order.
    #[test]
    fn counts_equal_those_of_a_model_without_a_limit(jitter in prop::collection::vec((0_u64..3_000, any::<bool>()), 1..3_000)) {
        let mut arrivals: Vec<_> = (100_u64..)
            .zip(&jitter)
            .filter(|(_, (_, lost))| !lost)
            .map(|(number, (late, _))| (number + late, number))
            .collect();
        arrivals.sort_unstable();
        let Some(&(_, first)) = arrivals.first() else { return Ok(()) };
        let seen: BTreeSet<_> = arrivals.iter().map(|&(_, number)| number).collect();
        let numbers: Vec<_> = arrivals.iter().map(|&(_, number)| number).collect();
        let highest = *seen.last().unwrap();
        let expected = (first..=highest).filter(|number| !seen.contains(number)).count();
        prop_assert_eq!(after(&numbers).missing(), u64::try_from(expected).unwrap());
    }
}
