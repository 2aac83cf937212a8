//! However sources, Runtimes, manager and crashes come together: every affected runtime is told, and no other.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{AT_ONCE, NOT_YET, Source, source, sources};
use crate::sync::signal::{Advance, Eligibility, Keys, Record, Seen, Step};

/// The world of the interim mode: Runtimes with two keys, a manager that obeys one of them, and a controller that may
/// crash and forget everything since its record was last stored.
struct Model {
    keys: Keys,
    obeys_label: bool,
    takes_both: bool,
    known: [Source; 3],
    /// The sources as they are.
    live: [Source; 3],
    /// Whether the grace period of what is missing has not passed.
    waits: bool,
    record: Record,
    stored: BTreeMap<String, String>,
    runtimes: BTreeMap<String, Seen>,
    /// Set since the last change.
    told: BTreeSet<String>,
    /// Taken by the manager since the last change.
    taken: BTreeSet<String>,
    /// Where the manager came last while a source could not be used.
    spoiled: BTreeSet<String>,
    changes: usize,
    sets: usize,
}

#[derive(Clone, Debug)]
enum Event {
    Sources([Source; 3], bool),
    Look(prop::sample::Index),
    Take(prop::sample::Index),
    Store,
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => ([source(), source(), source()], any::<bool>()).prop_map(|(state, waits)| Event::Sources(state, waits)),
        6 => any::<prop::sample::Index>().prop_map(Event::Look),
        4 => any::<prop::sample::Index>().prop_map(Event::Take),
        1 => Just(Event::Store),
        1 => Just(Event::Crash),
    ]
}

impl Model {
    fn new(keys: Keys, obeys_label: bool, takes_both: bool, count: usize) -> Self {
        let mut model = Self {
            keys,
            obeys_label: keys == Keys::Label || (keys == Keys::Both && obeys_label),
            takes_both,
            known: [Source::Content(1); 3],
            live: [Source::Content(1); 3],
            waits: false,
            record: Record::default(),
            stored: BTreeMap::new(),
            runtimes: (0..count)
                .map(|index| (format!("r{index}"), Seen::default()))
                .collect(),
            told: BTreeSet::new(),
            taken: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            changes: 0,
            sets: 0,
        };
        assert_eq!(
            model.record.advance(&sources(model.known), AT_ONCE, []),
            Advance::First
        );
        model.stored = model.record.write();
        model
    }

    fn names(&self) -> Vec<String> {
        self.runtimes.keys().cloned().collect()
    }

    /// Whether the manager would do what is not wanted: copy a source that is invalid, or do without a missing one.
    fn is_unusable(&self) -> bool {
        let mut pairs = self.known.iter().zip(self.live);
        let missing = pairs.any(|(known, now)| now == Source::Absent && *known != now);
        missing || self.live.contains(&Source::Invalid)
    }

    fn sources(&mut self, state: [Source; 3], waits: bool) {
        (self.live, self.waits) = (state, waits);
        let names = self.names();
        let grace = if waits { NOT_YET } else { AT_ONCE };
        let advance = self
            .record
            .advance(&sources(state), grace, names.iter().map(String::as_str));
        // An independent judge: what the last readable state of each source was.
        let mut changed = false;
        for (known, now) in self.known.iter_mut().zip(state) {
            let waits = waits && now == Source::Absent;
            if !waits && !matches!(now, Source::Invalid | Source::Unmanaged) && *known != now {
                *known = now;
                changed = true;
            }
        }
        assert_eq!(matches!(advance, Advance::Changed(_)), changed);
        if changed {
            self.changes += 1;
            self.told.clear();
            self.taken.clear();
        }
        if advance != Advance::Unchanged {
            self.stored = self.record.write();
        }
    }

    /// The controller looks at one Runtime and does what has to be done.
    fn look(&mut self, name: &str) -> Step {
        let seen = self.runtimes[name];
        let step = self
            .record
            .decide(name, Eligibility::Selected, self.keys, seen);
        let since = self.record.epoch();
        let patch = crate::sync::signal::patch(step, self.keys, seen);
        if let Some(patch) = &patch {
            let seen = self.runtimes.get_mut(name).unwrap();
            let mut object = serde_json::json!({ "metadata": { "labels": {}, "annotations": {} } });
            object["metadata"]["labels"][KEY] = if seen.label {
                "true".into()
            } else {
                serde_json::Value::Null
            };
            object["metadata"]["annotations"][KEY] = if seen.annotation {
                "true".into()
            } else {
                serde_json::Value::Null
            };
            json_patch::merge(&mut object, patch);
            let before = *seen;
            *seen = Seen::read(
                object["metadata"]["labels"][KEY].as_str(),
                object["metadata"]["annotations"][KEY].as_str(),
            );
            assert_ne!(*seen, before, "a write without effect");
        }
        if step == Step::Set {
            assert!(!self.is_unusable(), "the manager would copy it");
            self.sets += 1;
            self.told.insert(name.to_owned());
        }
        self.record.done(name, step, since);
        step
    }

    /// The manager takes a signal, if the key that it obeys is there.
    fn take(&mut self, name: &str) {
        let unusable = self.is_unusable();
        let seen = self.runtimes.get_mut(name).unwrap();
        let obeyed = if self.obeys_label {
            seen.label
        } else {
            seen.annotation
        };
        if !obeyed {
            return;
        }
        if unusable {
            self.spoiled.insert(name.to_owned());
        } else {
            self.spoiled.remove(name);
        }
        if self.takes_both {
            *seen = Seen::default();
        } else if self.obeys_label {
            seen.label = false;
        } else {
            seen.annotation = false;
        }
        self.taken.insert(name.to_owned());
    }

    fn apply(&mut self, event: &Event) {
        let names = self.names();
        match event {
            Event::Sources(state, waits) => self.sources(*state, *waits),
            Event::Look(index) => {
                let name: &String = index.get(&names);
                self.look(name);
            }
            Event::Take(index) => {
                let name: &String = index.get(&names);
                self.take(name);
            }
            Event::Store => self.stored = self.record.write(),
            Event::Crash => {
                self.record = Record::read(&self.stored).unwrap();
                // Whoever leads next looks at the sources before anything else.
                self.sources(self.live, self.waits);
            }
        }
    }
}

const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every affected runtime is told after the last change and its manager takes that; nobody is told without a change,
    /// nor while a source cannot be used, and where the manager came meanwhile it comes again; and in the end nothing is
    /// left behind, neither keys nor entries.
    #[test]
    fn signals(
        keys in prop::sample::select(vec![Keys::Label, Keys::Annotation, Keys::Both]),
        obeys_label: bool,
        takes_both: bool,
        count in 1usize..4,
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut model = Model::new(keys, obeys_label, takes_both, count);
        for event in &events {
            model.apply(event);
        }
        // What cannot be used is mended, to what it was.
        model.sources(model.known, false);
        for _ in 0..12 {
            for name in model.names() {
                model.look(&name);
                model.take(&name);
            }
        }
        if model.changes == 0 {
            prop_assert_eq!(model.sets, 0);
        } else {
            prop_assert_eq!(&model.told, &model.runtimes.keys().cloned().collect());
            prop_assert_eq!(&model.taken, &model.told);
        }
        prop_assert!(model.spoiled.is_empty());
        prop_assert_eq!(model.record.pending().count(), 0);
        prop_assert!(model.runtimes.values().all(|it| *it == Seen::default()));
        let sets = model.sets;
        for name in model.names() {
            prop_assert_eq!(model.look(&name), Step::Nothing);
        }
        prop_assert_eq!(model.sets, sets);
    }
}
