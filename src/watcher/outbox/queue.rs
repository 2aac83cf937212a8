//! What is to be told, in memory: the latest of each object, the oldest first.
//!
//! An object of a manager has at most one place here, whatever becomes of it:
//!
//! ```text
//!  insert ──> waiting ──take──> under way ──delivered──> waiting as a follow-up event ──take─ … ─delivered──> gone
//!                ^                  │ └──delivered, changed again──> waiting
//!                └──────failed──────┘
//! ```
//!
//! An object leaves when an event was delivered that was taken after its last change, and once more, as a follow-up event,
//! if that was within the follow-up delay of it (admission precedes storage: KCP may have looked too early). At most one
//! event of an object is under way. Objects and memory are bounded by [`Limits`]. Time is an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use watcher_types::PathSegment;

use self::managers::{ManagerId, Managers};

pub(super) mod managers;

/// Time since the outbox was opened, in nanoseconds: half the size of an `Instant`.
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

/// Which take of which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    slot: u32,
    take: u64,
}

/// An object's place in the queue.
#[derive(Debug)]
struct Slot {
    key: Arc<[u8]>,
    manager: ManagerId,
    place: Place,
    /// The last change.
    changed: MonotonicTime,
    /// Since when KCP should know what it is told next.
    since: MonotonicTime,
    /// Only the follow-up event is to be sent.
    follow_up: bool,
    /// 0: none yet.
    number: u64,
    attempt: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Waiting {
        due: MonotonicTime,
        order: u64,
    },
    UnderWay {
        take: u64,
        at: MonotonicTime,
        /// The first change since.
        changed: Option<MonotonicTime>,
    },
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most objects.
    pub(super) keys: usize,
    /// Most bytes of memory, as [`Queue::memory`] counts them.
    pub(super) memory: usize,
}

impl Limits {
    /// The watcher's.
    pub(super) const WATCHER: Self = Self {
        keys: 100_000,
        memory: 16 << 20,
    };
}

/// What an object takes beside its key: its slot, its places in index, order and ages, and what the allocator adds.
const SLOT_BYTES: usize = 240;

/// What an evicted manager has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// Events that were dropped.
    pub(super) events: usize,
    /// Whether it is to be asked for a resync if it comes back.
    pub(super) lost: bool,
}

/// An event that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DequeuedEvent {
    pub(super) key: Arc<[u8]>,
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) ticket: Ticket,
}

/// When an object is due, and when it came there.
pub(super) type Order = (MonotonicTime, u64);

type Age = (ManagerId, bool, MonotonicTime, u32);

#[derive(Debug)]
pub(super) struct Queue {
    index: HashMap<Arc<[u8]>, u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// What waits, by its manager, then by when it is due, then by when it came there.
    due: BTreeMap<(ManagerId, Order), u32>,
    /// All objects by manager, follow-up or not, and since when KCP should know, so that the oldest is found at once.
    ages: BTreeSet<Age>,
    managers: Managers,
    /// Counts places in the order, and takes.
    count: u64,
    key_bytes: usize,
    limits: Limits,
    follow_up_delay: Duration,
}

