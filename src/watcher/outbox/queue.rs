//! Queue of events in memory: the latest event of each object, the oldest first.
//!
//! An object of a manager has at most one slot in the queue:
//!
//! ```text
//!  insert ──> waiting ──take──> under way ──delivered──> waiting as a follow-up event ──take─ … ─delivered──> gone
//!                ^                  │ └──delivered, changed again──> waiting
//!                └──────failed──────┘
//! ```
//!
//! An object is removed when an event was delivered that was taken after its last change. If that delivery was within the
//! follow-up delay after the change, a follow-up event is delivered before the removal (admission precedes storage, so KCP
//! may have read the object too early). At most one event of an object is in progress. [`Limits`] limits the number of
//! objects and the memory. Time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use watcher_types::PathSegment;

pub(super) use self::limits::{Limits, UNCONFIRMED_PART, Usage};
use self::managers::{ManagerId, Managers};
use self::pending::Pending;
use super::ManagerReport;

mod limits;
pub(super) mod managers;
mod pending;

/// Time since the outbox was opened, in nanoseconds. It is half the size of an `Instant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MonotonicTime(pub(super) u64);

impl MonotonicTime {
    pub(super) fn after(self, time: Duration) -> Self {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }

    pub(super) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// Identifies one take of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    slot: u32,
    take: u64,
}

/// State of an object in the queue.
#[derive(Debug)]
struct Slot {
    key: Arc<[u8]>,
    manager: ManagerId,
    place: Place,
    /// Time of the last change.
    changed: MonotonicTime,
    /// Time at which the next event became due.
    since: MonotonicTime,
    /// Whether only the follow-up event must be sent.
    follow_up: bool,
    /// Sequence number; 0 means none yet.
    number: u64,
    attempt: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Waiting(Order),
    UnderWay {
        take: u64,
        at: MonotonicTime,
        /// First change since the take.
        changed: Option<MonotonicTime>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DequeuedEvent {
    pub(super) key: Arc<[u8]>,
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) ticket: Ticket,
}

/// Due time of an object, and position in the order of insertion.
pub(super) type Order = (MonotonicTime, u64);

#[derive(Debug)]
pub(super) struct Queue {
    index: HashMap<Arc<[u8]>, u32>,
    slots: Slab<Slot>,
    /// Waiting objects by manager, then by due time, then by order of insertion.
    due: BTreeMap<(ManagerId, Order), u32>,
    pub(super) managers: Managers,
    /// Counter for positions in the order and for takes.
    count: u64,
    usage: Usage,
    limits: Limits,
    follow_up_delay: Duration,
}

impl Queue {
    pub(super) fn new(limits: Limits, follow_up_delay: Duration, managers: Managers) -> Self {
        Self {
            index: HashMap::new(),
            slots: Slab::new(),
            due: BTreeMap::new(),
            managers,
            count: 0,
            usage: Usage::default(),
            limits,
            follow_up_delay,
        }
    }

    /// Records a change of `key`. Returns whether `key` is in the queue.
    pub(super) fn touch(&mut self, key: &[u8], now: MonotonicTime) -> bool {
        let Some(&id) = self.index.get(key) else {
            return false;
        };
        let slot = &mut self.slots[id as usize];
        slot.changed = slot.changed.max(now);
        self.managers.at(slot.manager).used = now;
        let follow_up = slot.follow_up;
        if follow_up {
            slot.set_pending(id, now, false, &mut self.managers);
        }
        match &mut slot.place {
            Place::UnderWay { changed, .. } => _ = changed.get_or_insert(now),
            Place::Waiting(order) if follow_up => {
                let was = (slot.manager, *order);
                self.due.remove(&was);
                self.wait(id, now);
            }
            Place::Waiting(_) => {}
        }
        true
    }

    /// Returns whether the queue has capacity for a key of this size, of any manager.
    pub(super) fn has_capacity(&self, key_bytes: usize) -> bool {
        self.limits.admit(self.usage.with(key_bytes))
    }

    /// Returns whether the managers that a client may have invented have capacity for a key of this size in their part of
    /// the queue.
    pub(super) fn has_unconfirmed_capacity(&self, key_bytes: usize) -> bool {
        let used = self.managers.unconfirmed_usage();
        self.limits.of_unconfirmed().admit(used.with(key_bytes))
    }

