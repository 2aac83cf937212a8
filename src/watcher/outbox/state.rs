//! Queue and spool together, under one lock: what one of them knows, the other does.
//!
//! The spool says which objects are in the queue, nothing more: an object that is here already needs no record when it
//! changes again, and is recorded as delivered only when it leaves. So a record is written per object and calm, not per
//! change. Invariant: while the disk is in use, every object in the queue is on it, or in the snapshot being written.

use std::time::Duration;

use api::event::{PathSegment, WatchEvent};

use super::journal::{Compaction, Fresh, Journal, Snapshot};
use super::moment::Moment;
use super::queue::managers::{self, Loss, ManagerId, Managers};
use super::queue::{Limits, Queue, Ticket};
use super::record::{self, Kind};
use super::recovery::Left;
use super::report::Dropped;
use super::spool::Spool;
use super::{FsyncPolicy, ResyncMark, Stored, key};

/// Most records that one call writes while other events wait for the lock.
const FEW: usize = 1_024;

/// The options but the folder, and what is none of the user's.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) managers: Vec<PathSegment>,
    /// How long [`Outbox::put`](super::Outbox::put) waits for the disk.
    pub(super) write_deadline: Duration,
    pub(super) limits: Limits,
    pub(super) max_bytes: u64,
    pub(super) fsync: FsyncPolicy,
    pub(super) confirm_after: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) spool: Spool,
    pub(super) dropped: Dropped,
    /// Reused, so that a change of an object that waits costs no allocation.
    key: Vec<u8>,
}

impl State {
    pub(super) fn new(settings: &Settings) -> Self {
        let managers = Managers::new(&settings.managers);
        Self {
            queue: Queue::new(settings.limits, settings.confirm_after, managers),
            spool: Spool::new(settings.max_bytes, settings.fsync),
            dropped: Dropped::default(),
            key: Vec::with_capacity(1024),
        }
    }

    /// Keeps an event. What it says of the spool holds once [`Spool::pending`] is written.
    pub(super) fn put(&mut self, manager: &PathSegment, event: &WatchEvent, now: Moment) -> Stored {
        let mut key = std::mem::take(&mut self.key);
        let fits = key::encode(&mut key, manager, event);
        let stored = if fits && self.queue.touch(&key, now) {
            Stored::Coalesced
        } else if let Some(manager) = self.register(manager, now) {
            if fits && self.has_room(key.len()) {
                self.enter(&key, manager, now)
            } else {
                self.lose(manager, now)
            }
        } else {
            self.turn_away(now)
        };
        self.key = key;
        stored
    }

    pub(super) fn delivered(&mut self, ticket: Ticket, now: Moment) {
        if let Some(key) = self.queue.delivered(ticket, now) {
            self.spool.append(Kind::Delivered, &key, now);
        }
    }

    /// Drops the event that was taken with `ticket`. The mark is on the disk before the event is off it.
    pub(super) fn rejected(&mut self, ticket: Ticket, now: Moment) {
        if let Some((key, manager)) = self.queue.rejected(ticket) {
            self.dropped.rejected += 1;
            if let Some(manager) = self.mark_lost(manager, now) {
                tracing::warn!(%manager, "event dropped, rejected by KCP, resync pending");
            }
            self.spool.append(Kind::Delivered, &key, now);
        }
    }

    /// Drops all events of a manager. On the disk they are few, or the next compaction leaves them out: until then they
    /// would come back with the next life, and be rejected once more.
    pub(super) fn all_rejected(&mut self, manager: &PathSegment, now: Moment) {
        let Some(manager) = self.queue.managers().place(manager) else {
            return;
        };
        let keys = self.queue.drop_events(manager);
        if keys.is_empty() {
            return;
        }
        self.dropped.rejected += keys.len() as u64;
        if let Some(manager) = self.mark_lost(manager, now) {
            let events = keys.len();
            tracing::warn!(%manager, events, "events dropped, all rejected by KCP, resync pending");
        }
        for key in keys.iter().take(FEW) {
            self.spool.append(Kind::Delivered, key, now);
        }
    }

    pub(super) fn resync_told(&mut self, manager: &PathSegment, mark: ResyncMark, now: Moment) {
        if self.queue.managers_mut().told(manager, mark, now) {
            self.spool
                .append(Kind::ResyncTold, manager.as_str().as_bytes(), now);
        }
    }

    /// Takes over what former lives have left.
    pub(super) fn recover(&mut self, mut left: Left, now: Moment) {
        self.dropped.manager_not_configured += left.not_configured();
        let (everyone, losses) = (left.everyone, std::mem::take(&mut left.losses));
        let mut complete = !left.may_be_missing;
        for key in left.into_keys() {
            complete &= self.readmit(&key, now);
        }
        let managers = self.queue.managers_mut();
        for (name, _) in losses.iter().filter(|(_, lost)| **lost) {
            match managers.register(name, now) {
                Some(place) => _ = managers.lose(place),
                None => _ = managers.lose_strangers(),
            }
        }
        if everyone {
            for (name, _) in losses.iter().filter(|(_, lost)| !**lost) {
                let _unless_there_is_room = managers.register(name, now);
            }
            managers.recovered_everyone(|name| losses.get(name) == Some(&false));
        }
        if !complete {
            managers.lose_any();
        }
    }

