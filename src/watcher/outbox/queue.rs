//! The events to be sent, in memory: the latest of each object, the oldest first.
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

use slab::Slab;
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
    /// When the next event to be sent became due.
    since: MonotonicTime,
    /// Only the follow-up event is to be sent.
    follow_up: bool,
    /// 0: none yet.
    number: u64,
    attempt: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Waiting(Order),
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
    pub(super) keys: usize,
    /// Most bytes of memory, as [`Queue::memory`] counts them.
    pub(super) memory: usize,
}

impl Limits {
    pub(super) const WATCHER: Self = Self {
        keys: 100_000,
        memory: 16 << 20,
    };
}

/// What an object takes beside its key: its slot, its places in index, order and ages, and what the allocator adds.
const SLOT_BYTES: usize = 240;

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
    slots: Slab<Slot>,
    /// What waits, by its manager, then by when it is due, then by when it came there.
    due: BTreeMap<(ManagerId, Order), u32>,
    /// All objects by manager, follow-up or not, and since when KCP should know, so that the oldest is found at once.
    ages: BTreeSet<Age>,
    pub(super) managers: Managers,
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
            slots: Slab::new(),
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
        let slot = &mut self.slots[id as usize];
        slot.changed = slot.changed.max(now);
        self.managers.used(slot.manager, now);
        let follow_up = slot.follow_up;
        let waits = match &mut slot.place {
            Place::UnderWay { changed, .. } => {
                changed.get_or_insert(now);
                None
            }
            Place::Waiting(order) => Some((slot.manager, *order)),
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
    pub(super) fn has_capacity(&self, key_bytes: usize) -> bool {
        self.len() < self.limits.keys
            && self.memory() + key_bytes + SLOT_BYTES <= self.limits.memory
    }

    /// Adds `key`, which is not here.
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
        // Bounded by the limit of keys.
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        self.key_bytes += key.len();
        self.index.insert(key, id);
        self.managers.entered(manager);
        self.ages.insert((manager, false, now, id));
        self.wait(id, now);
    }

    /// Takes the event that is due longest at `now` of one of the managers that `permit` lets through: it is given their names, and
    /// whether they are configured or have taken an event. The managers take turns, so that one with many events delays no other.
    /// Events of other managers stay as they are.
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
        firsts.sort_unstable_by_key(|(manager, order)| {
            let turn = (order.0 <= now).then(|| self.managers.last_taken(*manager));
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
        self.managers.set_taken(slot.manager, self.count);
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
            None if at.min(now) >= stored_by => return Some(self.remove(ticket.slot)),
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
        Some((self.remove(ticket.slot), manager))
    }

    /// What was taken with `ticket` is to be tried again at `retry_at`.
    pub(super) fn failed(&mut self, ticket: Ticket, retry_at: MonotonicTime) {
        if let Some((slot, ..)) = under_way(&mut self.slots, ticket) {
            // If it has changed meanwhile, that retry reports the change, and is not only the follow-up event.
            slot.attempt = slot.attempt.saturating_add(1);
            let since = slot.since;
            self.set_age(ticket.slot, since, false);
            self.wait(ticket.slot, retry_at);
        }
    }

    /// Registers `name` in the place of another manager, whose events are dropped: the place, the name of that manager, how many
    /// events they were, and whether a loss is to be reported to it if it is registered again. `None`: no manager can be evicted.
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

    /// Drops all events of a manager, also those under way, whose tickets mean nothing from now on; their keys.
    pub(super) fn drop_events(&mut self, of: ManagerId) -> Vec<Arc<[u8]>> {
        let slots = self.slots.iter().filter(|(_, slot)| slot.manager == of);
        let keys: Vec<_> = slots.map(|(_, slot)| Arc::clone(&slot.key)).collect();
        for key in &keys {
            if let Some(&id) = self.index.get(key) {
                self.remove(id);
            }
        }
        keys
    }

    /// Since when the oldest that is due at `now` waits, follow-ups included.
    pub(super) fn oldest_due(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let oldest = self.managers.ids().flat_map(|of| {
            let each = [false, true].map(|follow_up| self.oldest_of(of, follow_up));
            each.into_iter().flatten()
        });
        oldest.min().filter(|since| *since <= now)
    }

    /// Since when the oldest event of a manager waits that is a follow-up, or is none.
    pub(super) fn oldest_of(&self, of: ManagerId, follow_up: bool) -> Option<MonotonicTime> {
        let first = (of, follow_up, MonotonicTime(0), 0);
        let last = (of, follow_up, MonotonicTime(u64::MAX), u32::MAX);
        let (_, _, since, _) = self.ages.range(first..=last).next()?;
        Some(*since)
    }

    /// The keys in so many slots from one on, each with its place in the order in which they are due; what is under way
    /// comes first. `None` behind the last slot.
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

    pub(super) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of memory, estimated upwards.
    pub(super) fn memory(&self) -> usize {
        self.key_bytes + self.len() * SLOT_BYTES
    }

    /// Gives memory back that an outage has needed.
    pub(super) fn shrink(&mut self) {
        if self.index.is_empty() {
            self.slots = Slab::new();
            self.index.shrink_to_fit();
        }
    }

    fn set_age(&mut self, id: u32, since: MonotonicTime, follow_up: bool) {
        let slot = &mut self.slots[id as usize];
        self.ages
            .remove(&(slot.manager, slot.follow_up, slot.since, id));
        self.ages.insert((slot.manager, follow_up, since, id));
        self.managers
            .set_follow_up(slot.manager, slot.follow_up, follow_up);
        (slot.since, slot.follow_up) = (since, follow_up);
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
        self.key_bytes -= slot.key.len();
        let (manager, follow_up) = (slot.manager, slot.follow_up);
        self.ages.remove(&(manager, follow_up, slot.since, id));
        self.managers.left(manager, follow_up, slot.number);
        slot.key
    }
}

/// The slot that `ticket` was given for, when it was taken, and the first change since; if it is still under way.
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
