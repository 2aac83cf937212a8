//! Who may go to KCP now, and when whoever failed may come again.
//!
//! Failures concern somebody ([`Blame`]): the link, a manager, or one event. The link and each manager have a *gate*. A
//! shut gate lets one post through when its time has come, a probe, and opens with the first answer that shows that
//! what it guards is well. The link's shuts with the first failure; a manager's with the second in a row, if they are
//! of two events (one that a listener cannot digest must not hold up the others), or when KCP asks for a wait.
//!
//! A post that is taken and not answered is its manager's failure: the listener hangs, and the gateway before it is well.
//! If it is the gateway that leads nowhere, several managers look like that. So from the second on, those that were not
//! answered share one more gate, until anybody is: together they cost what one does. Who was not asked in vain passes by.
//!
//! What KCP goes on rejecting is given up ([`rejections`]).
//!
//! Invariants: however many events wait, what is down costs one attempt per back-off; news of a post that left before a
//! gate was shut changes nothing; each wait is jittered. Time and chance are arguments. Deliberately absent: the clock,
//! the outbox, and a bound on managers, which the outbox has.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use api::event::PathSegment;
use chassis::backoff::{Backoff, spread};

use self::gate::Gate;
use self::rejections::{GiveUp, Rejections};
use super::MAX_RETRY_AFTER;
use super::error::{Blame, PostError};
use crate::outbox::Item;

mod gate;
mod rejections;

/// Of a manager's gate: events in a row that failed.
const SUSPICION: u32 = 2;

/// Managers that were not answered, from which on they are one trouble.
const TOGETHER: usize = 2;

pub(super) struct Pace {
    backoff: Backoff,
    link: Gate,
    silence: Silence,
    /// When new certificates came into force.
    renewed: Option<Instant>,
    managers: HashMap<PathSegment, Gate>,
    rejections: Rejections,
}

/// What becomes of an event that KCP did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is tried again then.
    Retry(Instant),
    /// It is given up.
    Drop,
    /// It is given up, with all other events of its manager.
    DropAll,
}

/// Those that were not answered since anybody was, and their common gate.
#[derive(Default)]
struct Silence {
    managers: HashSet<PathSegment>,
    gate: Gate,
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
    probes_silence: bool,
    probes_manager: bool,
}

