//! Circuit breakers: what may be posted to KCP now, and when a failed post may be tried again.
//!
//! A failure concerns a [`FailureScope`]: all of KCP, one manager, or one event. KCP and each manager have a circuit breaker.
//! An open circuit lets one post through when its time has come, a probe (half-open), and closes with the first answer that
//! shows that what it guards works. KCP's opens with the first failure; a manager's with the second in a row, if they are of
//! two events (one that a listener rejects must not hold up the others), or when KCP asks for a wait.
//!
//! A post without a response is its manager's failure: the listener hangs, and the gateway before it works. If it is the
//! gateway that leads nowhere, several managers look like that. So from the second on, those without a response share one
//! more circuit breaker, until any of them responds: together they cost what one does.
//!
//! What KCP goes on rejecting is given up ([`rejections`]). However many events wait, what is down costs one attempt per
//! back-off; a result of a post that was sent before a circuit opened changes nothing; each wait is jittered. Time and chance
//! are arguments.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use component_base::backoff::{Backoff, spread};
use watcher_types::PathSegment;

use self::breaker::CircuitBreaker;
use self::rejections::Rejections;
use super::MAX_RETRY_AFTER;
use super::error::{FailureScope, PostError};
use crate::outbox::{Item, Settlement};

mod breaker;
mod rejections;

/// Events in a row that failed, from which on the circuit of their manager opens.
const FAILURE_THRESHOLD: u32 = 2;

/// Managers without a response, from which on they share a circuit breaker.
const SHARED_THRESHOLD: usize = 2;

/// The time between two posts to managers whose names may be a client's invention: however many there are, they cost KCP 25
/// posts a second at most.
const UNKNOWN_SPACING: Duration = Duration::from_millis(40);

pub(super) struct CircuitBreakers {
    backoff: Backoff,
    all: CircuitBreaker,
    /// Opens for [`UNKNOWN_SPACING`] after each post to a manager that is neither configured nor has taken an event.
    unknown: CircuitBreaker,
    no_response: NoResponse,
    /// When new certificates came into force.
    certificates_renewed: Option<Instant>,
    managers: HashMap<PathSegment, CircuitBreaker>,
    rejections: Rejections,
}

/// The managers without a response since the last one of any, and the circuit breaker that they share.
#[derive(Default)]
struct NoResponse {
    managers: HashSet<PathSegment>,
    breaker: CircuitBreaker,
}

