//! Invariants of plans for any order of events.

mod scheduler;
mod signals;

use std::collections::BTreeSet;

use api::kcp::{CONTENT_HASH, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use proptest::prelude::*;
use serde_json::Value;

use super::api_server::Runtime;
use super::samples::{AT_ONCE, NOT_YET, after, bundle, document, secret, source_names, unreadable};
use crate::sync::SourceKind;
use crate::sync::history::{Absence, SourceHistory};
use crate::sync::identity::IdentityRecord;
use crate::sync::plan::{Action, plan};
use crate::sync::sources::{SourceState, Sources};

/// A state of one source: absent, invalid, unmanaged, or one of three contents.
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

fn reading<T>(source: Source, content: impl Fn(u8) -> SourceState<T>) -> SourceState<T> {
    match source {
        Source::Absent => SourceState::Absent,
        Source::Invalid => unreadable(),
        Source::Unmanaged => SourceState::Unmanaged,
        Source::Content(it) => content(it),
    }
}

fn sources([pull_secret, trust_bundle, configuration]: [Source; 3]) -> Sources {
    Sources {
        names: source_names(),
        pull_secret: reading(pull_secret, |it| secret(&it.to_string())),
        trust_bundle: reading(trust_bundle, bundle),
        configuration: reading(configuration, |it| {
            document(&format!(r#","fipsVariables":["V{it}"]"#))
        }),
    }
}

/// An event on a runtime between two reconciles.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Lost(SourceKind),
    Edited(SourceKind),
    Frozen,
    PodsHang,
    PodsComeUp,
    InstallerWrites,
    InventoryEdited(&'static str),
}

/// Annotations of the document, with the objects whose hash they require.
const REQUIREMENTS: [(&str, SourceKind); 2] = [
    (REQUIRES_PULL_SECRET, SourceKind::PullSecret),
    (REQUIRES_TRUST_BUNDLE, SourceKind::TrustBundle),
];

/// Texts that a client may write into the inventory.
const INVENTORIES: [&str; 4] = [
    "",
    "no entry\u{0}\nv1 Namespace kyma-system\n",
    "v1 ServiceAccount kyma-system/foreign\nv1 Service kyma-system/gone\n",
    "v1 Secret kyma-system/registry-credentials\nv1 ConfigMap kyma-system/rt-bootstrapper-owner\n",
];

fn fault() -> impl Strategy<Value = Fault> {
    let kind = || prop::sample::select(SourceKind::ALL.to_vec());
    prop_oneof![
        kind().prop_map(Fault::Lost),
        kind().prop_map(Fault::Edited),
        Just(Fault::Frozen),
        Just(Fault::PodsHang),
        Just(Fault::PodsComeUp),
        Just(Fault::InstallerWrites),
        prop::sample::select(INVENTORIES.to_vec()).prop_map(Fault::InventoryEdited),
    ]
}

fn make(fault: Fault, runtime: &mut Runtime) {
    let slot = |runtime: &mut Runtime, kind| match kind {
        SourceKind::PullSecret => runtime.observed.pull_secret.take(),
        SourceKind::TrustBundle => runtime.observed.trust_bundle.take(),
        SourceKind::Configuration => runtime.observed.configuration.take(),
    };
    match fault {
        Fault::Lost(kind) => drop(slot(runtime, kind)),
        Fault::Edited(kind) => {
            let edited = slot(runtime, kind).map(|mut live| {
                live["data"] = serde_json::json!({ "edited": "x" });
                live["spec"]["trustBundle"] = "edited".into();
                live
            });
            match kind {
                SourceKind::PullSecret => runtime.observed.pull_secret = edited,
                SourceKind::TrustBundle => runtime.observed.trust_bundle = edited,
                SourceKind::Configuration => runtime.observed.configuration = edited,
            }
        }
        Fault::Frozen => {
            if let Some(live) = &mut runtime.observed.pull_secret {
                live["immutable"] = true.into();
            }
        }
        Fault::PodsHang => runtime.hang(),
        Fault::PodsComeUp => runtime.roll_out(),
        Fault::InventoryEdited(text) => {
            if let Some(marker) = &mut runtime.observed.marker {
                marker["data"][api::kcp::OWNER_INVENTORY] = text.into();
            }
        }
        Fault::InstallerWrites => {
            for manifest in super::samples::manifests("1.7.0") {
                runtime.installer_applies(&manifest);
            }
        }
    }
}

fn kind_of(action: &Action) -> Option<SourceKind> {
    match (action.target().kind(), action.target().name()) {
        ("Secret", _) => Some(SourceKind::PullSecret),
        ("ClusterTrustBundle", _) => Some(SourceKind::TrustBundle),
        ("ConfigMap", "rt-bootstrapper-config") => Some(SourceKind::Configuration),
        _ => None,
    }
}

/// Returns whether an action changes only the requirements of a document.
fn is_renewal(action: &Action, runtime: &Runtime) -> bool {
    let Action::Apply { object, .. } = action else {
        return false;
    };
    let live = runtime.live(SourceKind::Configuration);
    let hash = |it: &Value| it["metadata"]["annotations"][CONTENT_HASH].clone();
    object["kind"] == "ConfigMap"
        && live.is_some_and(|live| live["data"] == object["data"] && hash(live) == hash(object))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A plan is empty after its own effect. A source that is invalid or never existed yields no action on its
    /// object. The other objects are written before the document. Nothing is written to a cluster that is not
    /// verified.
    #[test]
    fn plans(
        history in prop::collection::vec(
            ([source(), source(), source()], any::<bool>(), prop::collection::vec(fault(), 0..3)), 1..6,
        ),
    ) {
        let mut runtime = Runtime::new();
        let foreign = serde_json::json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "foreign", "namespace": "kyma-system" } });
        runtime.someone_applies(&foreign, "customer");
        let mut known = SourceHistory::default();
        let mut seen: BTreeSet<SourceKind> = BTreeSet::new();
        for (state, waits, faults) in history {
            for it in faults {
                make(it, &mut runtime);
            }
            let sources = sources(state);
            known.advance(&sources, if waits { NOT_YET } else { AT_ONCE });
            let is_pending = |kind| matches!(known.absence(kind, sources.names.get(kind)), Absence::Pending { .. });
            seen.extend(SourceKind::ALL.into_iter().filter(|kind| matches!(sources.get(*kind), SourceState::Valid(_))));
            let desired = after(&sources, &known);
            let planned = runtime.plan(&desired);
            let order: Vec<(usize, &Action)> = planned.steps().enumerate()
                .flat_map(|(index, step)| step.iter().map(move |action| (index, action)))
                .collect();
            for (_, action) in &order {
                if let Some(kind) = kind_of(action) {
                    prop_assert!(seen.contains(&kind), "{action:?} of a source that never existed");
                    let usable = !matches!(sources.get(kind), SourceState::Invalid(_) | SourceState::Unmanaged);
                    prop_assert!(usable || is_renewal(action, &runtime), "{action:?} of an unusable source");
                    prop_assert!(!is_pending(kind) || is_renewal(action, &runtime), "{action:?} of a missing source");
                }
            }
            let applies = |wanted: SourceKind| order.iter().filter_map(move |(index, it)| match it {
                Action::Apply { object, .. } if kind_of(it) == Some(wanted) => Some((*index, &object["metadata"]["annotations"])),
                _ => None,
            });
            for (key, part) in REQUIREMENTS {
                let live = runtime.live(SourceKind::Configuration).map(|it| &it["metadata"]["annotations"][key]);
                for (index, part) in applies(part) {
                    for (document, annotations) in applies(SourceKind::Configuration) {
                        // The live document may already require an object that was lost.
                        let is_new = live != Some(&annotations[key]);
                        let requires = is_new && annotations[key] == part[CONTENT_HASH];
                        prop_assert!(!requires || index < document, "required before it is written");
                    }
                }
            }
            let mut refused = runtime.context();
            refused.record = IdentityRecord { recorded_uid: Some("another"), ..IdentityRecord::default() };
            prop_assert!(plan(refused, &desired, &runtime.observed).is_empty());

            runtime.carry_out(&planned);
            let again = runtime.plan(&desired);
            prop_assert!(again.is_empty(), "{:?} after {:?}", again, planned);
            for (key, part) in REQUIREMENTS {
                let says = |kind, key: &str| runtime.live(kind).and_then(|it| it["metadata"]["annotations"][key].as_str());
                if let (Some(required), Some(held)) = (says(SourceKind::Configuration, key), says(part, CONTENT_HASH)) {
                    prop_assert_eq!(required, held, "the webhook would wait for ever");
                }
            }
        }
        runtime.roll_out();
        let desired = after(&sources([Source::Content(1); 3]), &known);
        runtime.converge(&desired);
        prop_assert!(!runtime.log.iter().any(|it| it == "delete ServiceAccount/foreign"));
        prop_assert_eq!(runtime.plan(&desired).hashes.revision, desired.complete_revision.map(|it| it.to_string()));
    }

    /// An API server that refuses the trust bundle gets all other changes of the Secret, and no write twice.
    #[test]
    fn refused_trust_bundles(
        history in prop::collection::vec(
            ([source(), source(), source()], any::<bool>(), prop::collection::vec(fault(), 0..3)), 1..6,
        ),
    ) {
        let mut runtime = Runtime::new();
        let mut known = SourceHistory::default();
        for (state, waits, faults) in history {
            for it in faults {
                make(it, &mut runtime);
            }
            let sources = sources(state);
            known.advance(&sources, if waits { NOT_YET } else { AT_ONCE });
            let desired = after(&sources, &known);
            let mut planned = runtime.plan(&desired);
            let done = runtime.carry_out_without_bundle(&planned);
            let is_open = |it: &&Action| kind_of(it).is_some() && !done.contains(it);
            prop_assert!(planned.steps().flatten().filter(is_open).all(|it| kind_of(it) != Some(SourceKind::PullSecret)));
            let again = runtime.plan(&desired);
            let repeated = runtime.carry_out_without_bundle(&again);
            prop_assert!(repeated.is_empty(), "{repeated:?} after {done:?} of {planned:?}");
            planned.record_applied(&done);
            for kind in SourceKind::ALL {
                let there = runtime.live(kind).and_then(|it| it["metadata"]["annotations"][CONTENT_HASH].as_str());
                prop_assert_eq!(kind.hash(&planned.hashes), there, "{:?} after {:?}", kind, done);
            }
            for (key, part) in REQUIREMENTS {
                let says = |kind, key: &str| runtime.live(kind).and_then(|it| it["metadata"]["annotations"][key].as_str());
                if let (Some(required), Some(held)) = (says(SourceKind::Configuration, key), says(part, CONTENT_HASH)) {
                    prop_assert_eq!(required, held, "the webhook would wait for ever");
                }
            }
        }
        runtime.roll_out();
        runtime.converge(&after(&sources([Source::Content(1); 3]), &known));
    }

    /// The next reconcile corrects the state that an interrupted reconcile leaves.
    #[test]
    fn interrupted_passes(state in [source(), source(), source()], cuts in prop::collection::vec(0usize..12, 0..5)) {
        let mut runtime = Runtime::new();
        make(Fault::InstallerWrites, &mut runtime);
        let mut known = SourceHistory::default();
        known.advance(&sources([Source::Content(9); 3]), AT_ONCE);
        let sources = sources(state);
        known.advance(&sources, AT_ONCE);
        let desired = after(&sources, &known);
        for cut in cuts {
            let mut plan = runtime.plan(&desired);
            let done: Vec<Action> = plan.steps().flatten().take(cut).cloned().collect();
            for action in &done {
                runtime.apply_action(action);
            }
            plan.record_applied(&done);
            let content = &plan.hashes;
            for kind in SourceKind::ALL {
                let there = runtime.live(kind).and_then(|it| it["metadata"]["annotations"][CONTENT_HASH].as_str());
                prop_assert_eq!(kind.hash(content), there, "{:?} after {:?}", kind, done);
            }
            prop_assert_eq!(plan.writes_configuration, runtime.plan(&desired).writes_configuration);
            prop_assert!(content.revision.is_none() || !plan.writes_configuration);
        }
        runtime.converge(&desired);
    }
}
