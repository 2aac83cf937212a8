//! Registry of the managers that get events, with the sequence numbers, counts and losses of each manager. The watcher has
//! no other list of managers.
//!
//! Configured managers are registered at the start, until the process ends, and no other manager is registered. Without
//! configured managers a review registers its manager, up to [`CAPACITY`] managers; a further manager evicts another. Any
//! client in the cluster can invent names, and KCP accepts events only for its own managers. Therefore managers that have
//! accepted an event or have a Watcher are evicted last, and managers that are neither configured nor have a Watcher, and have
//! accepted no event, share a part of the capacity. Sequence numbers have no gaps per manager, because its listener receives no events
//! of other managers and would report the gaps.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use watcher_types::PathSegment;

use super::super::ResyncMark;
use super::super::record::Kind;
use super::{MonotonicTime, Pending, Usage};

/// Maximum number of registered managers without a configuration. A runtime usually has a few managers.
pub(crate) const CAPACITY: usize = 32;

/// Minimum time for which a manager that is not configured stays registered. It limits the cost of invented names, because
/// each new name may cause some requests to KCP.
const TENURE: Duration = Duration::from_mins(1);

/// Maximum number of unregistered managers for which it is stored that a resync was reported. The number of receivers of
/// heartbeats is lower.
const MAX_REPORTED: usize = 256;

/// For losses of changes that were stored before the loss was noticed.
pub(in crate::outbox) const EARLIER: MonotonicTime = MonotonicTime(0);

/// Index of a manager in [`Managers`].
pub(crate) type ManagerId = u16;

#[derive(Debug, Default)]
pub(crate) struct Managers {
    /// Number of configured managers at the start of `known`; 0 means that any manager may register.
    configured: usize,
    known: Vec<Manager>,
    /// The last loss of all managers, if there was one: managers that are not registered also need a resync.
    all_lost: Option<ResyncMark>,
    /// Unregistered managers to which a resync was reported since their last loss.
    reported: HashSet<PathSegment>,
    /// The last loss of unregistered managers that lost events after the last loss of all managers.
    later: HashMap<PathSegment, ResyncMark>,
    /// The managers that have a Watcher, if that is known.
    watching: Option<HashSet<PathSegment>>,
    /// Numbers the losses.
    losses: u64,
    evictions: u64,
}

#[derive(Debug)]
pub(super) struct Manager {
    name: PathSegment,
    /// The last assigned sequence number.
    sequence: u64,
    /// Assigned sequence numbers that are not delivered.
    open: BTreeSet<u64>,
    /// Whether the manager has accepted an event.
    reached: bool,
    /// Value of the take counter at the last take of an event for the manager.
    pub(super) taken: u64,
    lost: Option<ResyncMark>,
    /// Its objects in the queue.
    pub(super) usage: Usage,
    pub(super) pending: Pending,
    registered: MonotonicTime,
    /// When an event for the manager was last put.
    pub(super) used: MonotonicTime,
}

/// A manager that gets heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) name: PathSegment,
    /// Whether the manager has accepted an event of this process, so that it exists on KCP.
    pub(crate) reached: bool,
    /// Whether the manager is configured or was reached. A client may have invented the name of any other manager.
    pub(crate) known: bool,
}

impl Manager {
    fn new(name: PathSegment, lost: Option<ResyncMark>, now: MonotonicTime) -> Self {
        Self {
            name,
            sequence: 0,
            open: BTreeSet::new(),
            reached: false,
            taken: 0,
            lost,
            usage: Usage::default(),
            pending: Pending::default(),
            registered: now,
            used: now,
        }
    }

    /// Records a loss. Returns whether there was no unreported one before.
    fn lose(&mut self, mark: ResyncMark) -> bool {
        self.lost.replace(mark.since(self.lost)).is_none()
    }
}

impl ResyncMark {
    /// Covers also the loss `before`.
    fn since(self, before: Option<Self>) -> Self {
        let stored_by = before.map_or(EARLIER, |it| it.stored_by);
        Self {
            stored_by: self.stored_by.max(stored_by),
            ..self
        }
    }
}

