//! Who may go to KCP now, and when whoever failed may come again.
//!
//! Failures concern somebody ([`Blame`]): the link, a manager, or one event. The link and each manager have a *gate*. A
//! shut gate lets one post through when its time has come, a probe, and opens with the first answer that shows that
//! what it guards is well. The link's shuts with the first failure; a manager's with the second in a row, if they are
//! of two events (one that a listener cannot digest must not hold up the others), or when KCP asks for a wait.
//!
//! Invariants: however many events wait, what is down costs one attempt per back-off; news of a post that left before a
//! gate was shut changes nothing; each wait is jittered. Time and chance are arguments. Deliberately absent: the clock
//! and the outbox.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::event::PathSegment;
use chassis::backoff::{Backoff, spread};

use super::MAX_RETRY_AFTER;
use super::error::{Blame, PostError};
use crate::outbox::Item;

/// Managers whose gates are kept; of more, each event is on its own.
const MANAGERS: usize = 256;

/// Of a manager's gate: events in a row that failed.
const SUSPICION: u32 = 2;

/// Those that wait behind a shut gate come one after the other, not all at its opening: many times faster than KCP
/// takes them, and slow enough that a hundred thousand of them are no work while it stays shut.
const SPACING: Duration = Duration::from_micros(500);

pub(super) struct Pace {
    backoff: Backoff,
    link: Gate,
    /// When new certificates came into force.
    renewed: Option<Instant>,
    managers: HashMap<PathSegment, Gate>,
}

#[derive(Default)]
struct Gate {
    failures: u32,
    last_failed: Option<u64>,
    shut: Option<Shut>,
}

struct Shut {
    since: Instant,
    until: Instant,
    probed: bool,
    /// How many were told to wait behind it.
    waiting: u32,
}

/// What failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) manager: &'a PathSegment,
    /// The event's number with its manager.
    pub(super) sequence: u64,
    /// How often it has failed before.
    pub(super) failures: u32,
}

impl<'a> From<&'a Item> for Attempt<'a> {
    fn from(item: &'a Item) -> Self {
        Self {
            manager: &item.manager,
            sequence: item.sequence,
            failures: item.attempt,
        }
    }
}

/// A post on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    left: Instant,
    probes_link: bool,
    probes_manager: bool,
}

