//! The queue and the records of its changes. A record only states which objects are in the queue. While records are
//! accepted, each object in the queue is on the disk, in the pending records, or in the snapshot that is being written.

use watcher_types::{PathSegment, WatchEvent};

use super::handoff::Handoff;
use super::queue::managers::{self, EARLIER, ManagerId, Managers};
use super::queue::{Limits, MonotonicTime, Queue, Ticket, UNCONFIRMED_PART, Usage};
use super::record::{self, Kind};
use super::segments::RecoveredState;
use super::spool::segment_bytes;
use super::types::TimeLimits;
use super::{Dropped, Options, Stored, key};

/// Maximum number of records that one call writes while other events wait for the lock.
const FEW: usize = 1_024;

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) handoff: Handoff,
    /// Maximum number of bytes of pending events on the disk.
    live_bytes: u64,
    pub(super) dropped: Dropped,
    /// Reused, so that a change of a waiting object requires no allocation.
    key: Vec<u8>,
}

impl State {
    pub(super) fn new(options: &Options, limits: Limits, time_limits: TimeLimits) -> Self {
        let managers = Managers::new(&options.managers);
        Self {
            queue: Queue::new(limits, options.follow_up_delay, managers),
            handoff: Handoff::new(time_limits),
            live_bytes: options.max_bytes / 4,
            dropped: Dropped::default(),
            key: Vec::with_capacity(1024),
        }
    }

    /// Stores an event. [`Stored::Spooled`] and [`Stored::Coalesced`] apply only after the records are written.
    pub(super) fn put(
        &mut self,
        manager: &PathSegment,
        event: &WatchEvent,
        now: MonotonicTime,
    ) -> Stored {
        let mut key = std::mem::take(&mut self.key);
        let fits = key::encode(&mut key, manager, event);
        let stored = if fits && self.queue.touch(&key, now) {
            Stored::Coalesced
        } else if let Some(manager) = self.register(manager, now) {
            if fits && self.has_capacity(manager, key.len()) {
                self.queue.insert(&key, manager, now);
                self.handoff.record(Kind::Put, &key);
                Stored::Spooled
            } else {
                self.drop_full(manager, now)
            }
        } else {
            self.reject_unregistered(manager, now)
        };
        self.key = key;
        stored
    }

    /// Drops the event of `ticket`. The mark is written to the disk before the event is removed from it.
    pub(super) fn rejected(&mut self, ticket: Ticket, now: MonotonicTime) {
        if let Some((key, manager)) = self.queue.rejected(ticket) {
            self.dropped.rejected += 1;
            // It may be about a change that was reviewed just now.
            if let Some(manager) = self.mark_lost(manager, self.queue.stored_by(now)) {
                tracing::warn!(%manager, "event dropped, rejected by KCP, resync pending");
            }
            self.handoff.record(Kind::Delivered, &key);
        }
    }

    /// Drops all events of a manager. If there are many events, only the next compaction removes them from the disk. Until
    /// then a new process would send them again, and KCP would reject them again.
    pub(super) fn all_rejected(&mut self, manager: &PathSegment, now: MonotonicTime) {
        let Some(manager) = self.queue.managers.place(manager) else {
            return;
        };
        let keys = self.queue.drop_events(manager);
        if keys.is_empty() {
            return;
        }
        self.dropped.rejected += keys.len() as u64;
        if let Some(manager) = self.mark_lost(manager, self.queue.stored_by(now)) {
            let events = keys.len();
            tracing::warn!(%manager, events, "events dropped, all rejected by KCP, resync pending");
        }
        for key in keys.iter().take(FEW) {
            self.handoff.record(Kind::Delivered, key);
        }
    }

    /// Adds the events and losses of earlier processes.
    pub(super) fn recover(&mut self, mut left: RecoveredState, now: MonotonicTime) {
        self.dropped.manager_not_configured += left.not_configured.len() as u64;
        let (all_lost, losses) = (left.all_lost, std::mem::take(&mut left.losses));
        let mut complete = !left.may_be_missing;
        for key in left.into_keys() {
            complete &= self.recover_key(&key, now);
        }
        let managers = &mut self.queue.managers;
        for (name, _) in losses.iter().filter(|(_, lost)| **lost) {
            match managers.register(name, now) {
                Some(place) => _ = managers.mark_lost(place, EARLIER),
                None => _ = managers.mark_unregistered_lost(name, EARLIER),
            }
        }
        if all_lost {
            for (name, _) in losses.iter().filter(|(_, lost)| !**lost) {
                // A registered manager has its own loss.
                if managers.place(name).is_none() {
                    let _unless_full = managers.set_reported(name.clone());
                }
            }
            managers.mark_all_lost(|name| losses.get(name) == Some(&false));
        }
        if !complete {
            managers.mark_all_lost(|_| false);
        }
    }

    /// Marks all managers to need a resync.
    pub(super) fn mark_all_lost(&mut self) {
        self.queue.managers.mark_all_lost(|_| false);
        for (kind, manager) in self.queue.managers.losses() {
            self.handoff.record(kind, manager.as_bytes());
        }
    }

    /// Marks a manager that is not a client's invention as one that has missed a change.
    pub(super) fn unread(&mut self, manager: &PathSegment, now: MonotonicTime) {
        let managers = &self.queue.managers;
        let exists = managers.knows(manager) || managers.has_watcher(manager);
        let stored_by = self.queue.stored_by(now);
        if exists && self.mark_existing_lost(manager, now, stored_by) {
            tracing::warn!(%manager, "admission review not read or not understood, resync pending");
        }
    }