    /// Adds `key`, which must not be in the queue.
    pub(super) fn insert(&mut self, key: &[u8], manager: ManagerId, now: MonotonicTime) {
        let key: Arc<[u8]> = Arc::from(key);
        let id = self.slots.insert(Slot {
            key: Arc::clone(&key),
            manager,
            place: Place::Waiting(Order::default()),
            changed: now,
            since: now,
            follow_up: false,
            number: 0,
            attempt: 0,
        });
        // The limit of keys is lower than `u32::MAX`.
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        self.usage.add(key.len());
        let of = self.managers.at(manager);
        of.usage.add(key.len());
        of.pending.insert(id, now, false);
        self.index.insert(key, id);
        self.wait(id, now);
    }

    /// Takes the event that has been due longest at `now`, of a manager that `permit` accepts. `permit` gets the name of a
    /// manager, and whether it is configured or has accepted an event. The managers alternate, so that a manager with many
    /// events does not delay other managers. Events of other managers do not change.
    ///
    /// # Errors
    /// No event is available. The error is the time of the next attempt: the earliest later due time, or the time from `permit`.
    pub(super) fn take<P>(
        &mut self,
        now: MonotonicTime,
        mut permit: impl FnMut(&PathSegment, bool) -> Result<P, Option<MonotonicTime>>,
    ) -> Result<(DequeuedEvent, P), Option<MonotonicTime>> {
        let firsts = self.managers.ids().filter_map(|of| self.first_due(of));
        let mut firsts: Vec<_> = firsts.collect();
        firsts.sort_unstable_by_key(|(manager, order)| {
            let turn = (order.0 <= now).then(|| self.managers.get(*manager).taken);
            (turn.is_none(), turn, *order)
        });
        let mut again = None;
        for first in firsts {
            let (manager, (due, _)) = first;
            let denied = if due > now {
                Some(due)
            } else {
                let known = self.managers.is_known(manager);
                match permit(self.managers.name(manager), known) {
                    Ok(permit) => return Ok((self.take_first(first, now).ok_or(None)?, permit)),
                    Err(until) => until,
                }
            };
            again = again.into_iter().chain(denied).min();
        }
        Err(again)
    }

    fn first_due(&self, of: ManagerId) -> Option<(ManagerId, Order)> {
        let mut waiting = self.due.range((of, Order::default())..);
        let first = waiting.next().map(|(first, _)| *first);
        first.filter(|(manager, _)| *manager == of)
    }

    fn take_first(
        &mut self,
        first: (ManagerId, Order),
        now: MonotonicTime,
    ) -> Option<DequeuedEvent> {
        let id = self.due.remove(&first)?;
        let slot = &mut self.slots[id as usize];
        self.count += 1;
        if slot.number == 0 {
            slot.number = self.managers.number(slot.manager);
        }
        self.managers.at(slot.manager).taken = self.count;
        slot.place = Place::UnderWay {
            take: self.count,
            at: now,
            changed: None,
        };
        Some(DequeuedEvent {
            key: Arc::clone(&slot.key),
            number: slot.number,
            attempt: slot.attempt,
            ticket: Ticket {
                slot: id,
                take: self.count,
            },
        })
    }

    /// Returns when a change whose review arrives at `now` is stored at the latest.
    pub(super) fn stored_by(&self, now: MonotonicTime) -> MonotonicTime {
        now.after(self.follow_up_delay)
    }

    /// Records that the event of `ticket` is delivered. Returns the key if its object is removed.
    pub(super) fn delivered(&mut self, ticket: Ticket, now: MonotonicTime) -> Option<Arc<[u8]>> {
        let follow_up_delay = self.follow_up_delay;
        let (slot, at, changed) = under_way(&mut self.slots, ticket)?;
        self.managers.settle(slot.manager, slot.number);
        (slot.number, slot.attempt) = (0, 0);
        let stored_by = slot.changed.after(follow_up_delay);
        let due = match changed {
            Some(changed) => changed,
            None if at.min(now) >= stored_by => return Some(self.remove(ticket.slot)),
            // The follow-up event was taken too early. Without this time it would be taken again at once.
            None if slot.follow_up => MonotonicTime(u64::MAX),
            None => stored_by,
        };
        slot.set_pending(ticket.slot, due, changed.is_none(), &mut self.managers);
        self.wait(ticket.slot, due);
        None
    }

    /// Removes the object of `ticket`, including its changes since the take. Returns its key and its manager.
    pub(super) fn rejected(&mut self, ticket: Ticket) -> Option<(Arc<[u8]>, ManagerId)> {
        let (slot, ..) = under_way(&mut self.slots, ticket)?;
        let manager = slot.manager;
        Some((self.remove(ticket.slot), manager))
    }