impl Pace {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            link: Gate::default(),
            renewed: None,
            managers: HashMap::new(),
        }
    }

    /// How many more posts may leave now, of `free` that the window has places for.
    pub(super) fn room(&self, now: Instant, free: usize) -> usize {
        match self.link.admits(now) {
            true if self.link.shut.is_some() => free.min(1),
            true => free,
            false => 0,
        }
    }

    /// When there will be room, as far as the link is concerned; `None`: there is, or an answer decides.
    pub(super) fn reopens(&self) -> Option<Instant> {
        let shut = self.link.shut.as_ref()?;
        (!shut.probed).then_some(shut.until)
    }

    pub(super) fn is_link_shut(&self) -> bool {
        self.link.shut.is_some()
    }

    /// New certificates are in force: what the old ones have met says nothing of the link any more.
    pub(super) fn renewed(&mut self, now: Instant) {
        self.link = Gate::default();
        self.renewed = Some(now);
    }

    /// Lets a post leave.
    ///
    /// # Errors
    /// Its manager's gate is shut; when to ask again.
    pub(super) fn depart(
        &mut self,
        manager: &PathSegment,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        let probes_manager = match self.managers.get_mut(manager) {
            Some(gate) if !gate.admits(now) => return Err(gate.queue(now)),
            Some(gate) => gate.pass(),
            None => false,
        };
        Ok(Ticket {
            left: now,
            probes_link: self.link.pass(),
            probes_manager,
        })
    }

    /// KCP took what `manager` was sent.
    pub(super) fn arrived(&mut self, manager: &PathSegment) {
        self.link = Gate::default();
        self.managers.remove(manager);
    }

    /// KCP did not take it: when to try it again. What the link has failed is held up by the link's gate alone, which may
    /// open early.
    pub(super) fn failed(
        &mut self,
        attempt: Attempt<'_>,
        ticket: Ticket,
        error: &PostError,
        (now, random): (Instant, u64),
    ) -> Instant {
        let own = self.backoff.delay(attempt.failures, random);
        let asked = error.retry_after().map(|asked| jittered(asked, random));
        match error.blames() {
            Blame::Event => {
                self.arrived(attempt.manager);
                now + own.max(asked.unwrap_or_default())
            }
            Blame::Manager => {
                self.link = Gate::default();
                let until = self.manager_failed(attempt, ticket, asked, (now, random));
                until.max(now + own)
            }
            Blame::Link => {
                if let Some(gate) = self.managers.get_mut(attempt.manager)
                    && ticket.probes_manager
                {
                    gate.unprobe();
                }
                self.link_failed(ticket, (now, random));
                now
            }
        }
    }

    fn link_failed(&mut self, ticket: Ticket, (now, random): (Instant, u64)) {
        let outdated = self.renewed.is_some_and(|renewed| ticket.left < renewed);
        if !outdated && (ticket.probes_link || self.link.is_news(ticket)) {
            let wait = self.backoff.delay(self.link.failures, random);
            self.link.failures += 1;
            self.link.shut(now, wait);
        }
    }

    fn manager_failed(
        &mut self,
        attempt: Attempt<'_>,
        ticket: Ticket,
        asked: Option<Duration>,
        (now, random): (Instant, u64),
    ) -> Instant {
        let Attempt {
            manager, sequence, ..
        } = attempt;
        if self.managers.len() >= MANAGERS && !self.managers.contains_key(manager) {
            return now + asked.unwrap_or_default();
        }
        let gate = self.managers.entry(manager.clone()).or_default();
        if !(ticket.probes_manager || gate.is_news(ticket)) {
            return gate.until(now);
        }
        let another = gate.last_failed.replace(sequence) != Some(sequence);
        if another || gate.shut.is_some() {
            gate.failures += 1;
        }
        if gate.failures >= SUSPICION || asked.is_some() {
            let wait = self
                .backoff
                .delay(gate.failures.saturating_sub(SUSPICION), random);
            gate.shut(now, wait.max(asked.unwrap_or_default()));
        }
        gate.until(now)
    }
}

impl Gate {
    fn admits(&self, now: Instant) -> bool {
        let shut = self.shut.as_ref();
        shut.is_none_or(|shut| !shut.probed && shut.until <= now)
    }

    /// Lets one through; whether it is a probe.
    fn pass(&mut self) -> bool {
        if let Some(shut) = &mut self.shut {
            shut.probed = true;
        }
        self.shut.is_some()
    }

    fn unprobe(&mut self) {
        if let Some(shut) = &mut self.shut {
            shut.probed = false;
        }
    }

    /// A place in the queue behind the gate.
    fn queue(&mut self, now: Instant) -> Instant {
        let Some(shut) = &mut self.shut else {
            return now;
        };
        shut.waiting = shut.waiting.saturating_add(1);
        shut.until.max(now) + SPACING * shut.waiting
    }

    /// Whether the post left after the gate was shut, or it is not.
    fn is_news(&self, ticket: Ticket) -> bool {
        let shut = self.shut.as_ref();
        shut.is_none_or(|shut| ticket.left > shut.since)
    }

    fn shut(&mut self, now: Instant, wait: Duration) {
        self.shut = Some(Shut {
            since: now,
            until: now + wait,
            probed: false,
            waiting: 0,
        });
    }

    fn until(&self, now: Instant) -> Instant {
        self.shut.as_ref().map_or(now, |shut| shut.until)
    }
}

/// At least what was asked for, and up to a quarter more, so that those who were told the same do not come together.
fn jittered(asked: Duration, random: u64) -> Duration {
    spread(asked * 5 / 4, random).min(MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests;
