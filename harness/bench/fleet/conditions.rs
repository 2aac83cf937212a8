//! What a runtime is like to deal with: how far, how reliable, whose identity it shows.
//!
//! Invariant: chance is a function of the runtime and the number of the request, so a run can be repeated. Shares are
//! per mille. Deliberately absent: the wire; `answer` and `wire` do what is drawn here.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use testkit::apiserver::kinds::{TRUST_BUNDLES, builtin};
use testkit::apiserver::{Behaviour, Creation, Rights, Rollout};

/// The conditions of one runtime; they may be changed at any time and hold from the next request on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Conditions {
    /// Whether it can be reached at all.
    pub reach: Reach,
    /// One round trip: every answer takes one, a new connection two before that (TCP and TLS 1.3).
    #[serde(with = "millis")]
    pub latency: Duration,
    /// At most this is added to each answer.
    #[serde(with = "millis")]
    pub jitter: Duration,
    /// How much of all requests is answered in another way.
    pub faults: Faults,
    /// The pause between two pieces of a body, 64 bytes each; zero: bodies are sent at once.
    #[serde(with = "millis")]
    pub drip: Duration,
    /// The certificate that it shows.
    pub certificate: Certificate,
    /// The `kube-system` uid that it shows instead of its own: another cluster at the same address.
    pub identity: Option<String>,
    /// What its credentials may do.
    pub writes: Writes,
    /// Whether ClusterTrustBundles are not served.
    pub without_trust_bundles: bool,
    /// How a Deployment's rollout goes.
    pub rollout: Rollout,
}

/// Whether a runtime can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// Yes.
    #[default]
    Up,
    /// Connections are accepted and nothing is ever said; open requests get no answer.
    Silent,
    /// Connections are reset.
    Refusing,
}

/// Shares of requests, per mille, in the order in which they are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Faults {
    /// 429 with `Retry-After`.
    pub throttled: u16,
    /// That many seconds.
    pub retry_after: u16,
    /// 500.
    pub failing: u16,
    /// 409 for writes, as when somebody else wrote first; others are answered.
    pub conflicting: u16,
    /// Never answered.
    pub stalled: u16,
    /// The connection is reset: before the request is carried out, or after it and before the answer, by turns.
    pub reset: u16,
}

/// The certificate of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Certificate {
    /// A good one.
    #[default]
    Valid,
    /// One whose time is over.
    Expired,
}

/// What writes lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Writes {
    /// They are carried out.
    #[default]
    Allowed,
    /// 403: the rights are missing, and the rules review says so.
    Forbidden,
    /// 403 for what is made anew in a namespace: it is being deleted.
    NamespaceTerminating,
    /// 403 for what is made anew in a namespace: a quota is used up.
    QuotaExceeded,
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    Throttled,
    Failing,
    Conflicting,
    Stalled,
    /// Reset before it is carried out.
    ResetBefore,
    /// Carried out, and then reset.
    ResetAfter,
}

impl Conditions {
    /// What of them the API server itself plays.
    pub(super) fn behaviour(&self) -> Behaviour {
        let mut kinds = builtin();
        kinds.retain(|kind| !self.without_trust_bundles || kind.resource != TRUST_BUNDLES);
        Behaviour {
            kinds: kinds.into(),
            rights: match self.writes {
                Writes::Forbidden => Rights::with_verbs(&["get", "list", "watch"]),
                _ => Rights::default(),
            },
            identity: self.identity.clone(),
            rollout: self.rollout,
            creation: match self.writes {
                Writes::NamespaceTerminating => Creation::NamespaceTerminating,
                Writes::QuotaExceeded => Creation::QuotaExceeded,
                Writes::Allowed | Writes::Forbidden => Creation::Allowed,
            },
            ..Behaviour::default()
        }
    }

    /// The fate of a request and how long its answer takes.
    pub(super) fn draw(&self, runtime: usize, request: u64) -> (Fate, Duration) {
        let bits = scrambled((runtime as u64) << 32 ^ request);
        let fate = match self.reach {
            Reach::Up => self.faults.fate(bits),
            Reach::Silent => Fate::Stalled,
            Reach::Refusing => Fate::ResetBefore,
        };
        let share = u32::try_from(bits >> 40 & 0x3ff).unwrap_or_default();
        (fate, self.latency + self.jitter * share / 1024)
    }
}

impl Faults {
    fn fate(self, bits: u64) -> Fate {
        let Self {
            throttled,
            retry_after: _,
            failing,
            conflicting,
            stalled,
            reset,
        } = self;
        let reset_as = if bits >> 63 == 0 {
            Fate::ResetBefore
        } else {
            Fate::ResetAfter
        };
        let mut drawn = bits % 1000;
        for (share, fate) in [
            (throttled, Fate::Throttled),
            (failing, Fate::Failing),
            (conflicting, Fate::Conflicting),
            (stalled, Fate::Stalled),
            (reset, reset_as),
        ] {
            let share = u64::from(share);
            if drawn < share {
                return fate;
            }
            drawn -= share;
        }
        Fate::Answered
    }
}

/// splitmix64: neighbouring numbers give bits that have nothing to do with each other.
fn scrambled(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Durations as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        serializer.serialize_u64(millis)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_written_in_milliseconds_and_default_to_good() {
        let text = r#"{"latency": 100, "faults": {"throttled": 20}, "rollout": {"takes": 5}}"#;
        let conditions: Conditions = serde_json::from_str(text).unwrap();
        let expected = Conditions {
            latency: Duration::from_millis(100),
            faults: Faults {
                throttled: 20,
                ..Faults::default()
            },
            rollout: Rollout::Takes(5),
            ..Conditions::default()
        };
        assert_eq!(conditions, expected);
        let again = serde_json::to_string(&conditions).unwrap();
        assert_eq!(
            serde_json::from_str::<Conditions>(&again).unwrap(),
            expected
        );
        assert!(serde_json::from_str::<Conditions>(r#"{"latencyy": 1}"#).is_err());
    }

    #[test]
    fn shares_are_kept_and_chance_is_repeatable() {
        let conditions = Conditions {
            jitter: Duration::from_millis(40),
            faults: Faults {
                throttled: 100,
                reset: 50,
                ..Faults::default()
            },
            ..Conditions::default()
        };
        let fates: Vec<(Fate, Duration)> = (0..10_000)
            .map(|number| conditions.draw(3, number))
            .collect();
        let count = |wanted: Fate| fates.iter().filter(|(fate, _)| *fate == wanted).count();
        assert!((900..1100).contains(&count(Fate::Throttled)));
        assert!((150..350).contains(&count(Fate::ResetBefore)));
        assert!((150..350).contains(&count(Fate::ResetAfter)));
        assert_eq!(count(Fate::Stalled), 0);
        let longest = fates.iter().map(|(_, takes)| *takes).max().unwrap();
        assert!((35..=40).contains(&longest.as_millis()), "{longest:?}");
        assert_eq!(conditions.draw(3, 77), fates[77]);
    }
}
