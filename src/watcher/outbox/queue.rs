//! What is to be told, in memory: the latest of each object, the oldest first.
//!
//! An object of a manager has at most one place here, whatever becomes of it:
//!
//! ```text
//!  insert ──> waiting ──take──> under way ──delivered──> waiting for its confirmation ──take─ … ─delivered──> gone
//!                ^                  │ └──delivered, changed again──> waiting
//!                └──────failed──────┘
//! ```
//!
//! Invariants: nothing leaves before an event was delivered that was taken after its last change, and once more if that
//! was within `confirm_after` of it (admission precedes storage: KCP may have looked too early); at most one event of an
//! object is under way; keys and memory are bounded by [`Limits`]. Time is an argument.
//! Deliberately absent: the disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::slot::Ticket;

use api::event::PathSegment;

use self::managers::{ManagerId, Managers};
use self::slot::{Place, Slot, under_way};
use super::moment::Moment;

pub(super) mod managers;
mod slot;

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

/// What an object takes beside its key: its slot, its places in the index and in the order, and what the allocator adds.
const SLOT_BYTES: usize = 208;

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
pub(super) struct Taken {
    pub(super) key: Arc<[u8]>,
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) ticket: Ticket,
}

#[derive(Debug)]
pub(super) struct Queue {
    index: HashMap<Arc<[u8]>, u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// What waits, by when it is due, then by when it came here.
    due: BTreeMap<(Moment, u64), u32>,
    managers: Managers,
    /// Counts places in the order, and takes.
    count: u64,
    key_bytes: usize,
    limits: Limits,
    confirm_after: Duration,
}

impl Queue {
    pub(super) fn new(limits: Limits, confirm_after: Duration, managers: Managers) -> Self {
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            due: BTreeMap::new(),
            managers,
            count: 0,
            key_bytes: 0,
            limits,
            confirm_after,
        }
    }

    /// Notes a change of `key`, if it is here.
    pub(super) fn touch(&mut self, key: &[u8], now: Moment) -> bool {
        let Some(&id) = self.index.get(key) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else {
            return false;
        };
        slot.changed = slot.changed.max(now);
        self.managers.used(slot.manager, now);
        match &mut slot.place {
            Place::UnderWay { changed, .. } => {
                changed.get_or_insert(now);
            }
            Place::Waiting { due, order } if slot.confirming => {
                let was = (*due, *order);
                (slot.confirming, slot.since) = (false, now);
                self.due.remove(&was);
                self.wait(id, now);
            }
            Place::Waiting { .. } => {}
        }
        true
    }

    /// Whether a key of so many bytes may enter.
    pub(super) fn has_room(&self, key_bytes: usize) -> bool {
        self.len() < self.limits.keys
            && self.memory() + key_bytes + SLOT_BYTES <= self.limits.memory
    }

    /// Adds `key`, which is not here.
    pub(super) fn insert(&mut self, key: &[u8], manager: ManagerId, now: Moment) {
        let key: Arc<[u8]> = Arc::from(key);
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Bounded by the limit of keys.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.key_bytes += key.len();
        self.index.insert(Arc::clone(&key), id);
        self.managers.entered(manager);
        if let Some(place) = self.slots.get_mut(id as usize) {
            *place = Some(Slot {
                key,
                manager,
                place: Place::Waiting { due: now, order: 0 },
                changed: now,
                since: now,
                confirming: false,
                number: 0,
                attempt: 0,
            });
        }
        self.wait(id, now);
    }

    /// At most `limit` of what is due at `now`, the oldest first.
    pub(super) fn take(&mut self, now: Moment, limit: usize) -> Vec<Taken> {
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let id = entry.remove();
            self.count += 1;
            let take = self.count;
            let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else {
                continue;
            };
            if slot.number == 0 {
                slot.number = self.managers.number(slot.manager);
            }
            slot.place = Place::UnderWay {
                take,
                at: now,
                changed: None,
            };
            taken.push(Taken {
                key: Arc::clone(&slot.key),
                number: slot.number,
                attempt: slot.attempt,
                ticket: Ticket { slot: id, take },
            });
        }
        taken
    }

    /// What was taken with `ticket` is delivered. The key, if it is done with.
    pub(super) fn delivered(&mut self, ticket: Ticket, now: Moment) -> Option<Arc<[u8]>> {
        let confirm_after = self.confirm_after;
        let (slot, at, changed) = under_way(&mut self.slots, ticket)?;
        self.managers.settle(slot.manager, slot.number);
        (slot.number, slot.attempt) = (0, 0);
        let stored_by = slot.changed.after(confirm_after);
        let due = match changed {
            Some(changed) => changed,
            None if at.min(now) >= stored_by => return self.remove(ticket.slot),
            // It was taken ahead of its time, and would be again.
            None if slot.confirming => Moment(u64::MAX),
            None => stored_by,
        };
        (slot.since, slot.confirming) = (due, changed.is_none());
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
    pub(super) fn failed(&mut self, ticket: Ticket, retry_at: Moment) {
        if let Some((slot, ..)) = under_way(&mut self.slots, ticket) {
            // If it has changed meanwhile, that retry tells it, and is no mere confirmation.
            slot.attempt = slot.attempt.saturating_add(1);
            slot.confirming = false;
            self.wait(ticket.slot, retry_at);
        }
    }

    /// Registers `name` in the place of another manager, whose events are dropped; how many, and whether a loss is to be
    /// told to that manager if it comes back. `None`: no manager can make room.
    pub(super) fn evict_for(
        &mut self,
        name: &PathSegment,
        now: Moment,
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

    /// When the first of what waits is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// Since when the oldest that is due at `now` waits; of one manager, or of all. Looks at every object.
    pub(super) fn oldest(&self, now: Moment, of: Option<ManagerId>) -> Option<Moment> {
        let all = self.slots.iter().flatten();
        let asked = all.filter(|slot| of.is_none_or(|manager| manager == slot.manager));
        let oldest = asked.map(|slot| slot.since).min();
        oldest.filter(|since| *since <= now)
    }

    /// The keys, in the order in which they are due; what is under way comes first.
    pub(super) fn keys(&self) -> Vec<Arc<[u8]>> {
        let slots = self.slots.iter().flatten();
        let under_way = slots.filter(|slot| matches!(slot.place, Place::UnderWay { .. }));
        let waiting = self
            .due
            .values()
            .filter_map(|id| self.slots.get(*id as usize));
        let all = under_way.chain(waiting.flatten());
        all.map(|slot| Arc::clone(&slot.key)).collect()
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

    fn wait(&mut self, id: u32, due: Moment) {
        self.count += 1;
        let order = self.count;
        if let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) {
            slot.place = Place::Waiting { due, order };
            self.due.insert((due, order), id);
        }
    }

    fn remove(&mut self, id: u32) -> Option<Arc<[u8]>> {
        let slot = self.slots.get_mut(id as usize)?.take()?;
        if let Place::Waiting { due, order } = slot.place {
            self.due.remove(&(due, order));
        }
        self.index.remove(&slot.key);
        self.free.push(id);
        self.key_bytes -= slot.key.len();
        self.managers.left(slot.manager, slot.number);
        Some(slot.key)
    }
}

#[cfg(test)]
mod tests;