impl Managers {
    /// Creates a registry of the `configured` managers. If the list is empty, any manager may register.
    pub(in crate::outbox) fn new(configured: &[PathSegment]) -> Self {
        let mut managers = Self::default();
        for name in configured {
            if managers.place(name).is_none() {
                managers.add(name, MonotonicTime::default());
            }
        }
        managers.configured = managers.known.len();
        managers
    }

    /// Returns the index of `name`, and registers it if there is capacity. `None` if there is no capacity, or if other
    /// managers are configured.
    pub(in crate::outbox) fn register(
        &mut self,
        name: &PathSegment,
        now: MonotonicTime,
    ) -> Option<ManagerId> {
        if let Some(place) = self.place(name) {
            self.at(place).used = now;
            return Some(place);
        }
        let free = self.admits_others() && self.known.len() < CAPACITY;
        if free { self.add(name, now) } else { None }
    }

    /// Returns whether managers that are not configured may register.
    pub(in crate::outbox) fn admits_others(&self) -> bool {
        self.configured == 0
    }

    fn add(&mut self, name: &PathSegment, now: MonotonicTime) -> Option<ManagerId> {
        let place = ManagerId::try_from(self.known.len()).ok()?;
        let lost = self.loss_of_new(name);
        self.known.push(Manager::new(name.clone(), lost, now));
        Some(place)
    }

    /// Returns the loss of a manager that is registered now.
    fn loss_of_new(&mut self, name: &PathSegment) -> Option<ResyncMark> {
        let before = self.unregistered_loss(name);
        let is_reported = self.reported.remove(name);
        self.later.remove(name);
        (self.is_all_lost() && !is_reported).then(|| self.next_loss(EARLIER).since(before))
    }

    /// Returns the manager that may be evicted: the least recently used manager that a client may have invented, or of all if
    /// there is none. `None` if all managers are configured or were registered too recently.
    pub(in crate::outbox) fn evictable(&self, now: MonotonicTime) -> Option<ManagerId> {
        let known = self.known.get(self.configured..)?;
        let is_confirmed = |it: &Manager| it.reached || self.has_watcher(&it.name);
        let are_all_confirmed = known.iter().all(is_confirmed);
        let candidates = known.iter().filter(|manager| {
            is_confirmed(manager) == are_all_confirmed && manager.registered.until(now) >= TENURE
        });
        let victim = candidates.min_by_key(|manager| manager.used)?;
        self.place(&victim.name)
    }

    /// Assigns the index of an evicted manager to `name`. Returns whether the evicted manager had an unreported loss.
    pub(super) fn replace(
        &mut self,
        place: ManagerId,
        name: &PathSegment,
        now: MonotonicTime,
    ) -> bool {
        let lost = self.loss_of_new(name);
        let new = Manager::new(name.clone(), lost, now);
        let evicted = std::mem::replace(self.at(place), new);
        self.evictions += 1;
        let is_lost = evicted.lost.is_some();
        if self.is_all_lost() && !is_lost {
            self.set_reported(evicted.name);
        }
        is_lost
    }

    /// Returns the number of evictions. When it changes, other state per manager must be cleaned up.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Records that `name` has accepted an event that was never in the outbox.
    pub(in crate::outbox) fn took(&mut self, name: &PathSegment, now: MonotonicTime) {
        if let Some(manager) = self.register(name, now) {
            self.at(manager).reached = true;
        }
    }

    /// Assigns the next sequence number to an event for the manager at `place`.
    pub(super) fn number(&mut self, place: ManagerId) -> u64 {
        let manager = self.at(place);
        manager.sequence += 1;
        manager.open.insert(manager.sequence);
        manager.sequence
    }

    /// Records that the event with this number is delivered.
    pub(super) fn settle(&mut self, place: ManagerId, number: u64) {
        let manager = self.at(place);
        manager.open.remove(&number);
        manager.reached = true;
    }

    /// Records that an object of the manager at `place` is removed from the queue, with its unsettled sequence number, or 0.
    pub(super) fn left(&mut self, place: ManagerId, number: u64) {
        self.at(place).open.remove(&number);
    }

    /// Records the loss of an event for the manager at `place`. Returns whether the manager had no unreported loss before.
    /// The change that was lost is stored by `stored_by`.
    pub(in crate::outbox) fn mark_lost(
        &mut self,
        place: ManagerId,
        stored_by: MonotonicTime,
    ) -> bool {
        let mark = self.next_loss(stored_by);
        self.at(place).lose(mark)
    }

