//! How far and how reliable a simulated runtime is, and which identity it has.
//!
//! Chance depends on the runtime and the number of its request only, so a run can be repeated.

use std::time::Duration;

use testkit::apiserver::Behaviour;

#[derive(Clone, Default)]
pub(crate) struct Conditions {
    /// Whether connections are accepted without handshakes and responses.
    pub(crate) silent: bool,
    /// One round trip: each response takes one, a new connection two before that (TCP and TLS 1.3).
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    /// Faults of requests and their shares, per mille.
    pub(crate) faults: Vec<(Fault, u16)>,
    /// The pause between two pieces of 64 bytes of a body; without it, bodies are sent at once.
    pub(crate) drip: Duration,
    pub(crate) expired: bool,
    /// The UID of `kube-system` in place of its own: another cluster at the same address.
    pub(crate) identity: Option<String>,
}

/// What is wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "most faults are for tests"))]
pub(crate) enum Fault {
    /// Status 429 with this number of seconds in `Retry-After`.
    Throttled(u64),
    /// Status 500.
    Failing,
    /// Status 409 for writes of objects, as after a write by another client; other requests have no fault.
    Conflicting,
    /// No response.
    Stalled,
    /// The connection is reset before the request is carried out.
    ResetBefore,
    /// The connection is reset after the request was carried out.
    ResetAfter,
}

impl Conditions {
    #[cfg(test)]
    pub(crate) fn faulty(faults: &[(Fault, u16)]) -> Self {
        let faults = faults.to_vec();
        Self {
            faults,
            ..Self::default()
        }
    }

    /// The part of the conditions that the API server itself implements.
    pub(super) fn behaviour(&self) -> Behaviour {
        Behaviour {
            identity: self.identity.clone(),
            ..Behaviour::default()
        }
    }

    /// The fault of a request, and how long its response takes.
    pub(super) fn draw(&self, runtime: &str, request: u64) -> (Option<Fault>, Duration) {
        let runtime = runtime.bytes().map(u64::from);
        let runtime = runtime.fold(0_u64, |seed, byte| seed.wrapping_mul(31) + byte);
        let mut random = fastrand::Rng::with_seed(runtime ^ request << 40);
        let mut drawn = random.u16(0..1000);
        let fault = self.faults.iter().find(|(_, share)| {
            let is_drawn = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            is_drawn
        });
        let fault = fault.map(|(fault, _)| *fault);
        let stalled = self.silent.then_some(Fault::Stalled);
        let takes = self.latency + self.jitter.mul_f64(random.f64());
        (stalled.or(fault), takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_shares_and_can_be_repeated() {
        let mut conditions = Conditions::faulty(&[(Fault::Failing, 100), (Fault::Stalled, 25)]);
        conditions.jitter = Duration::from_millis(40);
        let faults: Vec<_> = (0..10_000).map(|it| conditions.draw("a", it)).collect();
        let count = |wanted| faults.iter().filter(|(fault, _)| *fault == wanted).count();
        assert!((900..1100).contains(&count(Some(Fault::Failing))));
        assert!((150..350).contains(&count(Some(Fault::Stalled))));
        assert!((8_650..8_850).contains(&count(None)));
        let longest = faults.iter().map(|(_, takes)| *takes).max().unwrap();
        assert!((35..=40).contains(&longest.as_millis()), "{longest:?}");
        assert_eq!(conditions.draw("a", 77), faults[77]);
    }
}
