//! The managers that events are sent to, with numbers, counts and losses of each: the one list of them in the watcher.
//!
//! Where managers are configured they are registered before anything else, for the life of the process, and no other is.
//! Otherwise a review registers its manager, up to [`CAPACITY`] of them; one more evicts another. Any client in the
//! cluster can invent names, KCP takes events for its own managers only: so managers that have taken an event are evicted
//! last. Numbers run without gaps for each manager by itself, because its listener sees no other's and would miss them.
//!
//! Invariants: the number of names is bounded, and so is the number of new names a minute; a configured manager is never
//! evicted. Deliberately absent: the events of an evicted manager, which the queue drops.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use api::event::PathSegment;

use super::super::ResyncMark;
use super::super::moment::Moment;

/// Most managers that are registered where none are configured. A runtime has a handful.
pub(in super::super) const CAPACITY: usize = 32;

/// How long a manager that is not configured stays registered at least. It bounds what invented names cost: each new one
/// may cost some posts to KCP.
const TENURE: Duration = Duration::from_mins(1);

/// A manager's place in [`Managers`].
pub(in super::super) type ManagerId = u16;

#[derive(Debug, Default)]
pub(in super::super) struct Managers {
    /// So many at the beginning of `known` are configured; 0: any manager may register.
    configured: usize,
    known: Vec<Manager>,
    places: HashMap<PathSegment, ManagerId>,
    /// Whoever is not known yet needs a resync, too.
    everyone: bool,
    /// Numbers the losses.
    losses: u64,
    /// How often a manager was evicted.
    evictions: u64,
}

#[derive(Debug)]
struct Manager {
    name: PathSegment,
    /// The last number that was given.
    sequence: u64,
    /// Numbers that were given and are not delivered.
    open: BTreeSet<u64>,
    depth: usize,
    /// Whether it has taken an event.
    reached: bool,
    lost: Option<ResyncMark>,
    registered: Moment,
    /// When an event for it was last put.
    used: Moment,
}

/// A manager that heartbeats are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) name: PathSegment,
    /// Whether it has taken an event in this life, so that KCP knows it.
    pub(crate) reached: bool,
    /// Whether it is configured or was reached; the name of any other may be a client's invention.
    pub(crate) known: bool,
}

impl Manager {
    fn new(name: PathSegment, lost: Option<ResyncMark>, now: Moment) -> Self {
        Self {
            name,
            sequence: 0,
            open: BTreeSet::new(),
            depth: 0,
            reached: false,
            lost,
            registered: now,
            used: now,
        }
    }
}

