//! Whatever happens in whatever order, what has to hold holds.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use api::runtimes::{CONTENT_HASH, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use proptest::prelude::*;
use serde_json::Value;

use super::api_server::{Runtime, after, bundle, document, secret};
use crate::convergence::Kind;
use crate::convergence::identity::Claim;
use crate::convergence::known::Known;
use crate::convergence::plan::{Action, plan};
use crate::convergence::signal::{Advance, Keys, Record, Seen, Standing, Step};
use crate::convergence::sources::{Reading, SourceError, Sources, Summary};
use crate::convergence::waves::{Budget, Rollout, Settings, State};

/// A state of one source: absent, invalid, not looked for, or one of three contents.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Absent,
    Invalid,
    Unmanaged,
    Content(u8),
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        1 => Just(Source::Absent),
        1 => Just(Source::Invalid),
        1 => Just(Source::Unmanaged),
        3 => (1u8..4).prop_map(Source::Content),
    ]
}

fn reading<T>(source: Source, content: impl Fn(u8) -> Reading<T>) -> Reading<T> {
    match source {
        Source::Absent => Reading::Absent,
        Source::Invalid => Reading::Invalid(SourceError::Key("x")),
        Source::Unmanaged => Reading::Unmanaged,
        Source::Content(it) => content(it),
    }
}

