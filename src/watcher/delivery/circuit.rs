//! Circuit breakers, which decide what may be sent to KCP now, and when a failed request may be retried.
//!
//! A failure concerns a [`FailureScope`]: all of KCP, one manager, or one event. KCP and each manager have a circuit
//! breaker. After its backoff, an open circuit permits one request as a probe (half-open). The circuit closes with the
//! first response that shows that the target works. The circuit of KCP opens with the first failure. The circuit of a
//! manager opens with the second consecutive failure if the failures are of two events, because one event that a listener
//! rejects must not delay other events. It also opens when KCP requests a wait.
//!
//! A request without a response is a failure of its manager: the listener hangs, and the gateway works. A gateway with a
//! broken route looks like several managers with this failure. Therefore two or more managers without a response share an
//! additional circuit breaker, until one of them responds. Together they cost as many requests as one manager.
//!
//! Events that KCP rejects permanently are dropped ([`rejections`]). Independent of the number of waiting events, an
//! unavailable target costs one attempt per backoff. The result of a request that was sent before a circuit opened is
//! ignored. Each wait is jittered. Time and random numbers are arguments.

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

/// Number of events that must fail consecutively before the circuit of their manager opens.
const FAILURE_THRESHOLD: u32 = 2;

/// Number of managers without a response from which on they share a circuit breaker.
const SHARED_THRESHOLD: usize = 2;

/// Time between two requests to managers whose names a client may have invented. It limits the load on KCP to 25 requests
/// per second, for any number of such managers.
const UNKNOWN_SPACING: Duration = Duration::from_millis(40);

pub(super) struct CircuitBreakers {
    backoff: Backoff,
    all: CircuitBreaker,
    /// Opens for [`UNKNOWN_SPACING`] after each request to a manager that is neither configured nor has accepted an event.
    unknown: CircuitBreaker,
    no_response: NoResponse,
    /// When the active certificates were loaded.
    certificates_renewed: Option<Instant>,
    managers: HashMap<PathSegment, CircuitBreaker>,
    rejections: Rejections,
}

/// Managers without a response since the last response of any manager, and the circuit breaker that they share.
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

    /// Returns whether only probes are sent to KCP.
    pub(super) fn is_open(&self) -> bool {
        self.all.is_open()
    }

    /// Resets the circuit of KCP after a reload of certificates, because failures with the old certificates are not
    /// relevant anymore.
    pub(super) fn certificates_renewed(&mut self, now: Instant) {
        self.all = CircuitBreaker::default();
        self.certificates_renewed = Some(now);
    }

    /// Removes managers that are not registered anymore. The registry limits the number of the others.
    pub(super) fn retain(&mut self, is_registered: impl Fn(&PathSegment) -> bool) {
        self.managers.retain(|manager, _| is_registered(manager));
        self.no_response.managers.retain(|it| is_registered(it));
        self.rejections.retain(|manager, _| is_registered(manager));
    }

    /// Permits a request. Returns its send time, which identifies later whether its result is of a probe, or of a request
    /// from before a circuit opened. `known` specifies that the manager is configured or has accepted an event.
    ///
    /// # Errors
    /// A circuit is open: of KCP, of the manager, or a shared circuit. The error is the time of the next attempt; `None` means
    /// after the end of a probe.
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

    /// Records that KCP accepted an event for `manager`.
    pub(super) fn succeeded(&mut self, manager: &PathSegment) {
        self.rejections.remove(manager);
        self.manager_answered(manager);
    }

    /// Records that the listener of `manager` works.
    fn manager_answered(&mut self, manager: &PathSegment) {
        self.answered();
        self.managers.remove(manager);
    }

    /// Records that KCP responds.
    fn answered(&mut self) {
        self.all = CircuitBreaker::default();
        self.no_response = NoResponse::default();
    }

    /// Records a failed request. Returns whether the event is retried, and when. If the circuit of KCP is open, only that
    /// circuit delays the retry, because it may close early.
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

    /// Delays everything in the scope of the failure. Returns when the event may be retried.
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
                    // Waiting events come first. Otherwise an event that its listener always rejects would be every probe.
                    until + own
                } else {
                    until.max(now + own)
                }
            }
            FailureScope::NoResponse => {
                // The request may have used an older connection, so the next request is the probe.
                self.all.end_probe(sent_at);
                let own_circuit = self.manager_failed(item, sent_at, None, (now, random));
                let common = self.not_answered(&item.manager, sent_at, (now, random));
                own_circuit.max(common) + own
            }
            FailureScope::All => {
                // The request did not reach its manager, so the next request becomes the probe of the other circuits.
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

/// Returns at least the requested wait and up to a quarter more, so that watchers with the same wait do not retry at the
/// same time.
fn jittered(asked: Duration, random: u64) -> Duration {
    spread(asked.min(MAX_RETRY_AFTER) * 5 / 4, random)
}

#[cfg(test)]
mod tests;