/// What is persisted of the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Loss<'a> {
    Everyone,
    Of(&'a str),
    Told(&'a str),
}

impl Managers {
    /// A registry of `configured` and no others; of none: of any.
    pub(in super::super) fn new(configured: &[PathSegment]) -> Self {
        let mut managers = Self::default();
        for name in configured {
            if managers.place(name).is_none() {
                managers.add(name, Moment::default());
            }
        }
        managers.configured = managers.known.len();
        managers
    }

    /// The place of `name`, which is registered if there is room; `None`: there is none, or others are configured.
    pub(in super::super) fn register(
        &mut self,
        name: &PathSegment,
        now: Moment,
    ) -> Option<ManagerId> {
        if let Some(place) = self.place(name) {
            self.used(place, now);
            return Some(place);
        }
        let free = self.admits_others() && self.known.len() < CAPACITY;
        if free { self.add(name, now) } else { None }
    }

    /// Whether managers that are not configured may register.
    pub(in super::super) fn admits_others(&self) -> bool {
        self.configured == 0
    }

    fn add(&mut self, name: &PathSegment, now: Moment) -> Option<ManagerId> {
        let place = ManagerId::try_from(self.known.len()).ok()?;
        let lost = self.everyone.then(|| self.next_loss());
        self.places.insert(name.clone(), place);
        self.known.push(Manager::new(name.clone(), lost, now));
        Some(place)
    }

    /// The manager that is to make room for another: of those that have taken no event, or of all if each has, the one
    /// that was used least recently. `None`: they are all configured, or registered too recently.
    pub(in super::super) fn evictable(&self, now: Moment) -> Option<ManagerId> {
        let known = self.known.get(self.configured..)?;
        let all_reached = known.iter().all(|manager| manager.reached);
        let candidates = known.iter().filter(|manager| {
            manager.reached == all_reached && manager.registered.until(now) >= TENURE
        });
        let victim = candidates.min_by_key(|manager| manager.used)?;
        self.place(&victim.name)
    }

    /// Gives the place of an evicted manager to `name`. Whether that manager had a loss that it does not know of.
    pub(super) fn replace(&mut self, place: ManagerId, name: &PathSegment, now: Moment) -> bool {
        let lost = self.everyone.then(|| self.next_loss());
        let Some(manager) = self.known.get_mut(usize::from(place)) else {
            return false;
        };
        let new = Manager::new(name.clone(), lost, now);
        let evicted = std::mem::replace(manager, new);
        self.places.remove(&evicted.name);
        self.places.insert(name.clone(), place);
        self.evictions += 1;
        evicted.lost.is_some()
    }

    /// An event for the manager at `place` was put.
    pub(super) fn used(&mut self, place: ManagerId, now: Moment) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.used = now;
        }
    }

    /// How often a manager was evicted: what is kept for managers elsewhere is to be looked through when this changes.
    pub(in super::super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// `name` has taken an event that was never here.
    pub(in super::super) fn took(&mut self, name: &PathSegment, now: Moment) {
        if let Some(manager) = self.register(name, now) {
            self.reached_at(manager);
        }
    }

    fn reached_at(&mut self, place: ManagerId) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.reached = true;
        }
    }

    /// Gives the next number to an event for the manager at `place`.
    pub(super) fn number(&mut self, place: ManagerId) -> u64 {
        let Some(manager) = self.known.get_mut(usize::from(place)) else {
            return 0;
        };
        manager.sequence += 1;
        manager.open.insert(manager.sequence);
        manager.sequence
    }

    /// The event of this number is delivered.
    pub(super) fn settle(&mut self, place: ManagerId, number: u64) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.open.remove(&number);
            manager.reached = true;
        }
    }

    pub(super) fn entered(&mut self, place: ManagerId) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.depth += 1;
        }
    }

    /// An object of the manager at `place` is gone from the queue, with a number that was not settled, or 0.
    pub(super) fn left(&mut self, place: ManagerId, number: u64) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.depth -= 1;
            manager.open.remove(&number);
        }
    }

    /// An event for the manager at `place` was lost. Whether it had not lost one already.
    pub(in super::super) fn lose(&mut self, place: ManagerId) -> bool {
        let mark = self.next_loss();
        let manager = self.known.get_mut(usize::from(place));
        manager.is_some_and(|manager| manager.lost.replace(mark).is_none())
    }

    /// Events were lost, and nobody knows whose.
    pub(in super::super) fn lose_any(&mut self) {
        self.everyone = true;
        let mark = self.next_loss();
        for manager in &mut self.known {
            manager.lost = Some(mark);
        }
    }

    /// Events of managers that are not here were lost. Whether that is new.
    pub(in super::super) fn lose_strangers(&mut self) -> bool {
        !std::mem::replace(&mut self.everyone, true)
    }

    /// The manager `name` knows of `mark`. Whether that was all there was to know.
    pub(in super::super) fn told(
        &mut self,
        name: &PathSegment,
        mark: ResyncMark,
        now: Moment,
    ) -> bool {
        let stranger = self.place(name).is_none();
        let Some(place) = self.register(name, now) else {
            return false;
        };
        let manager = self.known.get_mut(usize::from(place));
        manager.is_some_and(|manager| {
            // Who is met only now has just got a mark of its own for the loss that it was told of.
            let all = manager.lost == Some(mark) || stranger && mark == ResyncMark::EVERYONE;
            all && manager.lost.take().is_some()
        })
    }

    /// Takes over from the spool that events of any manager had been lost, of which those that are `told` know.
    pub(in super::super) fn recovered_everyone(&mut self, told: impl Fn(&PathSegment) -> bool) {
        self.everyone = true;
        let mark = self.next_loss();
        for manager in &mut self.known {
            if !told(&manager.name) {
                manager.lost = Some(mark);
            }
        }
    }

    /// The losses, in the order in which they are to be spooled.
    pub(in super::super) fn losses(&self) -> impl Iterator<Item = Loss<'_>> {
        let everyone = self.everyone.then_some(Loss::Everyone);
        let each = self.known.iter().filter_map(|manager| {
            let name = manager.name.as_str();
            match manager.lost {
                Some(_) => Some(Loss::Of(name)),
                None => self.everyone.then_some(Loss::Told(name)),
            }
        });
        everyone.into_iter().chain(each)
    }

    /// Whether somebody has lost something and does not know.
    pub(in super::super) fn any_lost(&self) -> bool {
        self.known.iter().any(|manager| manager.lost.is_some())
            || self.everyone && self.known.is_empty()
    }

    /// What `name` has lost.
    pub(in super::super) fn lost(&self, name: &PathSegment) -> Option<ResyncMark> {
        match self.get(name) {
            Some(manager) => manager.lost,
            None => self.everyone.then_some(ResyncMark::EVERYONE),
        }
    }

    /// The last number of `name`, and how many of its events may still come.
    pub(in super::super) fn standing(&self, name: &PathSegment) -> (u64, u64) {
        let Some(manager) = self.get(name) else {
            return (0, 0);
        };
        let held_back = manager
            .open
            .first()
            .map_or(0, |first| manager.sequence + 1 - first);
        (manager.sequence, held_back.max(manager.depth as u64))
    }

    /// The managers that heartbeats are sent to: those that are configured, that have taken an event, or that have lost one.
    pub(in super::super) fn receivers(&self) -> impl Iterator<Item = Receiver> {
        let receivers = self.known.iter().enumerate().filter(|(place, manager)| {
            *place < self.configured || manager.reached || manager.lost.is_some()
        });
        receivers.map(|(place, manager)| Receiver {
            name: manager.name.clone(),
            reached: manager.reached,
            known: place < self.configured || manager.reached,
        })
    }

    /// Whether `name` is configured, or has taken an event.
    pub(in super::super) fn is_known(&self, name: &PathSegment) -> bool {
        let place = self.place(name).map(usize::from);
        place.is_some_and(|place| {
            let manager = self.known.get(place);
            place < self.configured || manager.is_some_and(|manager| manager.reached)
        })
    }

    /// The name of the manager at `place`.
    pub(in super::super) fn name(&self, place: ManagerId) -> Option<&PathSegment> {
        let manager = self.known.get(usize::from(place))?;
        Some(&manager.name)
    }

    pub(in super::super) fn place(&self, name: &PathSegment) -> Option<ManagerId> {
        self.places.get(name).copied()
    }

    fn get(&self, name: &PathSegment) -> Option<&Manager> {
        self.known.get(usize::from(self.place(name)?))
    }

    fn next_loss(&mut self) -> ResyncMark {
        self.losses += 1;
        ResyncMark(self.losses)
    }
}