impl CircuitBreakers {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            all: CircuitBreaker::default(),
            unknown: CircuitBreaker::default(),
            no_response: NoResponse::default(),
            certificates_renewed: None,
            managers: HashMap::new(),
            rejections: Rejections::default(),
        }
    }

    /// Whether nothing is posted to KCP but probes.
    pub(super) fn is_open(&self) -> bool {
        self.all.is_open()
    }

    /// New certificates are active: failures with the old ones mean nothing any more.
    pub(super) fn certificates_renewed(&mut self, now: Instant) {
        self.all = CircuitBreaker::default();
        self.certificates_renewed = Some(now);
    }

    /// Forgets the managers that are not registered any more; the registry bounds the others.
    pub(super) fn retain(&mut self, is_registered: impl Fn(&PathSegment) -> bool) {
        self.managers.retain(|manager, _| is_registered(manager));
        self.no_response.managers.retain(|it| is_registered(it));
        self.rejections.retain(|manager, _| is_registered(manager));
    }

    /// Lets a post through; when it is sent, by which its result is known for that of a probe, or of a time before a circuit
    /// opened. `known`: the manager is configured, or has taken an event.
    ///
    /// # Errors
    /// A circuit is open: KCP's, the manager's, or one that it shares. When to ask again; `None`: when a probe has ended.
    pub(super) fn permit(
        &mut self,
        manager: &PathSegment,
        known: bool,
        now: Instant,
    ) -> Result<Instant, Option<Instant>> {
        let silent = &self.no_response.managers;
        let held_up = silent.len() >= SHARED_THRESHOLD && silent.contains(manager);
        let mut guards = [
            Some(&mut self.all),
            held_up.then_some(&mut self.no_response.breaker),
            self.managers.get_mut(manager),
        ];
        for guard in guards.iter().flatten() {
            guard.ready(now)?;
        }
        if !known {
            self.unknown.ready(now)?;
            self.unknown.open(now, UNKNOWN_SPACING);
        }
        guards.iter_mut().flatten().for_each(|guard| guard.pass());
        Ok(now)
    }

    /// KCP took what `manager` was sent.
    pub(super) fn succeeded(&mut self, manager: &PathSegment) {
        self.rejections.remove(manager);
        self.manager_answered(manager);
    }

    /// The listener of `manager` answers as it should.
    fn manager_answered(&mut self, manager: &PathSegment) {
        self.answered();
        self.managers.remove(manager);
    }

    /// KCP responds.
    fn answered(&mut self) {
        self.all = CircuitBreaker::default();
        self.no_response = NoResponse::default();
    }

    /// KCP did not take it: whether to try it again, and when. Where KCP's circuit has opened it alone decides, because it may
    /// close early.
    pub(super) fn failed(
        &mut self,
        item: &Item,
        sent_at: Instant,
        error: &PostError,
        (now, random): (Instant, u64),
    ) -> Settlement {
        let (give_up, scope) = rejections::note(&mut self.rejections, item, error, now);
        let asked = error.retry_after().map(|asked| jittered(asked, random));
        let retry_at = self.retry_at(scope, item, (sent_at, asked), (now, random));
        give_up.unwrap_or(Settlement::Retry(retry_at))
    }

    /// Holds up whatever has failed; when the event may come again.
    fn retry_at(
        &mut self,
        scope: FailureScope,
        item: &Item,
        (sent_at, asked): (Instant, Option<Duration>),
        (now, random): (Instant, u64),
    ) -> Instant {
        let own = self.backoff.delay(item.attempt, random);
        match scope {
            FailureScope::Event => {
                self.manager_answered(&item.manager);
                now + own.max(asked.unwrap_or_default())
            }
            FailureScope::Manager => {
                self.answered();
                let breaker = self.managers.get(&item.manager);
                let is_probe = breaker.is_some_and(|it| it.is_probe(sent_at));
                let until = self.manager_failed(item, sent_at, asked, (now, random));
                if is_probe {
                    // Those that wait come first, or an event that its listener never takes would be every probe.
                    until + own
                } else {
                    until.max(now + own)
                }
            }
            FailureScope::NoResponse => {
                // Its connection may be an older one: the next post is to find out.
                self.all.end_probe(sent_at);
                let own_circuit = self.manager_failed(item, sent_at, None, (now, random));
                let common = self.not_answered(&item.manager, sent_at, (now, random));
                own_circuit.max(common) + own
            }
            FailureScope::All => {
                // It never reached its manager, and leaves its probes to the next.
                self.no_response.breaker.end_probe(sent_at);
                if let Some(breaker) = self.managers.get_mut(&item.manager) {
                    breaker.end_probe(sent_at);
                }
                self.all_failed(sent_at, (now, random));
                now
            }
        }
    }

    fn not_answered(
        &mut self,
        manager: &PathSegment,
        sent_at: Instant,
        (now, random): (Instant, u64),
    ) -> Instant {
        let NoResponse { managers, breaker } = &mut self.no_response;
        managers.insert(manager.clone());
        if managers.len() >= SHARED_THRESHOLD && breaker.is_news(sent_at) {
            let wait = self.backoff.delay(breaker.failures, random);
            breaker.failures += 1;
            breaker.open(now, wait);
        }
        breaker.until(now)
    }

    fn all_failed(&mut self, sent_at: Instant, (now, random): (Instant, u64)) {
        let renewed = self.certificates_renewed;
        let is_outdated = renewed.is_some_and(|renewed| sent_at < renewed);
        if !is_outdated && self.all.is_news(sent_at) {
            let wait = self.backoff.delay(self.all.failures, random);
            self.all.failures += 1;
            self.all.open(now, wait);
        }
    }

    fn manager_failed(
        &mut self,
        item: &Item,
        sent_at: Instant,
        asked: Option<Duration>,
        (now, random): (Instant, u64),
    ) -> Instant {
        let breaker = self.managers.entry(item.manager.clone()).or_default();
        if !breaker.is_news(sent_at) {
            return breaker.until(now);
        }
        let another = breaker.last_failed.replace(item.sequence) != Some(item.sequence);
        if another || breaker.is_open() {
            breaker.failures += 1;
        }
        if breaker.failures >= FAILURE_THRESHOLD || asked.is_some() {
            let earlier = breaker.failures.saturating_sub(FAILURE_THRESHOLD);
            let wait = self.backoff.delay(earlier, random);
            breaker.open(now, wait.max(asked.unwrap_or_default()));
        }
        breaker.until(now)
    }
}

/// At least what was asked for, and up to a quarter more, so that watchers with the same time do not come together.
fn jittered(asked: Duration, random: u64) -> Duration {
    spread(asked.min(MAX_RETRY_AFTER) * 5 / 4, random)
}

#[cfg(test)]
mod tests;