    /// Records that a resync was reported to a manager that is not registered. Returns whether this is stored.
    pub(in crate::outbox) fn set_reported(&mut self, name: PathSegment) -> bool {
        self.reported.len() < MAX_REPORTED && self.reported.insert(name)
    }

    /// Records the loss of events of unknown managers. A resync was already reported to the managers for which `reported`
    /// returns `true`.
    pub(in crate::outbox) fn mark_all_lost(&mut self, reported: impl Fn(&PathSegment) -> bool) {
        let mark = self.next_loss(EARLIER);
        self.set_all_lost(mark);
        self.reported.retain(&reported);
        for manager in &mut self.known {
            if !reported(&manager.name) {
                manager.lose(mark);
            }
        }
    }

    fn set_all_lost(&mut self, mark: ResyncMark) {
        let before = self.later.drain().map(|(_, mark)| mark);
        let before = before.chain(self.all_lost);
        self.all_lost = Some(before.fold(mark, |mark, it| mark.since(Some(it))));
    }

    /// Returns when the changes of all unreported losses are stored at the latest.
    pub(in crate::outbox) fn stored_by(&self) -> Option<MonotonicTime> {
        let known = self.known.iter().filter_map(|it| it.lost);
        let others = self.later.values().copied().chain(self.all_lost);
        known.chain(others).map(|it| it.stored_by).max()
    }

    /// Returns whether events of managers that are not registered were lost.
    pub(in crate::outbox) fn is_all_lost(&self) -> bool {
        self.all_lost.is_some()
    }

    /// Records the loss of events of a manager that is not registered. Returns whether the loss is new. A heartbeat that is in
    /// flight reports an earlier loss.
    pub(in crate::outbox) fn mark_unregistered_lost(
        &mut self,
        name: &PathSegment,
        stored_by: MonotonicTime,
    ) -> bool {
        let was_reported = self.reported.remove(name);
        let is_first = !self.is_all_lost();
        let before = self.unregistered_loss(name);
        let mark = self.next_loss(stored_by).since(before);
        if is_first || self.later.len() >= MAX_REPORTED {
            self.set_all_lost(mark);
        } else {
            self.later.insert(name.clone(), mark);
        }
        is_first || was_reported
    }

    /// Returns the last loss of a manager that is not registered.
    fn unregistered_loss(&self, name: &PathSegment) -> Option<ResyncMark> {
        self.later.get(name).copied().or(self.all_lost)
    }

    /// Records that the manager `name` has accepted a request for a resync because of `mark`. Returns whether no later loss
    /// must be reported.
    pub(in crate::outbox) fn resync_reported(
        &mut self,
        name: &PathSegment,
        mark: ResyncMark,
    ) -> bool {
        let Some(place) = self.place(name) else {
            let is_last = self.unregistered_loss(name) == Some(mark);
            return is_last && self.set_reported(name.clone());
        };
        let lost = &mut self.at(place).lost;
        *lost == Some(mark) && lost.take().is_some()
    }

    /// Returns the losses in the order in which they must be spooled.
    pub(in crate::outbox) fn losses(&self) -> impl Iterator<Item = (Kind, &str)> {
        let all_lost = self.all_lost.map(|_| (Kind::Resync, ""));
        let each = self.known.iter().filter_map(|manager| {
            let reported = self.all_lost.map(|_| Kind::ResyncReported);
            let kind = manager.lost.map_or(reported, |_| Some(Kind::Resync))?;
            Some((kind, manager.name.as_str()))
        });
        let others = self.reported.iter();
        let others = others.map(|it| (Kind::ResyncReported, it.as_str()));
        all_lost.into_iter().chain(each).chain(others)
    }

    /// Sets the managers that have a Watcher. Returns those that were added since the previous call; none at the first call.
    pub(in crate::outbox) fn set_watching(&mut self, names: &[PathSegment]) -> Vec<PathSegment> {
        let before = self.watching.replace(names.iter().cloned().collect());
        let added = |before: HashSet<PathSegment>| {
            let added = names.iter().filter(|it| !before.contains(*it));
            added.cloned().collect()
        };
        before.map(added).unwrap_or_default()
    }