    /// Schedules a retry of the event of `ticket` at `retry_at`.
    pub(super) fn failed(&mut self, ticket: Ticket, retry_at: MonotonicTime) {
        if let Some((slot, ..)) = under_way(&mut self.slots, ticket) {
            // If the object has changed since the take, the retry also reports the change, and is not only the follow-up event.
            slot.attempt = slot.attempt.saturating_add(1);
            slot.set_pending(ticket.slot, slot.since, false, &mut self.managers);
            self.wait(ticket.slot, retry_at);
        }
    }

    /// Registers `name` in the place of another manager, and drops the events of that manager. Returns the place, the name
    /// of the evicted manager, the number of its events, and whether a loss must be reported to it if it is registered
    /// again. `None` if no manager can be evicted.
    pub(super) fn evict_for(
        &mut self,
        name: &PathSegment,
        now: MonotonicTime,
    ) -> Option<(ManagerId, PathSegment, usize, bool)> {
        let place = self.managers.evictable(now)?;
        let evicted = self.managers.name(place).clone();
        let events = self.drop_events(place).len();
        let lost = self.managers.replace(place, name, now);
        Some((place, evicted, events, lost || events > 0))
    }

    /// Removes all objects of a manager, including objects in progress, whose tickets become invalid. Returns their keys.
    pub(super) fn drop_events(&mut self, of: ManagerId) -> Vec<Arc<[u8]>> {
        let slots: Vec<u32> = self.managers.get(of).pending.slots().collect();
        slots.into_iter().map(|id| self.remove(id)).collect()
    }

    /// Returns the due time of the oldest event that is due at `now`, follow-up events included.
    pub(super) fn oldest_due(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let due = self.managers.pending().filter_map(Pending::oldest);
        due.min().filter(|since| *since <= now)
    }

    /// Returns the number of undelivered events, without follow-up events.
    pub(super) fn undelivered(&self) -> usize {
        self.managers.pending().map(|it| it.events.len()).sum()
    }

    /// Returns the values for a heartbeat to `manager`.
    pub(super) fn report(&self, manager: &PathSegment, now: MonotonicTime) -> ManagerReport {
        let mut report = ManagerReport {
            resync: self.managers.loss(manager),
            ..ManagerReport::default()
        };
        let Some(of) = self.managers.place(manager) else {
            return report;
        };
        let Pending { events, follow_ups } = &self.managers.get(of).pending;
        report.follow_up_depth = follow_ups.len() as u64;
        report.oldest_age = events.oldest().map(|since| since.until(now));
        // Listeners assume that all events up to `sequence - spool_depth` have been delivered.
        let (sequence, open) = self.managers.numbers(of);
        report.sequence = sequence;
        report.spool_depth = open.max(events.len() as u64);
        report
    }

    /// Returns the keys in `slots` slots starting at `from`, each with its position in the due order. Objects in progress
    /// come first. `None` after the last slot.
    pub(super) fn keys(&self, from: usize, slots: usize) -> Option<Vec<(Order, Arc<[u8]>)>> {
        let end = self.slots.capacity().min(from + slots);
        let keys = (from..end).filter_map(|id| {
            let slot = self.slots.get(id)?;
            let order = match slot.place {
                Place::UnderWay { take, .. } => (MonotonicTime(0), take),
                Place::Waiting(order) => order,
            };
            Some((order, Arc::clone(&slot.key)))
        });
        (from < end).then(|| keys.collect())
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// Frees memory that was required during an outage.
    pub(super) fn shrink(&mut self) {
        if self.index.is_empty() {
            self.slots = Slab::new();
            self.index.shrink_to_fit();
        }
    }

    fn wait(&mut self, id: u32, due: MonotonicTime) {
        self.count += 1;
        let slot = &mut self.slots[id as usize];
        slot.place = Place::Waiting((due, self.count));
        self.due.insert((slot.manager, (due, self.count)), id);
    }

    fn remove(&mut self, id: u32) -> Arc<[u8]> {
        let slot = self.slots.remove(id as usize);
        if let Place::Waiting(order) = slot.place {
            self.due.remove(&(slot.manager, order));
        }
        self.index.remove(&slot.key);
        self.usage.remove(slot.key.len());
        let of = self.managers.at(slot.manager);
        of.usage.remove(slot.key.len());
        of.pending.remove(id, slot.since, slot.follow_up);
        self.managers.left(slot.manager, slot.number);
        slot.key
    }
}

/// Returns the slot of `ticket`, the time of its take, and the first change since then, if the event is still in progress.
fn under_way(
    slots: &mut Slab<Slot>,
    ticket: Ticket,
) -> Option<(&mut Slot, MonotonicTime, Option<MonotonicTime>)> {
    let slot = slots.get_mut(ticket.slot as usize)?;
    match slot.place {
        Place::UnderWay { take, at, changed } if take == ticket.take => Some((slot, at, changed)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