    /// From now on records go to `fresh`; the rest of the compaction is to follow. `None`: the folder has gone.
    pub(super) fn switch(&mut self, fresh: Fresh) -> Option<Compaction> {
        let mut losses = Vec::new();
        for loss in self.queue.managers().losses() {
            let (kind, manager) = match loss {
                Loss::Everyone => (Kind::Resync, ""),
                Loss::Of(manager) => (Kind::Resync, manager),
                Loss::Told(manager) => (Kind::ResyncTold, manager),
            };
            record::write(&mut losses, kind, manager.as_bytes());
        }
        let keys = self.queue.keys();
        self.spool.switch(fresh, Snapshot { keys, losses })
    }

    /// Whether most of the disk's share is dead.
    pub(super) fn wants_compaction(&self, now: Moment) -> bool {
        let queue = &self.queue;
        self.spool
            .wants_compaction(queue.len(), queue.key_bytes(), now)
    }

    pub(super) fn adopt(&mut self, journal: Journal, left: Left, now: Moment) {
        self.recover(left, now);
        self.spool.adopt(journal);
    }

    fn has_room(&self, key_bytes: usize) -> bool {
        let (records, bytes) = (self.queue.len() + 1, self.queue.key_bytes() + key_bytes);
        self.queue.has_room(key_bytes) && self.spool.has_room(records, bytes)
    }

    fn enter(&mut self, key: &[u8], manager: ManagerId, now: Moment) -> Stored {
        self.queue.insert(key, manager, now);
        self.spool.append(Kind::Put, key, now);
        if self.spool.in_use() {
            Stored::Spooled
        } else {
            Stored::MemoryOnly
        }
    }

    /// The place of `name`; `None`: it may not be registered, or there is no room.
    fn register(&mut self, name: &PathSegment, now: Moment) -> Option<ManagerId> {
        if let Some(place) = self.queue.managers_mut().register(name, now) {
            return Some(place);
        }
        let (place, evicted) = self.queue.evict_for(name, now)?;
        self.dropped.too_many_managers += evicted.events as u64;
        if self.queue.managers().evictions() == 1 {
            tracing::warn!(
                capacity = managers::CAPACITY,
                "manager evicted at the limit of managers, set WATCHER_MANAGERS"
            );
        }
        if evicted.lost {
            self.lose_strangers(now);
        }
        Some(place)
    }

    fn lose(&mut self, manager: ManagerId, now: Moment) -> Stored {
        self.dropped.outbox_full += 1;
        if let Some(name) = self.mark_lost(manager, now) {
            tracing::error!(manager = %name, "event dropped, outbox full, resync pending");
        }
        Stored::Full
    }

    /// Marks the manager to need a resync; its name if that is news for the log: it was not marked already, and its name is
    /// not a client's invention.
    fn mark_lost(&mut self, manager: ManagerId, now: Moment) -> Option<PathSegment> {
        let managers = self.queue.managers_mut();
        let first = managers.lose(manager);
        let name = managers.name(manager).cloned().filter(|_| first)?;
        self.spool
            .append(Kind::Resync, name.as_str().as_bytes(), now);
        self.queue.managers().is_known(&name).then_some(name)
    }

    /// Keeps nothing of an event whose manager is not registered.
    fn turn_away(&mut self, now: Moment) -> Stored {
        if !self.queue.managers().admits_others() {
            return Stored::NotConfigured;
        }
        self.dropped.too_many_managers += 1;
        if self.lose_strangers(now) {
            tracing::error!("events dropped at the limit of managers, set WATCHER_MANAGERS");
        }
        Stored::TooManyManagers
    }

    /// Notes that managers which are not registered have lost events; nothing else is kept of them. The record states it for
    /// all managers, so after a restart each is asked for a resync, unless a snapshot has named the ones concerned by then.
    /// Returns whether it is new.
    fn lose_strangers(&mut self, now: Moment) -> bool {
        let first = self.queue.managers_mut().lose_strangers();
        if first {
            self.spool.append(Kind::Resync, b"", now);
        }
        first
    }

    /// Takes an object of a former life; whether there was room.
    fn readmit(&mut self, key: &[u8], now: Moment) -> bool {
        let Some(manager) = key::manager(key) else {
            return false;
        };
        if self.queue.touch(key, now) {
            return true;
        }
        let Some(manager) = self.queue.managers_mut().register(&manager, now) else {
            self.dropped.too_many_managers += 1;
            self.queue.managers_mut().lose_strangers();
            return true;
        };
        let has_room = self.queue.has_room(key.len());
        if has_room {
            self.queue.insert(key, manager, now);
        } else {
            self.dropped.outbox_full += 1;
        }
        has_room
    }
}