fn sources([pull_secret, trust_bundle, configuration]: [Source; 3]) -> Sources {
    Sources {
        pull_secret: reading(pull_secret, |it| secret(&it.to_string())),
        trust_bundle: reading(trust_bundle, bundle),
        configuration: reading(configuration, |it| {
            document(&format!(r#","fipsVariables":["V{it}"]"#))
        }),
    }
}

/// What may happen to a runtime between two passes.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Lost(Kind),
    Edited(Kind),
    Frozen,
    PodsHang,
    PodsComeUp,
    InstallerWrites,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let kind = || prop::sample::select(Kind::ALL.to_vec());
    prop_oneof![
        kind().prop_map(Trouble::Lost),
        kind().prop_map(Trouble::Edited),
        Just(Trouble::Frozen),
        Just(Trouble::PodsHang),
        Just(Trouble::PodsComeUp),
        Just(Trouble::InstallerWrites),
    ]
}

fn make(trouble: Trouble, runtime: &mut Runtime) {
    let slot = |runtime: &mut Runtime, kind| match kind {
        Kind::PullSecret => runtime.observed.pull_secret.take(),
        Kind::TrustBundle => runtime.observed.trust_bundle.take(),
        Kind::Configuration => runtime.observed.configuration.take(),
    };
    match trouble {
        Trouble::Lost(kind) => drop(slot(runtime, kind)),
        Trouble::Edited(kind) => {
            let edited = slot(runtime, kind).map(|mut live| {
                live["data"] = serde_json::json!({ "edited": "x" });
                live["spec"]["trustBundle"] = "edited".into();
                live
            });
            match kind {
                Kind::PullSecret => runtime.observed.pull_secret = edited,
                Kind::TrustBundle => runtime.observed.trust_bundle = edited,
                Kind::Configuration => runtime.observed.configuration = edited,
            }
        }
        Trouble::Frozen => {
            if let Some(live) = &mut runtime.observed.pull_secret {
                live["immutable"] = true.into();
            }
        }
        Trouble::PodsHang => runtime.hang(),
        Trouble::PodsComeUp => runtime.roll_out(),
        Trouble::InstallerWrites => {
            for manifest in super::api_server::manifests("1.7.0") {
                runtime.installer_applies(&manifest);
            }
        }
    }
}

fn kind_of(action: &Action) -> Option<Kind> {
    match (action.target().kind(), action.target().name()) {
        ("Secret", _) => Some(Kind::PullSecret),
        ("ClusterTrustBundle", _) => Some(Kind::TrustBundle),
        ("ConfigMap", "rt-bootstrapper-config") => Some(Kind::Configuration),
        _ => None,
    }
}

/// Whether an action leaves a document as it is, but for what it requires.
fn is_renewal(action: &Action, runtime: &Runtime) -> bool {
    let Action::Apply { object, .. } = action else {
        return false;
    };
    let live = runtime.live(Kind::Configuration);
    let hash = |it: &Value| it["metadata"]["annotations"][CONTENT_HASH].clone();
    object["kind"] == "ConfigMap"
        && live.is_some_and(|live| live["data"] == object["data"] && hash(live) == hash(object))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A plan is empty after its own effect; an invalid or never-seen source yields no action on its object; parts go
    /// before the document; a refused cluster gets nothing.
    #[test]
    fn plans(
        history in prop::collection::vec(([source(), source(), source()], prop::collection::vec(trouble(), 0..3)), 1..6),
    ) {
        let mut runtime = Runtime::new();
        let mut known = Known::default();
        let mut seen: BTreeSet<Kind> = BTreeSet::new();
        for (state, troubles) in history {
            for it in troubles {
                make(it, &mut runtime);
            }
            let sources = sources(state);
            known.advance(&sources);
            seen.extend(Kind::ALL.into_iter().filter(|kind| matches!(sources.summary(*kind), Summary::Valid(_))));
            let desired = after(&sources, &known);
            let planned = runtime.plan(&desired);
            let order: Vec<(usize, &Action)> = planned.steps.iter().enumerate()
                .flat_map(|(index, step)| step.iter().map(move |action| (index, action)))
                .collect();
            for (_, action) in &order {
                if let Some(kind) = kind_of(action) {
                    prop_assert!(seen.contains(&kind), "{action:?} of a source that never existed");
                    let usable = !matches!(sources.summary(kind), Summary::Invalid | Summary::Unmanaged);
                    prop_assert!(usable || is_renewal(action, &runtime), "{action:?} of an unusable source");
                }
            }
            let step_of = |wanted: Kind| order.iter()
                .filter(|(_, it)| matches!(it, Action::Apply { .. }) && kind_of(it) == Some(wanted))
                .map(|(index, _)| *index).max();
            if let Some(document) = step_of(Kind::Configuration) {
                for part in [Kind::PullSecret, Kind::TrustBundle] {
                    prop_assert!(step_of(part).is_none_or(|it| it < document));
                }
            }
            let mut refused = runtime.context();
            refused.claim = Claim { remembered: Some("another"), ..Claim::default() };
            prop_assert!(plan(refused, &desired, &runtime.observed).is_empty());

            runtime.carry_out(&planned);
            let again = runtime.plan(&desired);
            prop_assert!(again.is_empty(), "{:?} after {:?}", again.steps, planned.steps);
            for (key, part) in [(REQUIRES_PULL_SECRET, Kind::PullSecret), (REQUIRES_TRUST_BUNDLE, Kind::TrustBundle)] {
                let says = |kind, key: &str| runtime.live(kind).and_then(|it| it["metadata"]["annotations"][key].as_str());
                if let (Some(required), Some(held)) = (says(Kind::Configuration, key), says(part, CONTENT_HASH)) {
                    prop_assert_eq!(required, held, "the webhook would wait for ever");
                }
            }
        }
        runtime.roll_out();
        let desired = after(&sources([Source::Content(1); 3]), &known);
        runtime.converge(&desired);
        prop_assert_eq!(runtime.plan(&desired).content.version, desired.version.map(|it| it.to_string()));
    }

    /// A pass that stops anywhere leaves nothing that the next one cannot mend.
    #[test]
    fn interrupted_passes(state in [source(), source(), source()], cuts in prop::collection::vec(0usize..12, 0..5)) {
        let mut runtime = Runtime::new();
        make(Trouble::InstallerWrites, &mut runtime);
        let mut known = Known::default();
        known.advance(&sources([Source::Content(9); 3]));
        let sources = sources(state);
        known.advance(&sources);
        let desired = after(&sources, &known);
        for cut in cuts {
            let plan = runtime.plan(&desired);
            for action in plan.steps.iter().flatten().take(cut) {
                runtime.act(action);
            }
        }
        runtime.converge(&desired);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Waves are never larger than they may be; nobody starts while a wave before is unsettled or the budget is spent; and
    /// once everybody arrives, the rollout is finished.
    #[test]
    fn rollouts(
        size in 0u32..5,
        budget in prop_oneof![(0u32..4).prop_map(Budget::Count), (0u8..=100).prop_map(Budget::Percent)],
        members in prop_oneof![prop::collection::vec(0u32..1, 0..24), prop::collection::vec(0u32..3, 0..24)],
        events in prop::collection::vec((any::<prop::sample::Index>(), 0u8..6), 0..120),
    ) {
        let settings = Settings { size: NonZeroU32::new(size), failure_budget: budget, paused: false };
        let orders: BTreeMap<String, u32> = members.iter().enumerate().map(|(index, order)| (format!("m{index:02}"), *order)).collect();
        let names: Vec<String> = orders.keys().cloned().collect();
        let mut rollout = Rollout::begin(settings, orders.clone());
        // Who comes back, or tries again, is of a wave that may be settled long ago.
        let mut returned: BTreeSet<String> = BTreeSet::new();
        for (index, event) in events {
            if names.is_empty() { break; }
            let name = index.get(&names);
            let before = rollout.state(name);
            let to = match event {
                0 | 1 if before != Some(State::Done) && rollout.may_start(name) => State::Running,
                2 | 3 if before == Some(State::Running) => State::Done,
                4 if before == Some(State::Running) => State::Failed,
                5 => if before == Some(State::Unreachable) { State::Waiting } else { State::Unreachable },
                _ => continue,
            };
            if to == State::Unreachable || before == Some(State::Failed) {
                returned.insert(name.clone());
            }
            let is_unsettled = |rollout: &Rollout, other: &String| {
                matches!(rollout.state(other), Some(State::Waiting | State::Running))
            };
            if to == State::Running && before == Some(State::Waiting) && !returned.contains(name) {
                for other in names.iter().filter(|it| orders[*it] < orders[name] && !returned.contains(*it)) {
                    prop_assert!(!is_unsettled(&rollout, other), "{name} overtook {other}");
                }
            }
            rollout.set(name, to);
            let failed = names.iter().filter(|it| rollout.state(it) == Some(State::Failed)).count();
            let allowed = match budget {
                Budget::Count(count) => count as usize,
                Budget::Percent(percent) => names.len() * usize::from(percent) / 100,
            };
            let one_wave = size == 0 && members.iter().all(|it| *it == members[0]);
            if one_wave {
                let starters = names.iter().filter(|it| rollout.state(it) == Some(State::Waiting) && rollout.may_start(it)).count();
                prop_assert!(failed <= allowed || starters == 0);
            }
            if size > 0 {
                let open = names.iter()
                    .filter(|it| !returned.contains(*it) && is_unsettled(&rollout, it) && rollout.may_start(it))
                    .count();
                prop_assert!(open <= size as usize, "{open} at once");
            }
        }
        for name in &names {
            rollout.set(name, State::Done);
        }
        prop_assert!(rollout.progress().finished);
        prop_assert_eq!(rollout.progress().counts.done as usize, names.len());
        prop_assert_eq!(rollout.progress().wave, rollout.progress().waves);
    }
}

/// The world of the interim mode: Runtimes with two keys, a manager that obeys one of them, and a controller that may
/// crash and forget everything since its record was last stored.
struct Model {
    keys: Keys,
    obeys_label: bool,
    takes_both: bool,
    known: [Source; 3],
    record: Record,
    stored: BTreeMap<String, String>,
    runtimes: BTreeMap<String, Seen>,
    /// Set since the last change.
    told: BTreeSet<String>,
    /// Taken by the manager since the last change.
    taken: BTreeSet<String>,
    changes: usize,
    sets: usize,
}

#[derive(Clone, Debug)]
enum Event {
    Sources([Source; 3]),
    Look(prop::sample::Index),
    Take(prop::sample::Index),
    Store,
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => [source(), source(), source()].prop_map(Event::Sources),
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
            record: Record::default(),
            stored: BTreeMap::new(),
            runtimes: (0..count)
                .map(|index| (format!("r{index}"), Seen::default()))
                .collect(),
            told: BTreeSet::new(),
            taken: BTreeSet::new(),
            changes: 0,
            sets: 0,
        };
        assert_eq!(
            model.record.advance(&sources(model.known), []),
            Advance::First
        );
        model.stored = model.record.write();
        model
    }

    fn names(&self) -> Vec<String> {
        self.runtimes.keys().cloned().collect()
    }

    fn sources(&mut self, state: [Source; 3]) {
        let names = self.names();
        let advance = self
            .record
            .advance(&sources(state), names.iter().map(String::as_str));
        // An independent judge: what the last readable state of each source was.
        let mut changed = false;
        for (known, now) in self.known.iter_mut().zip(state) {
            if !matches!(now, Source::Invalid | Source::Unmanaged) && *known != now {
                *known = now;
                changed = true;
            }
        }
        assert_eq!(advance != Advance::Unchanged, changed);
        if changed {
            self.changes += 1;
            self.told.clear();
            self.taken.clear();
            self.stored = self.record.write();
        }
    }

    /// The controller looks at one Runtime and does what has to be done.
    fn look(&mut self, name: &str) -> Step {
        let seen = self.runtimes[name];
        let step = self
            .record
            .decide(name, Standing::Affected, self.keys, seen);
        let since = self.record.epoch();
        let patch = crate::convergence::signal::patch(step, self.keys, seen);
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
            self.sets += 1;
            self.told.insert(name.to_owned());
        }
        self.record.done(name, step, since);
        step
    }

    /// The manager takes a signal, if the key that it obeys is there.
    fn take(&mut self, name: &str) {
        let seen = self.runtimes.get_mut(name).unwrap();
        let obeyed = if self.obeys_label {
            seen.label
        } else {
            seen.annotation
        };
        if !obeyed {
            return;
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

    fn play(&mut self, event: &Event) {
        let names = self.names();
        match event {
            Event::Sources(state) => self.sources(*state),
            Event::Look(index) => {
                let name: &String = index.get(&names);
                self.look(name);
            }
            Event::Take(index) => {
                let name: &String = index.get(&names);
                self.take(name);
            }
            Event::Store => self.stored = self.record.write(),
            Event::Crash => self.record = Record::read(&self.stored).unwrap(),
        }
    }
}

const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every affected runtime is told after the last change and its manager takes that; without a change nobody is told;
    /// and in the end nothing is left behind, neither keys nor entries.
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
            model.play(event);
        }
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
        prop_assert_eq!(model.record.pending().count(), 0);
        prop_assert!(model.runtimes.values().all(|it| *it == Seen::default()));
        let sets = model.sets;
        for name in model.names() {
            prop_assert_eq!(model.look(&name), Step::Nothing);
        }
        prop_assert_eq!(model.sets, sets);
    }
}