impl Queue {
    pub(super) fn new(limits: Limits, follow_up_delay: Duration, managers: Managers) -> Self {
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            due: BTreeMap::new(),
            ages: BTreeSet::new(),
            managers,
            count: 0,
            key_bytes: 0,
            limits,
            follow_up_delay,
        }
    }

    /// Notes a change of `key`, if it is here.
    pub(super) fn touch(&mut self, key: &[u8], now: MonotonicTime) -> bool {
        let Some(&id) = self.index.get(key) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else {
            return false;
        };
        slot.changed = slot.changed.max(now);
        self.managers.used(slot.manager, now);
        let follow_up = slot.follow_up;
        let waits = match &mut slot.place {
            Place::UnderWay { changed, .. } => {
                changed.get_or_insert(now);
                None
            }
            Place::Waiting { due, order } => Some((slot.manager, (*due, *order))),
        };
        if follow_up {
            self.set_age(id, now, false);
            if let Some(was) = waits {
                self.due.remove(&was);
                self.wait(id, now);
            }
        }
        true
    }

    /// Whether a key of so many bytes may enter.
    pub(super) fn has_room(&self, key_bytes: usize) -> bool {
        self.len() < self.limits.keys
            && self.memory() + key_bytes + SLOT_BYTES <= self.limits.memory
    }

    /// Adds `key`, which is not here.
    pub(super) fn insert(&mut self, key: &[u8], manager: ManagerId, now: MonotonicTime) {
        let key: Arc<[u8]> = Arc::from(key);
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Bounded by the limit of keys.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.key_bytes += key.len();
        self.index.insert(Arc::clone(&key), id);
        self.managers.entered(manager);
        self.ages.insert((manager, false, now, id));
        if let Some(place) = self.slots.get_mut(id as usize) {
            *place = Some(Slot {
                key,
                manager,
                place: Place::Waiting { due: now, order: 0 },
                changed: now,
                since: now,
                follow_up: false,
                number: 0,
                attempt: 0,
            });
        }
        self.wait(id, now);
    }

    /// Takes the event that is due longest at `now` of the managers that `permit` lets through: it is given their names, and
    /// whether they are configured or have taken an event. Events of other managers stay as they are.
    ///
    /// # Errors
    /// There is none. When to ask again, by the earliest that is due later and by what `permit` says.
    pub(super) fn take<P>(
        &mut self,
        now: MonotonicTime,
        mut permit: impl FnMut(&PathSegment, bool) -> Result<P, Option<MonotonicTime>>,
    ) -> Result<(DequeuedEvent, P), Option<MonotonicTime>> {
        let firsts = self.managers.ids().filter_map(|of| self.first_due(of));
        let mut firsts: Vec<_> = firsts.collect();
        firsts.sort_unstable_by_key(|(_, order)| *order);
        let mut again = None;
        for first in firsts {
            let (manager, (due, _)) = first;
            let denied = match self.managers.name(manager) {
                Some(name) if due <= now => match permit(name, self.managers.is_known(manager)) {
                    Ok(permit) => {
                        let taken = self.take_first(first, now).ok_or(None)?;
                        return Ok((taken, permit));
                    }
                    Err(until) => until,
                },
                _ => Some(due),
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
        let slot = self.slots.get_mut(id as usize)?.as_mut()?;
        self.count += 1;
        if slot.number == 0 {
            slot.number = self.managers.number(slot.manager);
        }
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

    /// What was taken with `ticket` is delivered. The key, if it is done with.
    pub(super) fn delivered(&mut self, ticket: Ticket, now: MonotonicTime) -> Option<Arc<[u8]>> {
        let follow_up_delay = self.follow_up_delay;
        let (slot, at, changed) = under_way(&mut self.slots, ticket)?;
        self.managers.settle(slot.manager, slot.number);
        (slot.number, slot.attempt) = (0, 0);
        let stored_by = slot.changed.after(follow_up_delay);
        let due = match changed {
            Some(changed) => changed,
            None if at.min(now) >= stored_by => return self.remove(ticket.slot),
            // It was taken ahead of its time, and would be again.
            None if slot.follow_up => MonotonicTime(u64::MAX),
            None => stored_by,
        };
        self.set_age(ticket.slot, due, changed.is_none());
        self.wait(ticket.slot, due);
        None
    }

    /// What was taken with `ticket` is dropped, with the changes since; its key and its manager.
    pub(super) fn rejected(&mut self, ticket: Ticket) -> Option<(Arc<[u8]>, ManagerId)> {
        let (slot, ..) = under_way(&mut self.slots, ticket)?;
        let manager = slot.manager;
        Some((self.remove(ticket.slot)?, manager))
    }

    /// What was taken with `ticket` is to be tried again at `retry_at`.
    pub(super) fn failed(&mut self, ticket: Ticket, retry_at: MonotonicTime) {
        if let Some((slot, ..)) = under_way(&mut self.slots, ticket) {
            // If it has changed meanwhile, that retry tells it, and is no mere confirmation.
            slot.attempt = slot.attempt.saturating_add(1);
            let since = slot.since;
            self.set_age(ticket.slot, since, false);
            self.wait(ticket.slot, retry_at);
        }
    }

    /// Registers `name` in the place of another manager, whose events are dropped; how many, and whether a loss is to be
    /// told to that manager if it comes back. `None`: no manager can make room.
    pub(super) fn evict_for(
        &mut self,
        name: &PathSegment,
        now: MonotonicTime,
    ) -> Option<(ManagerId, Evicted)> {
        let place = self.managers.evictable(now)?;
        let events = self.drop_events(place).len();
        let lost = self.managers.replace(place, name, now);
        let evicted = Evicted {
            events,
            lost: lost || events > 0,
        };
        Some((place, evicted))
    }

    /// Drops all events of a manager, also those under way, whose tickets mean nothing from now on; their keys.
    pub(super) fn drop_events(&mut self, of: ManagerId) -> Vec<Arc<[u8]>> {
        let ids = (0..).zip(&self.slots);
        let ids: Vec<u32> = ids
            .filter_map(|(id, slot)| slot.as_ref().filter(|slot| slot.manager == of).map(|_| id))
            .collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Since when the oldest event of a manager waits that is not a follow-up.
    pub(super) fn oldest_undelivered(&self, of: ManagerId) -> Option<MonotonicTime> {
        self.oldest_of(of, false)
    }

    /// Since when the oldest that is due at `now` waits, follow-ups included.
    pub(super) fn oldest_due(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let oldest = self.managers.ids().flat_map(|of| {
            let each = [false, true].map(|follow_up| self.oldest_of(of, follow_up));
            each.into_iter().flatten()
        });
        oldest.min().filter(|since| *since <= now)
    }

    fn oldest_of(&self, of: ManagerId, follow_up: bool) -> Option<MonotonicTime> {
        let first = (of, follow_up, MonotonicTime(0), 0);
        let last = (of, follow_up, MonotonicTime(u64::MAX), u32::MAX);
        let (_, _, since, _) = self.ages.range(first..=last).next()?;
        Some(*since)
    }

    /// The keys in so many slots from one on, each with its place in the order in which they are due; what is under way
    /// comes first. `None` behind the last slot.
    pub(super) fn keys(&self, from: usize, slots: usize) -> Option<Vec<(Order, Arc<[u8]>)>> {
        let end = self.slots.len().min(from + slots);
        let slots = self
            .slots
            .get(from..end)
            .filter(|slots| !slots.is_empty())?;
        let keys = slots.iter().flatten().map(|slot| {
            let order = match slot.place {
                Place::UnderWay { take, .. } => (MonotonicTime(0), take),
                Place::Waiting { due, order } => (due, order),
            };
            (order, Arc::clone(&slot.key))
        });
        Some(keys.collect())
    }

    /// Objects here.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes of all keys.
    pub(super) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of memory, estimated upwards.
    pub(super) fn memory(&self) -> usize {
        self.key_bytes + self.len() * SLOT_BYTES
    }

    pub(super) fn managers(&self) -> &Managers {
        &self.managers
    }

    pub(super) fn managers_mut(&mut self) -> &mut Managers {
        &mut self.managers
    }

    /// Gives memory back that an outage has needed.
    pub(super) fn shrink(&mut self) {
        if self.index.is_empty() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
            self.index.shrink_to_fit();
        }
    }

    fn set_age(&mut self, id: u32, since: MonotonicTime, follow_up: bool) {
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else {
            return;
        };
        self.ages
            .remove(&(slot.manager, slot.follow_up, slot.since, id));
        self.ages.insert((slot.manager, follow_up, since, id));
        self.managers
            .set_follow_up(slot.manager, slot.follow_up, follow_up);
        (slot.since, slot.follow_up) = (since, follow_up);
    }

    fn wait(&mut self, id: u32, due: MonotonicTime) {
        self.count += 1;
        let order = self.count;
        if let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) {
            slot.place = Place::Waiting { due, order };
            self.due.insert((slot.manager, (due, order)), id);
        }
    }

    fn remove(&mut self, id: u32) -> Option<Arc<[u8]>> {
        let slot = self.slots.get_mut(id as usize)?.take()?;
        if let Place::Waiting { due, order } = slot.place {
            self.due.remove(&(slot.manager, (due, order)));
        }
        self.index.remove(&slot.key);
        self.free.push(id);
        self.key_bytes -= slot.key.len();
        let Slot {
            manager, follow_up, ..
        } = slot;
        self.ages.remove(&(manager, follow_up, slot.since, id));
        self.managers.left(manager, follow_up, slot.number);
        Some(slot.key)
    }
}

/// The slot that `ticket` was given for, when it was taken, and the first change since; if it is still under way.
fn under_way(
    slots: &mut [Option<Slot>],
    ticket: Ticket,
) -> Option<(&mut Slot, MonotonicTime, Option<MonotonicTime>)> {
    let slot = slots.get_mut(ticket.slot as usize)?.as_mut()?;
    match slot.place {
        Place::UnderWay { take, at, changed } if take == ticket.take => Some((slot, at, changed)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
