//! Who is told: numbers, counts and losses of each manager.
//!
//! Numbers run without gaps for each manager by itself, because its listener sees no other's and would miss them.
//! Invariant: the names are bounded, so that whoever can ask the edge for any path cannot fill the memory with them.

use std::collections::{BTreeSet, HashMap};

use api::event::PathSegment;

use super::super::ResyncMark;

/// Most managers that are told. A runtime has a handful.
const MANAGERS: usize = 1_024;

/// A manager's place in [`Managers`].
pub(in super::super) type ManagerId = u16;

#[derive(Debug, Default)]
pub(in super::super) struct Managers {
    known: Vec<Manager>,
    places: HashMap<PathSegment, ManagerId>,
    /// Whoever is not known yet needs a resync, too.
    everyone: bool,
    /// Numbers the losses.
    losses: u64,
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
}

/// What is persisted of the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Loss<'a> {
    Everyone,
    Of(&'a str),
    Told(&'a str),
}

impl Managers {
    /// The place of `name`, which is a new one where it has none; `None`: there are too many.
    pub(in super::super) fn meet(&mut self, name: &PathSegment) -> Option<ManagerId> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        let place = ManagerId::try_from(self.known.len())
            .ok()
            .filter(|_| self.known.len() < MANAGERS)?;
        let lost = self.everyone.then(|| self.next_loss());
        self.places.insert(name.clone(), place);
        self.known.push(Manager {
            name: name.clone(),
            sequence: 0,
            open: BTreeSet::new(),
            depth: 0,
            reached: false,
            lost,
        });
        Some(place)
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

    pub(super) fn left(&mut self, place: ManagerId) {
        if let Some(manager) = self.known.get_mut(usize::from(place)) {
            manager.depth -= 1;
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
    pub(in super::super) fn told(&mut self, name: &PathSegment, mark: ResyncMark) -> bool {
        let stranger = self.place(name).is_none();
        let Some(place) = self.meet(name) else {
            return false;
        };
        let manager = self.known.get_mut(usize::from(place));
        manager.is_some_and(|manager| {
            // Who is met only now has just got a mark of its own for the loss that it was told of.
            let all = manager.lost == Some(mark) || stranger && mark == ResyncMark::EVERYONE;
            all && manager.lost.take().is_some()
        })
    }

    /// Takes over from the spool that events of anybody had been lost.
    pub(in super::super) fn recovered_everyone(&mut self) {
        self.everyone = true;
    }

    /// Takes over from the spool whether events for `name` had been lost.
    pub(in super::super) fn recovered(&mut self, name: &PathSegment, lost: bool) {
        if let Some(place) = self.meet(name) {
            let mark = lost.then(|| self.next_loss());
            if let Some(manager) = self.known.get_mut(usize::from(place)) {
                manager.lost = mark;
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

    /// Those that have taken an event.
    pub(in super::super) fn reached(&self) -> impl Iterator<Item = &PathSegment> {
        let reached = self.known.iter().filter(|manager| manager.reached);
        reached.map(|manager| &manager.name)
    }

    /// Those that have lost something and do not know.
    pub(in super::super) fn bereft(&self) -> impl Iterator<Item = &PathSegment> {
        let bereft = self.known.iter().filter(|manager| manager.lost.is_some());
        bereft.map(|manager| &manager.name)
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
