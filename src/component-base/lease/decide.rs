//! The decision of a leader election: a function of the observed Lease, the time and the local identity.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use super::DURATION;

/// A Lease, and the time since when it has been observed unchanged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observed {
    spec: LeaseSpec,
    unchanged_since: Instant,
}

impl Observed {
    /// Returns the state after another read. An unchanged Lease keeps its time.
    pub(super) fn again(earlier: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match earlier {
            Some(earlier) if earlier.spec == spec => earlier,
            _ => Self {
                spec,
                unchanged_since: now,
            },
        }
    }

    /// Returns the holder. An empty name means that the Lease is released, as in client-go.
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.spec.holder_identity.as_deref();
        holder.filter(|name| !name.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The Lease does not exist.
    Create,
    /// This process holds the Lease.
    Renew,
    /// The Lease is released or expired.
    Take,
    /// Another process holds the Lease. It expires after this time unless it changes.
    Wait(Duration),
}

/// Decides the next action. A Lease without a duration is treated as a Lease with the default duration.
pub(super) fn step(observed: Option<&Observed>, now: Instant, me: &str) -> Action {
    let Some(observed) = observed else {
        return Action::Create;
    };
    match observed.holder() {
        None => return Action::Take,
        Some(holder) if holder == me => return Action::Renew,
        Some(_) => {}
    }
    let lasts = observed
        .spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(DURATION, Duration::from_secs);
    let remaining = lasts.saturating_sub(now.duration_since(observed.unchanged_since));
    if remaining.is_zero() {
        Action::Take
    } else {
        Action::Wait(remaining)
    }
}

/// Returns the specification to write. `wall_clock` is informational.
pub(super) fn claim(
    previous: Option<&LeaseSpec>,
    me: &str,
    wall_clock: jiff::Timestamp,
) -> LeaseSpec {
    let previous = previous.cloned().unwrap_or_default();
    let was_holder = previous.holder_identity.as_deref() == Some(me);
    let acquired = previous.acquire_time.filter(|_| was_holder);
    let transitions = previous.lease_transitions.unwrap_or(0);
    let now = MicroTime(wall_clock);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: acquired.or(Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(transitions.saturating_add(i32::from(!was_holder))),
        ..previous
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ME: &str = "me";

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(holder: Option<&str>, lasts: Option<i32>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: lasts,
            ..LeaseSpec::default()
        }
    }

    #[rstest]
    #[case::absent(None, 0, Action::Create)]
    #[case::released(Some(record(None, Some(15))), 0, Action::Take)]
    #[case::released_as_client_go_does(Some(record(Some(""), Some(1))), 0, Action::Take)]
    #[case::ours(Some(record(Some(ME), Some(15))), 0, Action::Renew)]
    #[case::ours_long_ago(Some(record(Some(ME), Some(15))), 99, Action::Renew)]
    #[case::just_seen(Some(record(Some("a"), Some(15))), 0, Action::Wait(seconds(15)))]
    #[case::alive(Some(record(Some("a"), Some(15))), 14, Action::Wait(seconds(1)))]
    #[case::expired(Some(record(Some("a"), Some(15))), 15, Action::Take)]
    #[case::its_own_duration_counts(
        Some(record(Some("a"), Some(60))),
        15,
        Action::Wait(seconds(45))
    )]
    #[case::no_duration(Some(record(Some("a"), None)), 14, Action::Wait(seconds(1)))]
    #[case::senseless_duration(Some(record(Some("a"), Some(-1))), 14, Action::Wait(seconds(1)))]
    fn actions(
        #[case] spec: Option<LeaseSpec>,
        #[case] seconds_unchanged: u64,
        #[case] expected: Action,
    ) {
        let seen = Instant::now();
        let observed = spec.map(|spec| Observed::again(None, spec, seen));
        let now = seen + seconds(seconds_unchanged);
        assert_eq!(step(observed.as_ref(), now, ME), expected);
    }

    #[test]
    fn only_a_change_makes_a_record_young_again() {
        let first = Instant::now();
        let later = first + seconds(10);
        let same = record(Some("a"), Some(15));
        let observed = Observed::again(None, same.clone(), first);
        let observed = Observed::again(Some(observed), same.clone(), later);
        assert_eq!(step(Some(&observed), later, ME), Action::Wait(seconds(5)));

        let renewed = LeaseSpec {
            // The time of the holder is in the past. Only the local clock is relevant.
            renew_time: Some(MicroTime(jiff::Timestamp::UNIX_EPOCH)),
            ..same
        };
        let observed = Observed::again(Some(observed), renewed, later);
        assert_eq!(step(Some(&observed), later, ME), Action::Wait(seconds(15)));
    }

    #[test]
    fn a_claim_on_anothers_record_is_a_transition() {
        let before = jiff::Timestamp::from_second(1_000).unwrap();
        let now = jiff::Timestamp::from_second(2_000).unwrap();
        let theirs = LeaseSpec {
            acquire_time: Some(MicroTime(before)),
            lease_transitions: Some(4),
            ..record(Some("a"), Some(60))
        };
        let taken = claim(Some(&theirs), ME, now);
        let expected = LeaseSpec {
            holder_identity: Some(ME.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(5),
            ..LeaseSpec::default()
        };
        assert_eq!(taken, expected);

        let later = jiff::Timestamp::from_second(3_000).unwrap();
        let renewed = claim(Some(&taken), ME, later);
        let expected = LeaseSpec {
            renew_time: Some(MicroTime(later)),
            ..expected
        };
        assert_eq!(renewed, expected);
    }

    #[test]
    fn a_first_claim_counts_from_one() {
        let first = claim(None, ME, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(first.lease_transitions, Some(1));
    }
}
