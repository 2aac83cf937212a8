//! How far and how reliable a simulated runtime is, and which identity it has.
//!
//! Chance depends on the runtime and the number of its request only, so a run can be repeated.

use std::time::Duration;

use testkit::apiserver::Behaviour;

/// The conditions of one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Whether it can be reached.
    pub reach: Reach,
    /// One round trip: each response takes one, a new connection two before that (TCP and TLS 1.3).
    pub latency: Duration,
    /// The largest additional time of a response.
    pub jitter: Duration,
    /// Injected faults.
    pub faults: Faults,
    /// The pause between two pieces of 64 bytes of a body; without it, bodies are sent at once.
    pub drip: Duration,
    /// Whether the certificate that it presents has expired.
    pub expired: bool,
    /// The UID of `kube-system` in place of its own: another cluster at the same address.
    pub identity: Option<String>,
}

/// Whether a runtime can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// It can.
    #[default]
    Up,
    /// Connections are accepted; there are no handshakes and no responses.
    Silent,
    /// Connections are reset.
    Refusing,
}

/// Shares of requests, per mille, in the order in which they are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Status 429 with `Retry-After`.
    pub throttled: u16,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: u16,
    /// Status 500.
    pub failing: u16,
    /// Status 409 for writes of objects, as after a write by another client; other requests have no fault.
    pub conflicting: u16,
    /// No response.
    pub stalled: u16,
    /// The connection is reset, half of the times before the request is carried out and half after that.
    pub reset: u16,
}

/// What is wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFault {
    None,
    Throttled,
    Failing,
    Conflicting,
    Stalled,
    ResetBefore,
    ResetAfter,
}

impl Conditions {
    /// Good conditions with a change.
    #[must_use]
    pub fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut conditions = Self::default();
        change(&mut conditions);
        conditions
    }

    /// The part of the conditions that the API server itself implements.
    pub(super) fn behaviour(&self) -> Behaviour {
        Behaviour {
            identity: self.identity.clone(),
            ..Behaviour::default()
        }
    }

    /// The fault of a request, and how long its response takes.
    pub(super) fn draw(&self, runtime: &str, request: u64) -> (RequestFault, Duration) {
        let runtime = runtime.bytes().map(u64::from);
        let runtime = runtime.fold(0_u64, |seed, byte| seed.wrapping_mul(31) + byte);
        let mut random = fastrand::Rng::with_seed(runtime ^ request << 40);
        let injected = match self.reach {
            Reach::Up => self.faults.draw(&mut random),
            Reach::Silent => RequestFault::Stalled,
            Reach::Refusing => RequestFault::ResetBefore,
        };
        (injected, self.latency + self.jitter.mul_f64(random.f64()))
    }
}

impl Faults {
    fn draw(self, random: &mut fastrand::Rng) -> RequestFault {
        let reset = if random.bool() {
            RequestFault::ResetBefore
        } else {
            RequestFault::ResetAfter
        };
        let mut drawn = random.u16(0..1000);
        for (share, injected) in [
            (self.throttled, RequestFault::Throttled),
            (self.failing, RequestFault::Failing),
            (self.conflicting, RequestFault::Conflicting),
            (self.stalled, RequestFault::Stalled),
            (self.reset, reset),
        ] {
            match drawn.checked_sub(share) {
                None => return injected,
                Some(others) => drawn = others,
            }
        }
        RequestFault::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_shares_and_can_be_repeated() {
        let conditions = Conditions::with(|it| {
            it.jitter = Duration::from_millis(40);
            (it.faults.throttled, it.faults.reset) = (100, 50);
        });
        let faults: Vec<_> = (0..10_000).map(|it| conditions.draw("a", it)).collect();
        let count = |wanted| faults.iter().filter(|(fault, _)| *fault == wanted).count();
        assert!((900..1100).contains(&count(RequestFault::Throttled)));
        assert!((150..350).contains(&count(RequestFault::ResetBefore)));
        assert!((150..350).contains(&count(RequestFault::ResetAfter)));
        assert_eq!(count(RequestFault::Stalled), 0);
        let longest = faults.iter().map(|(_, takes)| *takes).max().unwrap();
        assert!((35..=40).contains(&longest.as_millis()), "{longest:?}");
        assert_eq!(conditions.draw("a", 77), faults[77]);
    }
}