impl Pace {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            link: Gate::default(),
            silence: Silence::default(),
            renewed: None,
            managers: HashMap::new(),
            rejections: Rejections::default(),
        }
    }

    /// How many more posts may leave now, of `free` that the window has places for.
    pub(super) fn room(&self, now: Instant, free: usize) -> usize {
        match self.link.admits(now) {
            true if self.link.is_shut() => free.min(1),
            true => free,
            false => 0,
        }
    }

    /// When there will be room, as far as the link is concerned; `None`: there is, or an answer decides.
    pub(super) fn reopens(&self) -> Option<Instant> {
        self.link.reopens()
    }

    pub(super) fn is_link_shut(&self) -> bool {
        self.link.is_shut()
    }

    /// New certificates are in force: what the old ones have met says nothing of the link any more.
    pub(super) fn renewed(&mut self, now: Instant) {
        self.link = Gate::default();
        self.renewed = Some(now);
    }

    /// Forgets the managers that are not registered any more; the registry bounds the others.
    pub(super) fn retain(&mut self, is_registered: impl Fn(&PathSegment) -> bool) {
        self.managers.retain(|manager, _| is_registered(manager));
        self.silence.managers.retain(&is_registered);
        self.rejections.retain(is_registered);
    }

    /// Lets a post leave.
    ///
    /// # Errors
    /// Its manager's gate is shut, or that of the silent; when to ask again.
    pub(super) fn depart(
        &mut self,
        manager: &PathSegment,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        let silent = self.silence.holds_up(manager);
        if silent && !self.silence.gate.admits(now) {
            return Err(self.silence.gate.queue(now));
        }
        let probes_manager = match self.managers.get_mut(manager) {
            Some(gate) if !gate.admits(now) => return Err(gate.queue(now)),
            Some(gate) => gate.pass(),
            None => false,
        };
        Ok(Ticket {
            left: now,
            probes_link: self.link.pass(),
            probes_silence: silent && self.silence.gate.pass(),
            probes_manager,
        })
    }

    /// KCP took what `manager` was sent.
    pub(super) fn arrived(&mut self, manager: &PathSegment) {
        self.rejections.taken(manager);
        self.is_well(manager);
    }

    /// The listener of `manager` answers as it should.
    fn is_well(&mut self, manager: &PathSegment) {
        self.answered();
        self.managers.remove(manager);
    }

    /// There is a way to KCP, and somebody at its end.
    fn answered(&mut self) {
        self.link = Gate::default();
        self.silence = Silence::default();
    }

    /// KCP did not take it: whether to try it again, and when. What the link has failed is held up by the link's gate alone,
    /// which may open early.
    pub(super) fn failed(
        &mut self,
        attempt: Attempt<'_>,
        ticket: Ticket,
        error: &PostError,
        (now, random): (Instant, u64),
    ) -> Fate {
        let (give_up, blame) = self.rejections.note(attempt, error, now);
        let asked = error.retry_after().map(|asked| jittered(asked, random));
        let retry_at = self.blamed(blame, attempt, (ticket, asked), (now, random));
        match give_up {
            GiveUp::Nothing => Fate::Retry(retry_at),
            GiveUp::Event => Fate::Drop,
            GiveUp::All => Fate::DropAll,
        }
    }

    /// Holds up whatever has failed; when the event may come again.
    fn blamed(
        &mut self,
        blame: Blame,
        attempt: Attempt<'_>,
        (ticket, asked): (Ticket, Option<Duration>),
        (now, random): (Instant, u64),
    ) -> Instant {
        let own = self.backoff.delay(attempt.failures, random);
        match blame {
            Blame::Event => {
                self.is_well(attempt.manager);
                now + own.max(asked.unwrap_or_default())
            }
            Blame::Manager => {
                self.answered();
                let until = self.manager_failed(attempt, ticket, asked, (now, random));
                if ticket.probes_manager {
                    behind_the_others(until, own)
                } else {
                    until.max(now + own)
                }
            }
            Blame::Silence => {
                // Its connection may be from before the link broke: the next is to find out.
                if ticket.probes_link {
                    self.link.unprobe();
                }
                let own_gate = self.manager_failed(attempt, ticket, None, (now, random));
                let common = self.fell_silent(attempt.manager, ticket, (now, random));
                behind_the_others(own_gate.max(common), own)
            }
            Blame::Link => {
                self.came_to_nothing(attempt.manager, ticket);
                self.link_failed(ticket, (now, random));
                now
            }
        }
    }

    /// A post that never reached its manager leaves the gates that it probed to the next.
    fn came_to_nothing(&mut self, manager: &PathSegment, ticket: Ticket) {
        if let Some(gate) = self.managers.get_mut(manager)
            && ticket.probes_manager
        {
            gate.unprobe();
        }
        if ticket.probes_silence {
            self.silence.gate.unprobe();
        }
    }

    fn fell_silent(
        &mut self,
        manager: &PathSegment,
        ticket: Ticket,
        (now, random): (Instant, u64),
    ) -> Instant {
        let Silence { managers, gate } = &mut self.silence;
        managers.insert(manager.clone());
        if managers.len() >= TOGETHER && (ticket.probes_silence || gate.is_news(ticket.left)) {
            let wait = self.backoff.delay(gate.failures, random);
            gate.failures += 1;
            gate.shut(now, wait);
        }
        gate.until(now)
    }

    fn link_failed(&mut self, ticket: Ticket, (now, random): (Instant, u64)) {
        let outdated = self.renewed.is_some_and(|renewed| ticket.left < renewed);
        if !outdated && (ticket.probes_link || self.link.is_news(ticket.left)) {
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
        let gate = self.managers.entry(manager.clone()).or_default();
        if !(ticket.probes_manager || gate.is_news(ticket.left)) {
            return gate.until(now);
        }
        let another = gate.last_failed.replace(sequence) != Some(sequence);
        if another || gate.is_shut() {
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

impl Silence {
    fn holds_up(&self, manager: &PathSegment) -> bool {
        self.managers.len() >= TOGETHER && self.managers.contains(manager)
    }
}

/// When a probe is tried again that has failed. Those that wait come first, at the gate's opening: or an event that its
/// listener never digests would be every probe, and the gate never open.
fn behind_the_others(opening: Instant, own: Duration) -> Instant {
    opening + own
}

/// At least what was asked for, and up to a quarter more, so that those who were told the same do not come together.
fn jittered(asked: Duration, random: u64) -> Duration {
    spread(asked.min(MAX_RETRY_AFTER) * 5 / 4, random)
}

#[cfg(test)]
mod tests;
