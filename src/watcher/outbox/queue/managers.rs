//! The managers that events are sent to, with numbers, counts and losses of each: the one list of them in the watcher.
//!
//! Where managers are configured they are registered before anything else, until the process ends, and no other is.
//! Otherwise a review registers its manager, up to [`CAPACITY`] of them; one more evicts another. Any client in the
//! cluster can invent names, KCP takes events for its own managers only: so managers that have taken an event are evicted
//! last. Numbers run without gaps for each manager by itself, because its listener sees no other's and would miss them.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use watcher_types::PathSegment;

use super::super::record::Kind;
use super::super::{ManagerReport, ResyncMark};
use super::MonotonicTime;

/// Most managers that are registered where none are configured. A runtime has a handful.
pub(crate) const CAPACITY: usize = 32;

/// How long a manager that is not configured stays registered at least. It bounds what invented names cost: each new one
/// may cost some posts to KCP.
const TENURE: Duration = Duration::from_mins(1);

/// Most managers that are not registered of which is kept that a resync was reported to them. Receivers of heartbeats are fewer.
const MAX_REPORTED: usize = 256;

/// A manager's place in [`Managers`].
pub(crate) type ManagerId = u16;

#[derive(Debug, Default)]
pub(crate) struct Managers {
    /// So many at the beginning of `known` are configured; 0: any manager may register.
    configured: usize,
    known: Vec<Manager>,
    /// Managers that are not registered need a resync, too.
    all_lost: bool,
    /// Those of them to which it was reported since their last loss.
    reported: HashSet<PathSegment>,
    /// The managers that have a Watcher, if that is known.
    watching: Option<HashSet<PathSegment>>,
    /// Numbers the losses.
    losses: u64,
    evictions: u64,
}

#[derive(Debug)]
struct Manager {
    name: PathSegment,
    /// The last number that was given.
    sequence: u64,
    /// Numbers that were given and are not delivered.
    open: BTreeSet<u64>,
    /// Objects in the queue, and those of them that only wait for their follow-up event.
    depth: u64,
    follow_ups: u64,
    /// Whether it has taken an event.
    reached: bool,
    /// The count of all takes at the last one of an event for it.
    taken: u64,
    lost: Option<ResyncMark>,
    registered: MonotonicTime,
    /// When an event for it was last put.
    used: MonotonicTime,
}

/// A manager that heartbeats are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) name: PathSegment,
    /// Whether it has accepted an event of this process, so that KCP knows it.
    pub(crate) reached: bool,
    /// Whether it is configured or was reached; the name of any other may be a client's invention.
    pub(crate) known: bool,
}

impl Manager {
    fn new(name: PathSegment, lost: Option<ResyncMark>, now: MonotonicTime) -> Self {
        Self {
            name,
            sequence: 0,
            open: BTreeSet::new(),
            depth: 0,
            follow_ups: 0,
            reached: false,
            taken: 0,
            lost,
            registered: now,
            used: now,
        }
    }
}

impl Managers {
    /// A registry of `configured` and no others; of none: of any.
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

    /// The place of `name`, which is registered if there is capacity; `None`: there is none, or others are configured.
    pub(in crate::outbox) fn register(
        &mut self,
        name: &PathSegment,
        now: MonotonicTime,
    ) -> Option<ManagerId> {
        if let Some(place) = self.place(name) {
            self.used(place, now);
            return Some(place);
        }
        let free = self.admits_others() && self.known.len() < CAPACITY;
        if free { self.add(name, now) } else { None }
    }

    /// Whether managers that are not configured may register.
    pub(in crate::outbox) fn admits_others(&self) -> bool {
        self.configured == 0
    }

    fn add(&mut self, name: &PathSegment, now: MonotonicTime) -> Option<ManagerId> {
        let place = ManagerId::try_from(self.known.len()).ok()?;
        let lost = self.loss_of_new(name);
        self.known.push(Manager::new(name.clone(), lost, now));
        Some(place)
    }

    /// The loss of a manager that is registered only now.
    fn loss_of_new(&mut self, name: &PathSegment) -> Option<ResyncMark> {
        let is_reported = self.reported.remove(name);
        (self.all_lost && !is_reported).then(|| self.next_loss())
    }