    /// Sets the managers that have a Watcher, and marks those that were added.
    pub(super) fn set_watching(&mut self, names: &[PathSegment], now: MonotonicTime) {
        for manager in self.queue.managers.set_watching(names) {
            if self.mark_existing_lost(&manager, now, EARLIER) {
                tracing::info!(%manager, "manager has a new Watcher, resync pending");
            }
        }
    }

    /// Marks a manager that exists, registered or not. Returns whether it had no mark before.
    fn mark_existing_lost(
        &mut self,
        manager: &PathSegment,
        now: MonotonicTime,
        stored_by: MonotonicTime,
    ) -> bool {
        let Some(place) = self.queue.managers.register(manager, now) else {
            return self.queue.managers.admits_others()
                && self.mark_unregistered_lost(manager, stored_by);
        };
        let had_mark = self.queue.managers.loss(manager).is_some();
        self.mark_lost(place, stored_by);
        !had_mark
    }

    /// Records of the losses.
    pub(super) fn losses(&self) -> Vec<u8> {
        let mut losses = Vec::new();
        for (kind, manager) in self.queue.managers.losses() {
            record::write(&mut losses, kind, manager.as_bytes());
        }
        losses
    }

    /// Returns whether queue and spool have capacity for a key of this size. Managers that a client may have invented share
    /// a part of it, so that events of other managers are stored while a client fills that part.
    fn has_capacity(&self, manager: ManagerId, key_bytes: usize) -> bool {
        let (queue, managers) = (&self.queue, &self.queue.managers);
        let on_disk = |used: Usage| segment_bytes(used.with(key_bytes));
        if !queue.has_capacity(key_bytes) || on_disk(queue.usage()) > self.live_bytes {
            return false;
        }
        let part = self.live_bytes / UNCONFIRMED_PART as u64;
        managers.is_confirmed(manager)
            || queue.has_unconfirmed_capacity(key_bytes)
                && on_disk(managers.unconfirmed_usage()) <= part
    }

    /// Returns the index of `name`. `None` if the manager may not be registered, or if there is no capacity.
    fn register(&mut self, name: &PathSegment, now: MonotonicTime) -> Option<ManagerId> {
        if let Some(place) = self.queue.managers.register(name, now) {
            return Some(place);
        }
        let (place, evicted, events, lost) = self.queue.evict_for(name, now)?;
        self.dropped.too_many_managers += events as u64;
        if self.queue.managers.evictions() == 1 {
            tracing::warn!(
                capacity = managers::CAPACITY,
                "manager evicted at the limit of managers, set WATCHER_MANAGERS"
            );
        }
        if lost {
            self.mark_unregistered_lost(&evicted, self.queue.stored_by(now));
        }
        Some(place)
    }

    fn drop_full(&mut self, manager: ManagerId, now: MonotonicTime) -> Stored {
        self.dropped.outbox_full += 1;
        let stored_by = self.queue.stored_by(now);
        if let Some(name) = self.mark_lost(manager, stored_by) {
            tracing::error!(manager = %name, "event dropped, outbox full, resync pending");
        }
        Stored::Full
    }

    /// Marks the manager to need a resync. Returns the name of the manager if the mark must be logged: the manager was not
    /// marked before, and a client did not invent its name.
    fn mark_lost(&mut self, manager: ManagerId, stored_by: MonotonicTime) -> Option<PathSegment> {
        let managers = &mut self.queue.managers;
        if !managers.mark_lost(manager, stored_by) {
            return None;
        }
        let name = managers.name(manager);
        self.handoff.record(Kind::Resync, name.as_str().as_bytes());
        managers.is_known(manager).then(|| name.clone())
    }

    /// Rejects an event whose manager is not registered.
    fn reject_unregistered(&mut self, manager: &PathSegment, now: MonotonicTime) -> Stored {
        if !self.queue.managers.admits_others() {
            return Stored::NotConfigured;
        }
        self.dropped.too_many_managers += 1;
        if self.mark_unregistered_lost(manager, self.queue.stored_by(now)) {
            tracing::error!("events dropped at the limit of managers, set WATCHER_MANAGERS");
        }
        Stored::TooManyManagers
    }

    /// Records that an unregistered manager has lost events, without further state for that manager. The first record
    /// applies to all managers. After a restart each manager therefore gets a request for a resync, unless a resync was
    /// reported to it, or a snapshot has recorded the affected managers by then. Returns whether this is the first loss of
    /// an unregistered manager.
    fn mark_unregistered_lost(&mut self, name: &PathSegment, stored_by: MonotonicTime) -> bool {
        let is_first = !self.queue.managers.is_all_lost();
        let is_new = self.queue.managers.mark_unregistered_lost(name, stored_by);
        if is_first {
            self.handoff.record(Kind::Resync, b"");
        } else if is_new {
            self.handoff.record(Kind::Resync, name.as_str().as_bytes());
        }
        is_first
    }

    /// Adds an object of an earlier process. Returns whether there was capacity. No manager of it has accepted an event of
    /// this process yet, so all managers can use the whole capacity.
    fn recover_key(&mut self, key: &[u8], now: MonotonicTime) -> bool {
        let Some(manager) = key::manager(key) else {
            return false;
        };
        if self.queue.touch(key, now) {
            return true;
        }
        let Some(manager) = self.queue.managers.register(&manager, now) else {
            self.dropped.too_many_managers += 1;
            let managers = &mut self.queue.managers;
            managers.mark_unregistered_lost(&manager, EARLIER);
            return true;
        };
        let has_capacity = self.queue.has_capacity(key.len());
        if has_capacity {
            self.queue.insert(key, manager, now);
        } else {
            self.dropped.outbox_full += 1;
        }
        has_capacity
    }
}
