//! Which numbers are missed.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;

use super::*;

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
#[case::a_leap_within_the_window(&[1, 65], 63)]
#[case::a_leap_beyond_it(&[1, 1001], 999)]
#[case::too_late_to_be_counted(&[1, 1001, 2], 999)]
#[case::still_in_time(&[1, 1001, 938], 998)]
#[case::an_absurd_leap(&[1, u64::MAX], u64::MAX - 2)]
fn gaps_are_missed_until_they_are_filled(#[case] arrivals: &[u64], #[case] missing: u64) {
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

#[test]
fn a_heartbeat_before_any_event_is_where_counting_begins() {
    let mut sequences = Sequences::default();
    sequences.expect(7);
    assert_eq!(sequences.missing(), 0);
    sequences.arrived(9);
    assert_eq!(sequences.missing(), 1);
}

proptest! {
    /// Against the obvious way: keep all numbers. Numbers come at most 60 late.
    #[test]
    fn it_counts_as_one_who_remembers_everything(jitter in prop::collection::vec((0_u64..60, any::<bool>()), 1..300)) {
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
