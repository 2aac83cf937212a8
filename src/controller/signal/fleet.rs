//! Every Runtime of the control plane, and who is written to directly.
//!
//! Invariant: nothing is known before both were listed completely: a runtime that is handled directly must never be
//! signalled for want of knowing it. A state that is older than the known one is dropped.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use policy::sync::signal::Eligibility;

use super::runtime::{Marks, Sight};

type Sights = HashMap<Arc<str>, Sight>;

/// What an event makes worth looking at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Dirty {
    Nothing,
    One(Arc<str>),
    All,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    runtimes: Sights,
    listing: Sights,
    runtimes_known: bool,
    direct: HashSet<String>,
    direct_listing: HashSet<String>,
    direct_known: bool,
}

impl Fleet {
    /// Whether both lists were complete once.
    pub(super) fn is_known(&self) -> bool {
        self.runtimes_known && self.direct_known
    }

    /// What the Runtime carries; `None` if there is no such Runtime.
    pub(super) fn marks(&self, name: &str) -> Option<Marks> {
        self.runtimes.get(name).map(|it| it.marks)
    }

    /// How it is to be treated.
    pub(super) fn standing(&self, name: &str) -> Eligibility {
        match self.runtimes.get(name).map(|it| it.standing) {
            None => Eligibility::NotSelected,
            Some(Eligibility::Selected) if self.direct.contains(name) => Eligibility::Direct,
            Some(standing) => standing,
        }
    }

    /// The Runtimes that a change affects.
    pub(super) fn affected(&self) -> impl Iterator<Item = &str> {
        let names = self.runtimes.keys().map(|name| &**name);
        names.filter(|name| self.standing(name) == Eligibility::Selected)
    }

    /// The answer to a write of ours.
    pub(super) fn wrote(&mut self, name: &str, marks: Marks) {
        if let Some(sight) = self.runtimes.get_mut(name)
            && !marks.is_older_than(&sight.marks)
        {
            sight.marks = marks;
        }
    }

    /// An event of the Runtimes.
    pub(super) fn see(&mut self, event: Event<(String, Sight)>) -> Dirty {
        match event {
            Event::Init => {
                self.listing = Sights::new();
                Dirty::Nothing
            }
            Event::InitApply((name, sight)) => {
                self.listing.insert(name.into(), sight);
                Dirty::Nothing
            }
            Event::InitDone => {
                let before = mem::replace(&mut self.runtimes, mem::take(&mut self.listing));
                for (name, old) in before {
                    // Written by us while the list was on its way.
                    if let Some(new) = self.runtimes.get_mut(&name)
                        && new.marks.is_older_than(&old.marks)
                    {
                        *new = old;
                    }
                }
                self.runtimes_known = true;
                Dirty::All
            }
            Event::Apply((name, sight)) => self.apply(&name, sight),
            Event::Delete((name, _)) => match self.runtimes.remove_entry(name.as_str()) {
                Some((name, _)) => Dirty::One(name),
                None => Dirty::Nothing,
            },
        }
    }

    fn apply(&mut self, name: &str, sight: Sight) -> Dirty {
        let Some((known, before)) = self.runtimes.get_key_value(name) else {
            let name: Arc<str> = name.into();
            self.runtimes.insert(name.clone(), sight);
            return Dirty::One(name);
        };
        if sight.marks.is_older_than(&before.marks) {
            return Dirty::Nothing;
        }
        let differs = |it: &Sight| (it.standing, it.marks.label, it.marks.annotation);
        let news = differs(before) != differs(&sight);
        let name = known.clone();
        self.runtimes.insert(name.clone(), sight);
        if news {
            Dirty::One(name)
        } else {
            Dirty::Nothing
        }
    }

    /// An event of the `RuntimeBootstrapper`s, which are named after their runtimes.
    pub(super) fn see_direct(&mut self, event: Event<String>) -> Dirty {
        match event {
            Event::Init => {
                self.direct_listing = HashSet::new();
                Dirty::Nothing
            }
            Event::InitApply(name) => {
                self.direct_listing.insert(name);
                Dirty::Nothing
            }
            Event::InitDone => {
                self.direct = mem::take(&mut self.direct_listing);
                self.direct_known = true;
                Dirty::All
            }
            Event::Apply(name) => {
                let dirty = Dirty::One(name.as_str().into());
                self.direct.insert(name);
                dirty
            }
            Event::Delete(name) => {
                self.direct.remove(&name);
                Dirty::One(name.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(version: u64, label: bool) -> Sight {
        Sight {
            marks: Marks {
                version: Some(version),
                label,
                annotation: false,
            },
            standing: Eligibility::Selected,
        }
    }

    fn known() -> Fleet {
        let mut fleet = Fleet::default();
        fleet.see(Event::Init);
        fleet.see(Event::InitApply(("a".to_owned(), sight(5, false))));
        assert!(!fleet.is_known());
        assert_eq!(fleet.see(Event::InitDone), Dirty::All);
        assert!(!fleet.is_known());
        fleet.see_direct(Event::Init);
        fleet.see_direct(Event::InitDone);
        assert!(fleet.is_known());
        fleet
    }

    #[test]
    fn what_is_older_than_our_own_write_says_nothing() {
        let mut fleet = known();
        fleet.wrote("a", sight(8, true).marks);
        let late = fleet.see(Event::Apply(("a".to_owned(), sight(7, false))));
        assert_eq!(late, Dirty::Nothing);
        assert!(fleet.marks("a").unwrap().label);
        fleet.see(Event::Init);
        fleet.see(Event::InitApply(("a".to_owned(), sight(7, false))));
        fleet.see(Event::InitDone);
        assert!(fleet.marks("a").unwrap().label);
        let taken = fleet.see(Event::Apply(("a".to_owned(), sight(9, false))));
        assert_eq!(taken, Dirty::One("a".into()));
    }

    #[test]
    fn a_change_of_nothing_that_matters_is_none() {
        let mut fleet = known();
        let same = fleet.see(Event::Apply(("a".to_owned(), sight(6, false))));
        assert_eq!(same, Dirty::Nothing);
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mut fleet = known();
        fleet.see(Event::Init);
        assert!(fleet.marks("a").is_some());
        fleet.see(Event::InitDone);
        assert!(fleet.marks("a").is_none());
    }

    #[test]
    fn a_direct_runtime_is_not_affected() {
        let mut fleet = known();
        assert_eq!(fleet.standing("a"), Eligibility::Selected);
        assert_eq!(
            fleet.see_direct(Event::Apply("a".to_owned())),
            Dirty::One("a".into())
        );
        assert_eq!(fleet.standing("a"), Eligibility::Direct);
        assert_eq!(fleet.affected().count(), 0);
        fleet.see_direct(Event::Delete("a".to_owned()));
        assert_eq!(fleet.standing("a"), Eligibility::Selected);
        assert_eq!(fleet.affected().collect::<Vec<_>>(), ["a"]);
        assert_eq!(fleet.standing("unknown"), Eligibility::NotSelected);
    }
}