    /// Returns whether a manager is known to have a Watcher.
    pub(in crate::outbox) fn has_watcher(&self, name: &PathSegment) -> bool {
        let watching = self.watching.as_ref();
        watching.is_some_and(|names| names.contains(name))
    }

    /// Whether a resync of a manager is not reported yet. A manager without a Watcher cannot acknowledge one.
    pub(in crate::outbox) fn any_lost(&self) -> bool {
        let (configured, others) = self.known.split_at(self.configured);
        let is_watching = |it: &Manager| {
            let watching = self.watching.as_ref();
            watching.is_none_or(|names| names.contains(&it.name))
        };
        let mut expected = configured
            .iter()
            .chain(others.iter().filter(|it| is_watching(it)));
        expected.any(|it| it.lost.is_some())
            || self.is_all_lost() && self.known.is_empty() && self.reported.is_empty()
    }

    /// Returns the loss that a heartbeat to `name` must report.
    pub(in crate::outbox) fn loss(&self, name: &PathSegment) -> Option<ResyncMark> {
        let Some(place) = self.place(name) else {
            // A manager that gets no events needs no resync.
            let is_lost = self.admits_others() && !self.reported.contains(name);
            return self.unregistered_loss(name).filter(|_| is_lost);
        };
        self.get(place).lost
    }

    /// Returns the last assigned sequence number of the manager at `place`, and how many follow the last one up to which all are
    /// delivered.
    pub(super) fn numbers(&self, place: ManagerId) -> (u64, u64) {
        let Manager { sequence, open, .. } = self.get(place);
        let open = open.first().map_or(0, |first| sequence + 1 - first);
        (*sequence, open)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ManagerId> {
        (0..).take(self.known.len())
    }

    /// Returns the managers that get heartbeats: managers that are configured, have accepted an event, or have lost an event.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = Receiver> {
        let receivers = self.ids().zip(&self.known).map(|(place, manager)| {
            let receiver = Receiver {
                name: manager.name.clone(),
                reached: manager.reached,
                known: self.is_known(place),
            };
            (receiver.known || manager.lost.is_some()).then_some(receiver)
        });
        receivers.flatten()
    }

    /// Returns whether `name` is configured or has accepted an event, so that it is not invented by a client.
    pub(crate) fn knows(&self, name: &PathSegment) -> bool {
        self.place(name).is_some_and(|place| self.is_known(place))
    }

    /// Returns the same as [`Self::knows`], for the manager at `place`.
    pub(in crate::outbox) fn is_known(&self, place: ManagerId) -> bool {
        usize::from(place) < self.configured || self.get(place).reached
    }

    /// Returns whether no client can have invented the manager at `place`: it is known, or has a Watcher.
    pub(in crate::outbox) fn is_confirmed(&self, place: ManagerId) -> bool {
        self.is_known(place) || self.has_watcher(self.name(place))
    }

    /// Returns the objects in the queue of all managers that a client may have invented.
    pub(in crate::outbox) fn unconfirmed_usage(&self) -> Usage {
        let unconfirmed = self.ids().filter(|place| !self.is_confirmed(*place));
        unconfirmed.fold(Usage::default(), |sum, place| {
            sum.plus(self.get(place).usage)
        })
    }

    pub(in crate::outbox) fn name(&self, place: ManagerId) -> &PathSegment {
        &self.get(place).name
    }

    pub(crate) fn place(&self, name: &PathSegment) -> Option<ManagerId> {
        let place = self.known.iter().position(|known| known.name == *name)?;
        ManagerId::try_from(place).ok()
    }

    /// Returns the objects in the queue of each manager.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.known.iter().map(|it| &it.pending)
    }

    pub(super) fn get(&self, place: ManagerId) -> &Manager {
        &self.known[usize::from(place)]
    }

    pub(super) fn at(&mut self, place: ManagerId) -> &mut Manager {
        &mut self.known[usize::from(place)]
    }

    fn next_loss(&mut self, stored_by: MonotonicTime) -> ResyncMark {
        self.losses += 1;
        ResyncMark {
            number: self.losses,
            stored_by,
        }
    }
}

#[cfg(test)]
mod tests;
