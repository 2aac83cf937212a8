//! What is sent to whom.

use api::event::PathSegment;
use policy::change::{Field, Outcome, ReviewError, Silence, Verdict, Watcher, decide};

/// Which changes are sent.
///
/// The default is the public watcher's way: every manager that a review's path names, and of what the API server sends
/// here everything that [`decide`] finds changed. The API server's rules are made of the Watchers, so nobody need say it twice.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    listed: Vec<Watcher>,
}

impl Watchers {
    /// Only what these name; several may be of one manager. An empty list is the default.
    #[must_use]
    pub fn listed(listed: Vec<Watcher>) -> Self {
        Self { listed }
    }

    /// Decides on a review for `manager`; `None` if no Watcher on the list is of this manager.
    pub(super) fn decide(
        &self,
        manager: &PathSegment,
        body: &[u8],
    ) -> Option<Result<Verdict, ReviewError>> {
        if self.listed.is_empty() {
            return Some(decide(&any(manager), body));
        }
        let mut verdict = None;
        for watcher in self.listed.iter().filter(|it| it.manager == *manager) {
            match decide(watcher, body) {
                Ok(next) => verdict = Some(telling(verdict, next)),
                Err(error) => return Some(Err(error)),
            }
        }
        verdict.map(Ok)
    }
}

/// Whatever the API server sends.
fn any(manager: &PathSegment) -> Watcher {
    Watcher {
        manager: manager.clone(),
        field: Field::Spec,
        resources: Vec::new(),
    }
}

/// Of two Watchers' verdicts: the one that sends, then the one that the review concerns more.
fn telling(one: Option<Verdict>, other: Verdict) -> Verdict {
    let rank = |verdict: &Verdict| match &verdict.outcome {
        Outcome::Send(_) => 3,
        Outcome::Silent(Silence::NotWatched { .. }) => 0,
        Outcome::Silent(Silence::InvalidSubresource { .. }) => 1,
        Outcome::Silent(_) => 2,
    };
    match one {
        Some(one) if rank(&one) >= rank(&other) => one,
        _ => other,
    }
}