    /// The manager that is to be evicted for another: of those that have taken no event, or of all if each has, the one
    /// that was used least recently. `None`: they are all configured, or registered too recently.
    pub(in crate::outbox) fn evictable(&self, now: MonotonicTime) -> Option<ManagerId> {
        let known = self.known.get(self.configured..)?;
        let all_reached = known.iter().all(|manager| manager.reached);
        let candidates = known.iter().filter(|manager| {
            manager.reached == all_reached && manager.registered.until(now) >= TENURE
        });
        let victim = candidates.min_by_key(|manager| manager.used)?;
        self.place(&victim.name)
    }

    /// Gives the place of an evicted manager to `name`. Whether that manager had a loss that it does not know of.
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
        if self.all_lost && !is_lost {
            self.set_reported(evicted.name);
        }
        is_lost
    }

    /// An event for the manager at `place` was put.
    pub(super) fn used(&mut self, place: ManagerId, now: MonotonicTime) {
        self.at(place).used = now;
    }

    /// How often a manager was evicted: what is kept for managers elsewhere is to be looked through when this changes.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// `name` has taken an event that was never here.
    pub(in crate::outbox) fn took(&mut self, name: &PathSegment, now: MonotonicTime) {
        if let Some(manager) = self.register(name, now) {
            self.at(manager).reached = true;
        }
    }

    /// The count of takes at the last one of an event for the manager at `place`.
    pub(super) fn last_taken(&self, place: ManagerId) -> u64 {
        self.known[usize::from(place)].taken
    }

    pub(super) fn set_taken(&mut self, place: ManagerId, count: u64) {
        self.at(place).taken = count;
    }

    /// Gives the next number to an event for the manager at `place`.
    pub(super) fn number(&mut self, place: ManagerId) -> u64 {
        let manager = self.at(place);
        manager.sequence += 1;
        manager.open.insert(manager.sequence);
        manager.sequence
    }

    /// The event of this number is delivered.
    pub(super) fn settle(&mut self, place: ManagerId, number: u64) {
        let manager = self.at(place);
        manager.open.remove(&number);
        manager.reached = true;
    }

    pub(super) fn entered(&mut self, place: ManagerId) {
        self.at(place).depth += 1;
    }

    /// An object of the manager at `place` became a follow-up, or ceased to be one.
    pub(super) fn set_follow_up(&mut self, place: ManagerId, before: bool, now: bool) {
        let follow_ups = &mut self.at(place).follow_ups;
        *follow_ups = *follow_ups + u64::from(now) - u64::from(before);
    }

    /// An object of the manager at `place` is gone from the queue, with a number that was not settled, or 0.
    pub(super) fn left(&mut self, place: ManagerId, follow_up: bool, number: u64) {
        let manager = self.at(place);
        manager.depth -= 1;
        manager.follow_ups -= u64::from(follow_up);
        manager.open.remove(&number);
    }

    /// An event for the manager at `place` was lost. Whether it had not lost one already.
    pub(in crate::outbox) fn mark_lost(&mut self, place: ManagerId) -> bool {
        let mark = self.next_loss();
        self.at(place).lost.replace(mark).is_none()
    }

    /// A resync was reported to a manager that is not registered. Whether that is kept.
    pub(in crate::outbox) fn set_reported(&mut self, name: PathSegment) -> bool {
        self.reported.len() < MAX_REPORTED && self.reported.insert(name)
    }

    /// Events of unknown managers were lost; to those that `reported` names a resync was reported since.
    pub(in crate::outbox) fn mark_all_lost(&mut self, reported: impl Fn(&PathSegment) -> bool) {
        self.all_lost = true;
        self.reported.retain(&reported);
        let mark = self.next_loss();
        for manager in &mut self.known {
            if !reported(&manager.name) {
                manager.lost = Some(mark);
            }
        }
    }

    /// Whether events of managers that are not registered were lost.
    pub(in crate::outbox) fn is_all_lost(&self) -> bool {
        self.all_lost
    }

    /// Events of this manager, which is not registered, were lost. Whether that is new.
    pub(in crate::outbox) fn mark_unregistered_lost(&mut self, name: &PathSegment) -> bool {
        let was_reported = self.reported.remove(name);
        !std::mem::replace(&mut self.all_lost, true) || was_reported
    }

    /// The manager `name` has accepted a request for a resync because of `mark`. Whether no later loss is left to report.
    pub(in crate::outbox) fn resync_reported(
        &mut self,
        name: &PathSegment,
        mark: ResyncMark,
    ) -> bool {
        let Some(place) = self.place(name) else {
            return mark == ResyncMark::ALL_MANAGERS && self.set_reported(name.clone());
        };
        let lost = &mut self.at(place).lost;
        *lost == Some(mark) && lost.take().is_some()
    }

    /// The losses, in the order in which they are to be spooled.
    pub(in crate::outbox) fn losses(&self) -> impl Iterator<Item = (Kind, &str)> {
        let all_lost = self.all_lost.then_some((Kind::Resync, ""));
        let each = self.known.iter().filter_map(|manager| {
            let reported = self.all_lost.then_some(Kind::ResyncReported);
            let kind = manager.lost.map_or(reported, |_| Some(Kind::Resync))?;
            Some((kind, manager.name.as_str()))
        });
        let others = self.reported.iter();
        let others = others.map(|it| (Kind::ResyncReported, it.as_str()));
        all_lost.into_iter().chain(each).chain(others)
    }

    /// Sets the managers that have a Watcher.
    pub(in crate::outbox) fn set_watching(&mut self, names: &[PathSegment]) {
        self.watching = Some(names.iter().cloned().collect());
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
            || self.all_lost && self.known.is_empty() && self.reported.is_empty()
    }

    /// What a heartbeat to `name` says, but for the age of its events.
    pub(in crate::outbox) fn report(&self, name: &PathSegment) -> ManagerReport {
        let Some(manager) = self.get(name) else {
            // One that gets no events needs no resync.
            let is_lost = self.all_lost && self.admits_others() && !self.reported.contains(name);
            return ManagerReport {
                resync: is_lost.then_some(ResyncMark::ALL_MANAGERS),
                ..ManagerReport::default()
            };
        };
        let first_open = manager.open.first();
        // Listeners take it that nothing of `sequence - spool_depth` and below is still to come.
        let open = first_open.map_or(0, |first| manager.sequence + 1 - first);
        ManagerReport {
            sequence: manager.sequence,
            spool_depth: open.max(manager.depth - manager.follow_ups),
            follow_up_depth: manager.follow_ups,
            oldest_age: None,
            resync: manager.lost,
        }
    }

    /// Events of all managers that are not delivered, without follow-ups.
    pub(in crate::outbox) fn undelivered(&self) -> u64 {
        let each = self.known.iter().map(|it| it.depth - it.follow_ups);
        each.sum()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ManagerId> {
        (0..).take(self.known.len())
    }

    /// The managers that heartbeats are sent to: those that are configured, that have taken an event, or that have lost one.
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

    /// Whether `name` is configured, or has taken an event: it is not a client's invention.
    pub(crate) fn knows(&self, name: &PathSegment) -> bool {
        self.place(name).is_some_and(|place| self.is_known(place))
    }

    /// As [`Self::knows`], for the manager at `place`.
    pub(in crate::outbox) fn is_known(&self, place: ManagerId) -> bool {
        let place = usize::from(place);
        place < self.configured || self.known[place].reached
    }

    pub(in crate::outbox) fn name(&self, place: ManagerId) -> &PathSegment {
        &self.known[usize::from(place)].name
    }

    pub(crate) fn place(&self, name: &PathSegment) -> Option<ManagerId> {
        let place = self.known.iter().position(|known| known.name == *name)?;
        ManagerId::try_from(place).ok()
    }

    fn get(&self, name: &PathSegment) -> Option<&Manager> {
        self.known.get(usize::from(self.place(name)?))
    }

    fn at(&mut self, place: ManagerId) -> &mut Manager {
        &mut self.known[usize::from(place)]
    }

    fn next_loss(&mut self) -> ResyncMark {
        self.losses += 1;
        ResyncMark(self.losses)
    }
}
